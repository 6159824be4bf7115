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

// newDice takes a seed from rng, so that its caller can go on using rng without a lock.
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

// processes are n clients with a Transport each. Each has a budget of its own, unless the policy
// names one Budget for all.
func processes(n int, base http.RoundTripper, policy func() retryhttp.Policy) []*retryhttp.Transport {
	transports := make([]*retryhttp.Transport, n)
	for i := range transports {
		transports[i] = retryhttp.New(base, policy())
	}
	return transports
}

// healthy are processes that have been well for a time, at a number of requests per second of all
// together. Their budgets have this time as deposits, at the cost of no RoundTrip. A Gate keeps
// nothing of successes.
func healthy(
	n int, base http.RoundTripper, policy func() retryhttp.Policy,
	d time.Duration, perSecond float64, next func() *http.Request,
) []*retryhttp.Transport {
	var budgets []retryhttp.Budget
	transports := processes(n, base, func() retryhttp.Policy {
		p := policy()
		if p.Budget == nil {
			p.Budget = new(retryhttp.TokenBucket) // what it means
		}
		budgets = append(budgets, p.Budget)
		return p
	})
	tick := max(10*time.Millisecond, time.Duration(float64(time.Second)/perSecond))
	end, turn, owed := time.Now().Add(d), 0, 0.0
	for time.Now().Before(end) {
		time.Sleep(tick)
		for owed += perSecond * tick.Seconds(); owed >= 1; owed-- {
			budgets[turn%n].Deposit(next())
			turn++
		}
	}
	return transports
}

// always returns the same request.
func always(req *http.Request) func() *http.Request { return func() *http.Request { return req } }

const serviceURL = "http://service.test/"

// get makes a request. It has no body, so any number of RoundTrips can share it.
func get(t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, serviceURL, nil)
	require.NoError(t, err)
	return req
}

func succeeded(resp *http.Response, err error) bool {
	return err == nil && resp.StatusCode == http.StatusOK
}

// upTo returns the first bins of s that end by a time, in events per second. Bins in which nothing
// happened at the end are zeros.
func upTo(s *Series, end time.Duration) []float64 {
	rates := s.PerSecond()
	bins := make([]float64, end/s.Width)
	copy(bins, rates)
	return bins
}

// meanBins returns the mean of the runs' series, bin by bin. The series are equally long.
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

// ratios divides bin by bin. If the divisor is 0, the ratio is 0.
func ratios(a, b []float64) []float64 {
	r := make([]float64, len(a))
	for i := range a {
		if b[i] > 0 {
			r[i] = a[i] / b[i]
		}
	}
	return r
}
