package retryhttp_test

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"

	"github.com/retryhttp/retryhttp"
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

func run(b *testing.B, rt http.RoundTripper, req *http.Request) {
	b.Helper()
	once := roundTripper(rt, req)
	b.ReportAllocs()
	for b.Loop() {
		once()
	}
}
