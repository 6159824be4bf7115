package integrations_test

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

// resuming resumes downloads. Nothing here stalls.
var resuming = retryhttp.Policy{Resume: true, StallTimeout: time.Minute}

// blob is the content of downloads. No part of it is like another.
var blob = func() []byte {
	content := make([]byte, 300<<10)
	rand.NewChaCha8([32]byte{}).Read(content)
	return content
}()

// breakingOff serves blob and its ranges, with a strong ETag. Each of its first answers breaks off
// after a number of bytes of the body.
func breakingOff(cuts ...int) http.HandlerFunc {
	var answers atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"17"`)
		if n := int(answers.Add(1)); n <= len(cuts) {
			w = &breaking{w, cuts[n-1]}
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(blob))
	}
}

// breaking ends its connection after some bytes of a body.
type breaking struct {
	http.ResponseWriter
	left int
}

func (w *breaking) Write(p []byte) (int, error) {
	if len(p) < w.left {
		w.left -= len(p)
		return w.ResponseWriter.Write(p)
	}
	_, _ = w.ResponseWriter.Write(p[:w.left])
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// parts returns which part each request asked for, in the order of the requests, and who sent it:
// the Transport, which alone sends If-Range, or the client.
func parts(s *server) (all []string) {
	for _, r := range s.got() {
		who := "client "
		if r.Header.Get("If-Range") != "" {
			who = "Transport "
		}
		all = append(all, who+r.Header.Get("Range")+r.Header.Get("X-Ms-Range"))
	}
	return all
}

// from returns the entry in parts for a request by who for everything from offset on.
func from(who string, offset int) string {
	return who + " bytes=" + strconv.Itoa(offset) + "-"
}

// to returns the same entry, with the end of blob.
func to(who string, offset int) string {
	return from(who, offset) + strconv.Itoa(len(blob)-1)
}
