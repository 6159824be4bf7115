package sim

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
	"github.com/stretchr/testify/require"
)

// Stacked returns the attempts that one request makes in an outage, through a number of Transports
// with a number of attempts each and no budget. All Transports are in one process, one above the
// other. Or each is in a service apart, which answers with what it got.
//
// Four attempts on each of three layers make 64: "Site Reliability Engineering", Beyer et al.,
// 2016, chapter 22. Three tries on each of five make 243: "Timeouts, retries, and backoff with
// jitter", Marc Brooker, The Amazon Builders' Library, 2019.
func Stacked(t *testing.T, layers, attempts int, apart bool) int {
	t.Helper()
	dead := new(outage)
	dead.down.Store(true)
	synctest.Test(t, func(t *testing.T) {
		var rt http.RoundTripper = dead
		for i := range layers {
			if apart && i > 0 {
				rt = &service{rt}
			}
			rt = retryhttp.New(rt, retryhttp.Policy{MaxAttempts: attempts, Budget: retryhttp.Unlimited{}})
		}
		resp := ask(t, rt, http.MethodGet)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	})
	return int(dead.attempts.Load())
}

// Chain is a row of processes, each calling the next through a Transport of its
// own: a client, services, and at last a server that is up, then down, and up
// again if After is not 0.
type Chain struct {
	Transports      int
	PerSecond       float64 // requests that the client makes
	Up, Down, After time.Duration
}

// Chained is what one run came to, in bins of a second.
type Chained struct {
	Offered []float64 // requests that the client made
	Deepest []float64 // attempts that reached the server
	Served  []float64 // requests that succeeded, by when they ended

	// Retries are what each Transport retries from the outage's beginning on, the client's
	// Transport first. Reserves are what its budget held at that moment.
	Retries, Reserves []float64
}

// Load returns the server's attempts per request of the client, from one second
// to another.
func (c Chained) Load(from, to int) float64 {
	return between(c.Deepest, from, to) / between(c.Offered, from, to)
}

func between(bins []float64, from, to int) float64 {
	sum := 0.0
	for i := from; i < to && i < len(bins); i++ {
		sum += bins[i]
	}
	return sum
}

// Cascade runs the chain with a Policy for each Transport. A nil Budget is replaced by a new zero
// TokenBucket, which is what nil means, so that its Reserves can be read.
func Cascade(t *testing.T, seeds int, chain Chain, policy func() retryhttp.Policy) []Chained {
	t.Helper()
	return engine.Runs(t, seeds, func(t *testing.T, rng *rand.Rand) Chained {
		offered, served := &engine.Series{Width: time.Second}, &engine.Series{Width: time.Second}
		deepest := &engine.Series{Width: time.Second}
		start, end := time.Now(), chain.Up+chain.Down+chain.After
		server := &outage{told: func() { deepest.Add(time.Since(start), 1) }}
		retries := make([]atomic.Int64, chain.Transports)
		buckets := make([]*retryhttp.TokenBucket, chain.Transports)
		var rt http.RoundTripper = server
		for i := chain.Transports - 1; i >= 0; i-- {
			if i < chain.Transports-1 {
				rt = &service{rt}
			}
			p := policy()
			if p.Budget == nil {
				buckets[i] = new(retryhttp.TokenBucket)
				p.Budget = buckets[i]
			}
			p.OnRetry = func(retryhttp.Attempt) {
				if time.Since(start) >= chain.Up {
					retries[i].Add(1)
				}
			}
			rt = retryhttp.New(rt, p)
		}
		reserves := make([]float64, chain.Transports)
		time.AfterFunc(chain.Up, func() {
			for i, b := range buckets {
				if b != nil {
					req, err := http.NewRequest(http.MethodGet, serverURL, nil)
					require.NoError(t, err)
					reserves[i] = b.Status(req).Tokens
				}
			}
			server.down.Store(true)
		})
		if chain.After > 0 {
			time.AfterFunc(chain.Up+chain.Down, func() { server.down.Store(false) })
		}
		engine.Poisson(rng, end, chain.PerSecond, engine.Constantly(chain.PerSecond), func(at time.Duration) {
			offered.Add(at, 1)
			if ask(t, rt, http.MethodGet).StatusCode == http.StatusOK {
				served.Add(time.Since(start), 1)
			}
		})
		result := Chained{
			Offered:  offered.PerSecond(),
			Deepest:  deepest.PerSecond(),
			Served:   served.PerSecond(),
			Reserves: reserves,
		}
		for i := range retries {
			result.Retries = append(result.Retries, float64(retries[i].Load()))
		}
		return result
	})
}

// service answers a request with the answer of the service below it. It is another process, so its
// answer carries nothing of the Transport it used except the status.
type service struct{ next http.RoundTripper }

func (s *service) RoundTrip(req *http.Request) (*http.Response, error) {
	call, err := http.NewRequestWithContext(context.WithoutCancel(req.Context()), req.Method, serverURL, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.next.RoundTrip(call)
	if err != nil {
		return reply(req, http.StatusBadGateway), nil
	}
	defer resp.Body.Close()
	return reply(req, resp.StatusCode), nil
}

// outage is a server that counts its attempts, and refuses them while it is
// down.
type outage struct {
	down     atomic.Bool
	attempts atomic.Int64
	told     func() // of each attempt; may be nil
}

func (o *outage) RoundTrip(req *http.Request) (*http.Response, error) {
	o.attempts.Add(1)
	if o.told != nil {
		o.told()
	}
	if o.down.Load() {
		return reply(req, http.StatusServiceUnavailable), nil
	}
	return reply(req, http.StatusOK), nil
}
