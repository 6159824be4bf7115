package http3_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/fault"
)

// patience is how long what hangs is waited for. Where nothing hangs, the limits
// are there, and are so long that a busy machine does not run into them.
const (
	patience = time.Second
	ample    = time.Minute
)

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

// limited is the policy and the context that the case's limit asks for.
func limited(ctx context.Context, c fault.Case) (context.Context, context.CancelFunc, retryhttp.Policy) {
	limit := ample
	if c.Fault.Effect == fault.Hangs {
		limit = patience
	}
	switch c.Limit {
	case fault.PerAttempt: // as often as it takes, for the machine may hang as well
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, retryhttp.Policy{AttemptTimeout: limit, MaxAttempts: -1, Budget: retryhttp.Unlimited{}}
	case fault.Deadline:
		ctx, cancel := context.WithTimeout(ctx, limit)
		return ctx, cancel, retryhttp.Policy{}
	}
	ctx, cancel := context.WithCancel(ctx)
	return ctx, cancel, retryhttp.Policy{}
}

// run makes the case's request, and holds what came of it against what should.
func run(t *testing.T, c fault.Case) {
	t.Helper()
	s := newStage(t, ample)
	ctx, cancel, policy := limited(t.Context(), c)
	defer cancel()
	var failed bool
	policy.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		failed = failed || a.Err != nil
		class := retryhttp.Classify(a)
		assert.NotEqual(t, retryhttp.Unprocessed, class, "%v", a.Err)
		return class
	}
	var rt http.RoundTripper = retryhttp.New(s.base, policy)
	leave := func() {
		select {
		case <-s.handler.Hung():
		case <-ctx.Done():
		}
		cancel()
	}
	switch {
	case c.HangsForEver() && c.Fault.Effect == fault.Hangs:
		go leave()
	case c.HangsForEver():
		rt = &afterwards{rt, leave}
	}
	s.handler.Order("request", c.Fault)
	r := fault.Send(ctx, rt, s.handler.Ledger, s.url, "request", 1, c.Method, c.Kind)
	cancel()
	assert.NoError(t, c.Judge(r))
	if !failed {
		s.idle()
	}
	s.close()
	assert.NoError(t, s.handler.Ledger.Check("request", r.Succeeded()))
	checkClosed(t, r)
}

// checkClosed waits until the request's bodies have been closed: once, except by
// quic-go, which closes the body of a request that failed a second time. Those
// that have a GetBody it is given as they are.
func checkClosed(t *testing.T, r fault.Result) {
	t.Helper()
	if r.Upload.Kind.Name == "bytes.Reader" {
		assert.True(t, comesTrue(func() bool { return r.Upload.Unclosed() == 0 }), "%v", r)
		return
	}
	comesTrue(func() bool { return r.Upload.Closed(false) == nil })
	assert.NoError(t, r.Upload.Closed(false), "%v", r)
}

// someCases are those of the faults of any server, without those that differ in
// the limit alone where nothing hangs that it could end, or in the body of a
// request that is not sent again.
func someCases() []fault.Case {
	var cases []fault.Case
	for _, c := range fault.Cases(fault.Answers) {
		switch {
		case c.Fault.Effect == fault.Spoils: // for a reset may overtake the header
		case !c.Method.Repeatable && c.Kind.Size > 0 && c.Kind.Name != "recorded stream":
		case c.Fault.Effect == fault.Hangs, c.Limit == fault.Unlimited:
			cases = append(cases, c)
		}
	}
	return cases
}

func TestFaultsOverHTTP3(t *testing.T) {
	leavesNothing(t)
	cases := make(chan fault.Case)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for c := range cases {
				t.Run(c.String(), func(t *testing.T) { run(t, c) })
			}
		})
	}
	all := someCases()
	for _, c := range all {
		cases <- c
	}
	close(cases)
	wg.Wait()
	t.Logf("%d cases", len(all))
}
