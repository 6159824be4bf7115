package sim

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// dice draws for goroutines that run side by side, as the goroutines of Poisson do.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// newDice takes a seed from rng, so that a caller that goes on using rng alone
// needs no lock.
func newDice(rng *rand.Rand) *dice {
	return &dice{rng: rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))}
}

func (d *dice) exponential(mean time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Exponential(d.rng, mean)
}

func (d *dice) float64() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64()
}

func (d *dice) intN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// server is a RoundTripper that answers each attempt by a function.
type server func(*http.Request) (*http.Response, error)

func (f server) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func answer(req *http.Request, status int) (*http.Response, error) {
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: req}, nil
}

// processes are n clients with a Transport each, and so, unless the policy
// names one Budget for all, with a budget each.
func processes(n int, base http.RoundTripper, policy func() retryhttp.Policy) []*retryhttp.Transport {
	transports := make([]*retryhttp.Transport, n)
	for i := range transports {
		transports[i] = retryhttp.New(base, policy())
	}
	return transports
}

// get makes a request. One serves any number of RoundTrips at the same time,
// having no body.
func get(t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://service.test/", nil)
	require.NoError(t, err)
	return req
}

// succeeded returns whether a RoundTrip succeeded.
func succeeded(resp *http.Response, err error) bool {
	return err == nil && resp.StatusCode == http.StatusOK
}

// upTo returns the first bins of s that end by a time, in events per second,
// with zeros for those in which nothing happened at the end.
func upTo(s *Series, end time.Duration) []float64 {
	rates := s.PerSecond()
	bins := make([]float64, end/s.Width)
	copy(bins, rates)
	return bins
}

// meanBins returns the mean of the runs' series, which are equally long, bin by
// bin.
func meanBins(runs [][]float64) []float64 {
	mean := make([]float64, len(runs[0]))
	for _, bins := range runs {
		for i, v := range bins {
			mean[i] += v / float64(len(runs))
		}
	}
	return mean
}

func total(bins []float64) float64 {
	sum := 0.0
	for _, v := range bins {
		sum += v
	}
	return sum
}

// ratios divides bin by bin. Where there is nothing to divide by, the ratio is
// 0.
func ratios(a, b []float64) []float64 {
	r := make([]float64, len(a))
	for i := range a {
		if b[i] > 0 {
			r[i] = a[i] / b[i]
		}
	}
	return r
}
