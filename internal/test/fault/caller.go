package fault

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp"
)

// Patience is how long what hangs is waited for. Where nothing hangs, the limits
// are there, and are so long that a busy machine does not run into them.
const (
	Patience = time.Second
	Ample    = time.Minute
)

// Limited returns what the case's limit asks for: a context, and a policy.
func (c Case) Limited(ctx context.Context) (context.Context, context.CancelFunc, retryhttp.Policy) {
	limit := Ample
	switch {
	case c.Fault.Effect == Hangs:
		limit = Patience
	case c.Fault.Effect == SpoilHangs && c.Limit == Deadline:
		limit = 15 * Patience // for the response header must come before it, on a busy machine too
	}
	if c.Limit == Deadline {
		ctx, cancel := context.WithTimeout(ctx, limit)
		return ctx, cancel, retryhttp.Policy{}
	}
	ctx, cancel := context.WithCancel(ctx)
	if c.Limit == PerAttempt { // as often as it takes, for the machine may hang as well
		return ctx, cancel, retryhttp.Policy{
			AttemptTimeout: limit, MaxAttempts: -1, Budget: retryhttp.Unlimited{},
			Backoff: retryhttp.FullJitter(250*time.Millisecond, Patience), // not to miss by much when the server is back
		}
	}
	return ctx, cancel, retryhttp.Policy{}
}

// Leaving returns an rt whose caller goes, with cancel, if nothing else ends the
// case's request. The caller goes when one of two places reports that it hangs; the
// second may be nil.
func (c Case) Leaving(
	ctx context.Context, cancel context.CancelFunc, rt http.RoundTripper, hung, orHung <-chan struct{},
) http.RoundTripper {
	if !c.HangsForEver() {
		return rt
	}
	leave := func() {
		select {
		case <-hung:
		case <-orHung:
		case <-ctx.Done():
		}
		cancel()
	}
	if c.Fault.Effect == Hangs {
		go leave()
		return rt
	}
	return &afterwards{rt, leave}
}

// afterwards does something once there is a response.
type afterwards struct {
	base http.RoundTripper
	do   func()
}

func (a *afterwards) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.base.RoundTrip(req)
	go a.do()
	return resp, err
}

// SideBySide does something for each of all, and for so many at a time.
func SideBySide[T any](at int, all []T, do func(n int, one T)) {
	queue := make(chan int)
	var wg sync.WaitGroup
	for range at {
		wg.Go(func() {
			for n := range queue {
				do(n, all[n])
			}
		})
	}
	for n := range all {
		queue <- n
	}
	close(queue)
	wg.Wait()
}
