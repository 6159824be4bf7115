package http3_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// run makes the case's request, and judges its result.
func run(t *testing.T, c fault.Case) {
	t.Helper()
	s := newStage(t, fault.Ample)
	ctx, cancel, policy := c.Limited(t.Context())
	defer cancel()
	var failed bool
	policy.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		class := retryhttp.Classify(a)
		if a.Err != nil {
			failed = true
			assert.NotEqual(t, retryhttp.Unprocessed, class, "%v", a.Err)
		}
		return class
	}
	var rt http.RoundTripper = retryhttp.New(s.base, policy)
	rt = c.Leaving(ctx, cancel, rt, s.handler.Hung(), nil)
	s.handler.Order("request", c.Fault)
	r := fault.Send(ctx, rt, s.handler.Ledger, s.url, "request", 1, c.Method, c.Kind)
	cancel()
	assert.NoError(t, c.Judge(r))
	if !failed {
		s.idle()
	}
	s.close()
	assert.NoError(t, s.handler.Ledger.Check("request", r.Succeeded()))
	checkClosed(t, r, !c.Method.Repeatable && c.Limit != fault.PerAttempt)
}

// checkClosed waits until the request's bodies have been closed once. quic-go closes the body of a
// request that failed a second time. A request that no retry can follow goes to quic-go as it is.
func checkClosed(t *testing.T, r fault.Result, asItIs bool) {
	t.Helper()
	if asItIs || r.Upload.Kind.Name == "bytes.Reader" {
		assert.True(t, fault.Eventually(atRest, func() bool { return r.Upload.Unclosed() == 0 }), "%v", r)
		return
	}
	fault.Eventually(atRest, func() bool { return r.Upload.Closed(false) == nil })
	assert.NoError(t, r.Upload.Closed(false), "%v", r)
}

// someCases are the cases of the faults of any server, without two kinds: cases that differ in the
// limit alone if nothing hangs that it could end, and cases that differ in the body of a request
// that is not sent again.
func someCases() []fault.Case {
	var cases []fault.Case
	for _, c := range fault.Cases(fault.Answers) {
		switch {
		case c.Fault.Effect == fault.Spoils: // a reset may overtake the header
		case !c.Method.Repeatable && c.Kind.Size > 0 && c.Kind.Name != "recorded stream":
		case c.Fault.Effect == fault.Hangs, c.Limit == fault.Unlimited:
			cases = append(cases, c)
		}
	}
	return cases
}

func TestFaultsOverHTTP3(t *testing.T) {
	leavesNothing(t)
	all := someCases()
	fault.SideBySide(64, all, func(_ int, c fault.Case) { t.Run(c.String(), func(t *testing.T) { run(t, c) }) })
	t.Logf("%d cases", len(all))
}
