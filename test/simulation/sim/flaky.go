package sim

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// flaky is a server without a limit to its capacity, which fails each attempt
// with a 503 by chance.
type flaky struct {
	p       float64       // of failure
	latency time.Duration // the mean of an exponential distribution; 0: none

	mu  sync.Mutex
	rng *rand.Rand
}

func (f *flaky) RoundTrip(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	failed := f.rng.Float64() < f.p
	latency := engine.Exponential(f.rng, f.latency)
	f.mu.Unlock()
	if latency > 0 {
		time.Sleep(latency)
	}
	if failed {
		return reply(req, http.StatusServiceUnavailable), nil
	}
	return reply(req, http.StatusOK), nil
}

const serverURL = "http://server.example/"

// fork returns a generator for one goroutine: a rand.Rand must not be shared.
func fork(rng *rand.Rand) *rand.Rand {
	return rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
}

func reply(req *http.Request, status int) *http.Response {
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: req}
}

// ask sends a request without a body, and returns the response, closed.
func ask(t *testing.T, rt http.RoundTripper, method string) *http.Response {
	req, err := http.NewRequestWithContext(t.Context(), method, serverURL, nil)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	resp.Body.Close()
	return resp
}
