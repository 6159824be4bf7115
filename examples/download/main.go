// Download shows a download of 64 MiB whose connection breaks ten times. The body that the
// caller reads continues after each break. No byte is fetched twice.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

const (
	size = 64 << 20
	cuts = 10
	part = 6_500_000 // bytes before each cut
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	var requests, sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`) // Resume needs a strong ETag, or an old Last-Modified
		counted := &limited{ResponseWriter: w, left: size + 1, sent: &sent}
		if requests.Add(1) <= cuts {
			counted.left = part
		}
		http.ServeContent(counted, r, "file", time.Time{}, io.NewSectionReader(content{}, 0, size))
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Resume:       true,
		StallTimeout: 10 * time.Second, // a connection that goes silent is a break, too
		Backoff:      retryhttp.Constant(10 * time.Millisecond),
		// The default MaxAttempts and Budget are enough. They count only attempts that bring
		// less than 1 MiB.
		OnRetry: func(a retryhttp.Attempt) {
			fmt.Printf("%v after %8d bytes: resuming\n", a.Err, a.Offset)
		},
	})}

	resp, err := client.Get(server.URL)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got := sha256.New()
	n, err := io.Copy(got, resp.Body) // the caller does not notice the breaks
	if err != nil {
		return err
	}
	want := sha256.New()
	if _, err := io.Copy(want, io.NewSectionReader(content{}, 0, size)); err != nil {
		return err
	}
	fmt.Printf("received %d bytes in %d responses, SHA-256 matches: %t\n",
		n, requests.Load(), bytes.Equal(got.Sum(nil), want.Sum(nil)))
	fmt.Printf("sent more than once: %d bytes\n", sent.Load()-size)
	return nil
}

// limited closes the connection after a number of bytes. These bytes arrive.
type limited struct {
	http.ResponseWriter
	left int
	sent *atomic.Int64
}

func (w *limited) Write(p []byte) (int, error) {
	p = p[:min(len(p), w.left)]
	w.sent.Add(int64(len(p))) // before the client can see them
	n, err := w.ResponseWriter.Write(p)
	w.left -= n
	if w.left == 0 {
		http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// content is a file whose bytes are computed from their positions, so that the file is not
// kept in memory. A lost or repeated byte changes its SHA-256.
type content struct{}

func (content) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		at := uint64(off) + uint64(i)
		p[i] = byte(mix(at/8) >> (at % 8 * 8))
	}
	return len(p), nil
}

// mix is SplitMix64.
func mix(x uint64) uint64 {
	x = (x + 1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
