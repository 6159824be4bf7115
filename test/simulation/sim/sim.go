// Package sim shows what clients of this library do, together, to a service in
// trouble. It drives the real Transport, TokenBucket and Backoff in
// testing/synctest bubbles, where time is virtual: a goroutine for each client
// or request, and servers that are RoundTrippers with capacity and latency.
//
// Arrivals and latencies come from a seed. The jitter of the library itself does
// not, and so every result is a mean over seeds.
//
// Each experiment is a function that takes a *testing.T, because bubbles need
// one, and returns plain numbers. Its test asserts what it shows at a size that
// takes seconds; the report runs the same function at full size.
//
// What a user may ask about a policy is in package retrylab, and so is the engine. Here are models
// that others have published, and questions about single parts of the library.
package sim

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/retrylab"
)

// alone runs an experiment of package retrylab with one policy alone.
func alone(t *testing.T, e retrylab.Experiment, policy retrylab.Policy) retrylab.Row {
	t.Helper()
	c := retrylab.Comparison{Experiments: []retrylab.Experiment{e}, Policies: []retrylab.Policy{policy}, Alone: true}
	return c.Run(t).Results[0].Rows[0]
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
