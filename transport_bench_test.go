package retryhttp_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func BenchmarkSuccess(b *testing.B) {
	bare := &stub{statuses: []int{200}}
	for _, kind := range requestKinds {
		b.Run(kind.name+"/bare", func(b *testing.B) { run(b, bare, kind.make()) })
		for name, rt := range transports(bare) {
			b.Run(kind.name+"/"+name, func(b *testing.B) { run(b, rt, kind.make()) })
		}
	}
}

func BenchmarkSuccessParallel(b *testing.B) {
	bare := &stub{statuses: []int{200}}
	all := transports(bare)
	all["bare"] = bare
	for name, rt := range all {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				once := roundTripper(rt, requestKinds[0].make())
				for pb.Next() {
					once()
				}
			})
		})
	}
}

func BenchmarkTwoRetries(b *testing.B) {
	b.Run("three bare calls", func(b *testing.B) {
		once := roundTripper(&stub{statuses: []int{503, 503, 200}, body: true}, requestKinds[0].make())
		b.ReportAllocs()
		for b.Loop() {
			once()
			once()
			once()
		}
	})
	b.Run("retryhttp", func(b *testing.B) {
		run(b, retryhttp.New(&stub{statuses: []int{503, 503, 200}, body: true}, noWait), requestKinds[0].make())
	})
}

// BenchmarkSuccessBesideManyHosts is a success beside as many buckets as a
// TokenBucket keeps, and with random traffic over more hosts.
func BenchmarkSuccessBesideManyHosts(b *testing.B) {
	requests := make([]*http.Request, 10_000)
	for i := range requests {
		requests[i], _ = http.NewRequest("GET", "http://"+strconv.Itoa(i)+".example/", nil)
	}
	bare := &stub{statuses: []int{200}}
	for _, traffic := range []struct {
		name     string
		failed   int // hosts that have failed before
		requests []*http.Request
	}{
		{"one host", 0, requests[:1]},
		{"one host beside 4096 that failed", 4096, requests[len(requests)-1:]},
		{"10000 hosts at random", 0, requests},
		{"10000 hosts at random, 4096 failed", 4096, requests},
	} {
		b.Run(traffic.name, func(b *testing.B) {
			budget := &retryhttp.TokenBucket{}
			for i := range traffic.failed {
				withdraw(budget, requests[i])
			}
			rt := retryhttp.New(bare, retryhttp.Policy{Budget: budget})
			b.ReportAllocs()
			for b.Loop() {
				resp, err := rt.RoundTrip(traffic.requests[rand.IntN(len(traffic.requests))])
				if err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}

// BenchmarkStreamWithoutRetries is a POST of a stream that has no key.
func BenchmarkStreamWithoutRetries(b *testing.B) {
	for _, size := range []int{60 << 10, 10 << 20} {
		content := make([]byte, size)
		for name, rt := range map[string]http.RoundTripper{
			"bare":      consuming{},
			"retryhttp": retryhttp.New(consuming{}, retryhttp.Policy{}),
		} {
			b.Run(strconv.Itoa(size>>10)+" KiB/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					sendStream(rt, content)
				}
			})
		}
	}
}

// downloadSize is what one iteration of BenchmarkDownload reads.
const downloadSize = 64 << 20

// BenchmarkDownload reads a large body, which does not break off, from a loopback socket.
func BenchmarkDownload(b *testing.B) {
	block := make([]byte, 256<<10) // the server holds no more of the body
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(downloadSize))
		w.Header().Set("ETag", `"one"`)
		for range downloadSize / len(block) {
			_, _ = w.Write(block)
		}
	}))
	defer srv.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	for _, way := range []struct {
		name string
		rt   http.RoundTripper
	}{
		{"bare", base},
		{"Resume", retryhttp.New(base, retryhttp.Policy{Resume: true})},
		{"Resume+StallTimeout", retryhttp.New(base, retryhttp.Policy{Resume: true, StallTimeout: time.Minute})},
		{"StallTimeout", retryhttp.New(base, retryhttp.Policy{StallTimeout: time.Minute})},
	} {
		b.Run(way.name, func(b *testing.B) {
			buf := make([]byte, 32<<10)
			b.ReportAllocs()
			b.SetBytes(downloadSize)
			for b.Loop() {
				readDownload(b, way.rt, srv.URL, buf)
			}
		})
	}
}

