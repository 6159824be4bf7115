package retryhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// reply is what a server sends in the model: some version of the object, or a status.
type reply struct {
	status      int
	first, last int // of its Content-Range, and of its bytes
	complete    int // of its Content-Range; 0 is *
	cut         int // how many of its bytes come
	end         error
	tag         string
	encoding    string
	length      bool // it has a Content-Length
	ranges      int  // how many Content-Range lines it has
	another     bool // its bytes are of another version
}

// replyOf makes a reply of 8 bytes of fuzz.
func replyOf(b []byte) reply {
	r := reply{
		status:   []int{206, 206, 206, 206, 200, 200, 503, 429, 404, 412, 416, 304, 500, 408, 201, 206}[b[0]%16],
		first:    int(b[1]) % (len(object) + 2),
		last:     len(object) - 1,
		complete: len(object),
		tag:      []string{`"v1"`, `"v1"`, `"v1"`, `"v1"`, `"v2"`, `W/"v1"`, "", `"v1`}[b[2]%8],
		encoding: []string{"", "", "", "gzip"}[b[3]%4],
		length:   b[4]&1 == 0,
		ranges:   1,
		end:      []error{io.EOF, &net.OpError{Op: "read", Err: errLost}}[b[4]>>1&1],
	}
	if b[4]>>2&7 == 0 {
		r.last = int(b[5]) % (len(object) + 2)
	}
	switch b[6] % 8 {
	case 0:
		r.complete = 0
	case 1:
		r.complete++
	case 2:
		r.ranges = 2
	case 3:
		r.ranges = 0
	}
	if r.status != 206 {
		r.first, r.last = 0, len(object)-1
		r.ranges = 0
		if b[6]%8 == 3 {
			r.ranges = 1
		}
	}
	r.another = r.tag != `"v1"` || r.encoding != ""
	r.cut = int(b[7]) % (len(object) + 1)
	if b[7] >= 200 {
		r.cut = len(object)
	}
	return r
}

// bytes are all that the reply would send if it did not break off.
func (r reply) bytes() string {
	text := object + "##"
	if r.another {
		text = strings.ToUpper(strings.Repeat("#", 10)+object[10:]) + "##"
	}
	if r.last < r.first {
		return ""
	}
	return text[r.first : r.last+1]
}

func (r reply) step(req *http.Request) (*http.Response, error) {
	header := []string{}
	if r.tag != "" {
		header = append(header, "Etag", r.tag)
	}
	if r.encoding != "" {
		header = append(header, "Content-Encoding", r.encoding)
	}
	complete := "*"
	if r.complete > 0 {
		complete = fmt.Sprint(r.complete)
	}
	for range r.ranges {
		header = append(header, "Content-Range", fmt.Sprintf("bytes %d-%d/%s", r.first, r.last, complete))
	}
	if r.length {
		header = append(header, "Content-Length", fmt.Sprint(len(r.bytes())))
	}
	text := r.bytes()
	return sends(r.status, text[:min(r.cut, len(text))], r.end, header...)(req)
}

// continues is R7 in plain words, for a request from offset on.
func (r reply) continues(offset int) bool {
	if r.tag != `"v1"` || r.encoding != "" {
		return false
	}
	switch r.status {
	case 206:
		return r.ranges == 1 && r.first <= offset && offset <= r.last && (r.complete == 0 || r.complete == len(object)) &&
			(r.complete == 0 || r.last < r.complete)
	case 200:
		return r.length && r.ranges == 0
	}
	return false
}

// modelOf returns what a download delivers that begins with the object cut after begin, and
// gets replies: how many bytes, whether all, and how many requests that takes.
func modelOf(begin, maxAttempts int, replies []reply) (delivered int, whole bool, requests int) {
	requests = 1
	for delivered = begin; delivered < len(object) && requests < maxAttempts; {
		r := replies[min(requests-1, len(replies)-1)]
		requests++
		failed := r.status >= 500 || r.status == 429 || r.status == 408
		if !failed && !r.continues(delivered) {
			return delivered, false, requests
		}
		if !failed {
			brought := min(r.first+min(r.cut, r.last-r.first+1), len(object))
			delivered = max(delivered, brought)
		}
	}
	return delivered, delivered == len(object), requests
}

// The model decides what is delivered, and by how many requests.
func FuzzResume(f *testing.F) {
	f.Add(byte(10), byte(3), []byte("\x00\x0a\x00\x00\x00\x00\x04\xff"))                                 // the rest
	f.Add(byte(10), byte(3), []byte("\x04\x00\x00\x00\x00\x00\x04\xff"))                                 // a 200 with all
	f.Add(byte(10), byte(9), []byte("\x06\x00\x00\x00\x00\x00\x04\xff\x00\x05\x00\x00\x02\x00\x04\x0c")) // a 503, then a part that breaks off
	f.Add(byte(10), byte(3), []byte("\x00\x0a\x04\x00\x00\x00\x04\xff"))                                 // another version
	f.Add(byte(0), byte(3), []byte("\x00\x00\x00\x00\x03\x00\x00\xff"))
	f.Add(byte(35), byte(3), []byte("\x00\x23\x00\x00\x03\x00\x00\xff"))
	f.Fuzz(func(t *testing.T, begin, attempts byte, data []byte) {
		var replies []reply
		for ; len(data) >= 8 && len(replies) < 16; data = data[8:] {
			replies = append(replies, replyOf(data))
		}
		if len(replies) == 0 {
			return
		}
		p := resumes
		p.MaxAttempts = 2 + int(attempts)%16
		p.Gate = &retryhttp.Gate{Hold: -1}
		cut := int(begin) % len(object)
		steps := []script.Step{cutAfter(cut)}
		for _, r := range replies {
			steps = append(steps, r.step)
		}
		base := script.New(steps...)
		got, err := download(t, base, p)

		delivered, whole, requests := modelOf(cut, p.MaxAttempts, replies)
		assert.Equal(t, object[:delivered], got)
		assert.Equal(t, requests, len(base.Requests()))
		if whole {
			require.NoError(t, err)
			return
		}
		var e *retryhttp.Error
		require.ErrorAs(t, err, &e)
		changed, refused := errors.Is(err, retryhttp.ErrChanged), errors.Is(err, retryhttp.ErrNotResumable)
		assert.Equal(t, e.Stop == retryhttp.StopFinal, changed != refused)
		assert.False(t, changed && refused)
	})
}
