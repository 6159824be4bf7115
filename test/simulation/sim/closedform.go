package sim

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
	"github.com/stretchr/testify/require"
)

// LoadOf is the mean number of attempts per request when each fails with
// probability p and as many retries are allowed: (1-p^(retries+1))/(1-p), from
// "Fixing retries with token buckets and circuit breakers", Marc Brooker, 2022.
func LoadOf(p float64, retries int) float64 {
	load := 0.0 // as a sum, which has a value also for p = 1
	for k := range retries + 1 {
		load += math.Pow(p, float64(k))
	}
	return load
}

// SuccessOf is the share of requests that succeed, 1-p^(retries+1). The post's share of failures,
// p^retries, leaves out the first attempt.
func SuccessOf(p float64, retries int) float64 {
	return 1 - math.Pow(p, float64(retries+1))
}

// LoadDeviation and SuccessDeviation are the standard deviations of one
// request's attempts and success.
func LoadDeviation(p float64, retries int) float64 {
	squares := 0.0 // E[A²] is the sum of (2k+1)·P(A > k), and P(A > k) = p^k
	for k := range retries + 1 {
		squares += float64(2*k+1) * math.Pow(p, float64(k))
	}
	mean := LoadOf(p, retries)
	return math.Sqrt(max(squares-mean*mean, 0))
}

func SuccessDeviation(p float64, retries int) float64 {
	s := SuccessOf(p, retries)
	return math.Sqrt(s * (1 - s))
}

// Bounded is what requests cost and came to, per request.
type Bounded struct {
	Load, Success float64
}

// BoundedRetries sends requests, one after the other and each with a number of retries, to a
// server that fails each attempt with probability p.
func BoundedRetries(t *testing.T, seeds, requests, retries int, p float64) []Bounded {
	t.Helper()
	return engine.Runs(t, seeds, func(t *testing.T, rng *rand.Rand) Bounded {
		client := retryhttp.New(&flaky{p: p, rng: rng}, retryhttp.Policy{
			MaxAttempts: retries + 1,
			Budget:      retryhttp.Unlimited{},
		})
		var sum Bounded
		for range requests {
			resp := ask(t, client, http.MethodGet)
			sum.Load += float64(retryhttp.OutcomeOf(resp).Attempts)
			if resp.StatusCode == http.StatusOK {
				sum.Success++
			}
		}
		return Bounded{sum.Load / float64(requests), sum.Success / float64(requests)}
	})
}

// Overload returns the attempts in each second at a server with room for capacity a second. In
// each second, offered new requests come. Requests that found no room return a second later,
// forever.
//
// The example is from "Site Reliability Engineering", Beyer et al., 2016, chapter 22: capacity
// 10,000, offered 10,100, and the load grows by 100 every second.
func Overload(t *testing.T, capacity, offered, seconds int) []int {
	t.Helper()
	full := &limited{capacity: capacity, attempts: make([]int, seconds)}
	synctest.Test(t, func(t *testing.T) {
		full.start = time.Now()
		client := retryhttp.New(full, retryhttp.Policy{
			MaxAttempts: -1,
			Backoff:     retryhttp.Constant(time.Second),
			Budget:      retryhttp.Unlimited{},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range seconds {
			for range offered {
				wg.Go(func() {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, serverURL, nil)
					require.NoError(t, err)
					if resp, err := client.RoundTrip(req); err == nil {
						resp.Body.Close()
					}
				})
			}
			time.Sleep(time.Second)
		}
		cancel() // ends the requests that would go on
		wg.Wait()
	})
	return full.attempts
}

// limited serves so many attempts in each second, and refuses the rest.
type limited struct {
	capacity int
	start    time.Time

	mu       sync.Mutex
	attempts []int // by second
}

func (l *limited) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	second := int(time.Since(l.start) / time.Second)
	if second >= len(l.attempts) {
		return reply(req, http.StatusServiceUnavailable), nil
	}
	l.attempts[second]++
	if l.attempts[second] > l.capacity {
		return reply(req, http.StatusServiceUnavailable), nil
	}
	return reply(req, http.StatusOK), nil
}

// RetriesPerMinute returns the retries of each minute of an outage, by one
// process that sends a request every interval and may retry perSecond times a
// second, whatever succeeds. With 1 it is the budget of 60 retries a minute of
// "Site Reliability Engineering", Beyer et al., 2016, chapter 22.
func RetriesPerMinute(t *testing.T, perSecond float64, interval time.Duration, minutes int) []int {
	t.Helper()
	retries := make([]int, minutes)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		client := retryhttp.New(&flaky{p: 1, rng: rand.New(rand.NewPCG(1, 1))}, retryhttp.Policy{
			Backoff: retryhttp.Constant(0),
			Budget:  &retryhttp.TokenBucket{Ratio: -1, Burst: -1, MinPerSecond: perSecond},
		})
		for time.Since(start) < time.Duration(minutes)*time.Minute {
			minute := int(time.Since(start) / time.Minute)
			retries[minute] += retryhttp.OutcomeOf(ask(t, client, http.MethodGet)).Attempts - 1
			time.Sleep(interval)
		}
	})
	return retries
}