func readDownload(b *testing.B, rt http.RoundTripper, url string, buf []byte) {
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, buf)
	if err != nil || n != downloadSize {
		b.Fatal(n, err)
	}
}

// BenchmarkBufferedJSON reads 2 KiB of JSON, as part of the attempt and after it.
func BenchmarkBufferedJSON(b *testing.B) {
	json := bytes.Repeat([]byte("1,"), 1<<10)
	for _, length := range []int64{int64(len(json)), -1} {
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			body := io.NopCloser(bytes.NewReader(json))
			return &http.Response{StatusCode: 200, Body: body, Request: req, ContentLength: length}, nil
		})
		name := "length " + strconv.FormatInt(length, 10)
		b.Run(name+"/bare", func(b *testing.B) { run(b, base, requestKinds[0].make()) })
		b.Run(name+"/BufferBytes", func(b *testing.B) {
			run(b, retryhttp.New(base, retryhttp.Policy{BufferBytes: 64 << 10}), requestKinds[0].make())
		})
	}
}

func run(b *testing.B, rt http.RoundTripper, req *http.Request) {
	b.Helper()
	once := roundTripper(rt, req)
	b.ReportAllocs()
	for b.Loop() {
		once()
	}
}

// stub is a base that plays statuses over and over. Its own allocations are the
// floor that Transports are compared with.
type stub struct {
	statuses []int
	body     bool   // give each failure a body to drain
	closed   func() // called when that body is closed
	n        int
}

func (s *stub) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	code := s.statuses[s.n%len(s.statuses)]
	if len(s.statuses) > 1 {
		s.n++
	}
	resp := &http.Response{StatusCode: code, Body: http.NoBody, Request: req, ContentLength: -1}
	if s.body && code >= 400 {
		resp.Body = &stubBody{*strings.NewReader("a failure's body"), s.closed}
	}
	return resp, nil
}

type stubBody struct {
	strings.Reader
	closed func()
}

func (b *stubBody) Close() error {
	if b.closed != nil {
		b.closed()
	}
	return nil
}

// consuming is a base that reads the request's body.
type consuming struct{}

func (consuming) RoundTrip(req *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, req.Body)
	_ = req.Body.Close()
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, err
}

// transports are the Transports whose first-attempt success is measured.
func transports(base http.RoundTripper) map[string]http.RoundTripper {
	return map[string]http.RoundTripper{
		"default policy": retryhttp.New(base, retryhttp.Policy{}),
		"shared budget":  retryhttp.New(base, retryhttp.Policy{Budget: &retryhttp.TokenBucket{}}),
	}
}

var requestKinds = []struct {
	name string
	make func() *http.Request
}{
	{"GET", func() *http.Request {
		req, _ := http.NewRequest("GET", "http://host.example/", nil)
		return req
	}},
	{"64 KiB POST", func() *http.Request {
		req, _ := http.NewRequest("POST", "http://host.example/", bytes.NewReader(make([]byte, 64<<10)))
		return req
	}},
}

// roundTripper returns a function that sends req and reads the response.
func roundTripper(rt http.RoundTripper, req *http.Request) func() {
	return func() {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// sendStream POSTs content as a body that can be read only once.
func sendStream(rt http.RoundTripper, content []byte) {
	req, _ := http.NewRequest("POST", "http://host.example/", struct{ io.Reader }{bytes.NewReader(content)})
	resp, err := rt.RoundTrip(req)
	if err != nil {
		panic(err)
	}
	_ = resp.Body.Close()
}
