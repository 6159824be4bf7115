package sim

import (
	"context"
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/latency"
)

// A Hedger is a way to hedge the requests of a process. The zero value hedges none.
type Hedger struct {
	Hedge func() *retryhttp.Hedge                        // nil: none
	Model func(base http.RoundTripper) http.RoundTripper // another way, below the Transport. nil: none
}

// client returns a Transport that hedges.
func (h Hedger) client(base http.RoundTripper, p retryhttp.Policy) *retryhttp.Transport {
	if h.Model != nil {
		base = h.Model(base)
	}
	if h.Hedge != nil {
		p.Hedge = h.Hedge()
	}
	return retryhttp.New(base, p)
}

// eager hedges every request that is slow: it has no allowance. The first result wins,
// whatever it is.
//
// With a fixed delay, it is a model of github.com/cristalhq/hedgedhttp. With a quantile, it
// is a model of an adaptive delay, such as github.com/failsafe-go/failsafe-go has, without a
// budget.
type eager struct {
	base  http.RoundTripper
	delay func() time.Duration        // 0: no hedge
	note  func(latency time.Duration) // of an attempt that has not failed; it may have lost
}

// FixedDelay hedges each request after a time.
func FixedDelay(d time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return &eager{base, func() time.Duration { return d }, func(time.Duration) {}}
	}
}

// QuantileDelay hedges each request after the time that a part of the attempts of the window
// took at most. It counts and estimates as a Hedge does.
func QuantileDelay(part float64, window time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		start, recent := time.Now(), latency.New(window)
		return &eager{
			base,
			func() time.Duration { return recent.Quantile(time.Since(start), part) },
			func(d time.Duration) { recent.Record(time.Since(start), d, true) },
		}
	}
}

func (e *eager) RoundTrip(req *http.Request) (*http.Response, error) {
	type result struct {
		resp *http.Response
		err  error
	}
	results := make(chan result, 2)
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel() // bodies are empty here
	attempt := func() {
		began := time.Now()
		resp, err := e.base.RoundTrip(req.WithContext(ctx))
		if err != nil || resp.StatusCode == http.StatusOK {
			e.note(time.Since(began))
		}
		results <- result{resp, err}
	}
	go attempt()
	if d := e.delay(); d > 0 {
		hedge := time.AfterFunc(d, attempt)
		defer hedge.Stop()
	}
	first := <-results
	return first.resp, first.err
}
