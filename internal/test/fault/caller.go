package fault

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp"
)

// Patience is how long a test waits for something that hangs. If nothing hangs, the limits apply
// all the same, and are so long that a busy machine does not reach them.
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
		o := &onOrder{Context: ctx, deadline: time.Now().Add(Ample), met: make(chan struct{})}
		return o, sync.OnceFunc(func() { close(o.met) }), retryhttp.Policy{}
	}
	if c.Limit == Deadline {
		ctx, cancel := context.WithTimeout(ctx, limit)
		return ctx, cancel, retryhttp.Policy{}
	}
	ctx, cancel := context.WithCancel(ctx)
	if c.Limit == PerAttempt { // any number of attempts: the machine may hang as well
		return ctx, cancel, retryhttp.Policy{
			AttemptTimeout: limit, MaxAttempts: -1, Budget: retryhttp.Unlimited{},
			// The cap is low, so that an attempt comes soon after the server is back.
			Backoff: retryhttp.FullJitter(250*time.Millisecond, Patience),
		}
	}
	return ctx, cancel, retryhttp.Policy{}
}

// onOrder is a context whose deadline is met on order. A clock would meet it before the response
// header has come, if the machine is busy enough.
type onOrder struct {
	context.Context
	deadline time.Time
	met      chan struct{}
}

func (o *onOrder) Deadline() (time.Time, bool) { return o.deadline, true }
func (o *onOrder) Done() <-chan struct{}       { return o.met }

func (o *onOrder) Err() error {
	select {
	case <-o.met:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Leaving returns an rt whose caller goes, with cancel, if nothing else ends the case's request. With a
// deadline, cancel meets the deadline. The caller goes when one of two channels reports that the request
// hangs. The second channel may be nil.
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

// InLanes calls do for each of all, in two lanes side by side. The first has the cases that wait for a timeout and
// take no time of a processor. Each lane has its number of cases at a time.
func InLanes[T any](waiting, others int, all []T, waits func(T) bool, do func(n int, one T)) {
	var first, second []T
	for _, one := range all {
		if waits(one) {
			first = append(first, one)
		} else {
			second = append(second, one)
		}
	}
	var both sync.WaitGroup
	both.Go(func() { SideBySide(waiting, first, do) })
	SideBySide(others, second, func(n int, one T) { do(len(first)+n, one) })
	both.Wait()
}

// SideBySide calls do for each of all, a number of them at a time.
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
