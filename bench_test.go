package retryhttp_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/retryhttp/retryhttp"
)

// stub is a base that plays statuses over and over. What it allocates is what
// the bare calls allocate that the others are compared with.
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

var noWait = retryhttp.Policy{Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}}

// transports are those that a first-attempt success is measured with.
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

// BenchmarkSuccessBesideManyHosts is a success with as many buckets as a
// TokenBucket keeps, and one with random traffic over more hosts than that.
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
				budget.Withdraw(requests[i])
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
		for name, rt := range map[string]http.RoundTripper{"bare": consuming{}, "retryhttp": retryhttp.New(consuming{}, retryhttp.Policy{})} {
			b.Run(strconv.Itoa(size>>10)+" KiB/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					sendStream(rt, content)
				}
			})
		}
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

// consuming is a base that reads what it is sent.
type consuming struct{}

func (consuming) RoundTrip(req *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, req.Body)
	_ = req.Body.Close()
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, err
}

func run(b *testing.B, rt http.RoundTripper, req *http.Request) {
	b.Helper()
	once := roundTripper(rt, req)
	b.ReportAllocs()
	for b.Loop() {
		once()
	}
}
