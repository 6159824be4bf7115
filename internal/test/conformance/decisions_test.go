package conformance_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

type decisionCase struct {
	vector
	Request    requestSpec    `json:"request"`
	Policy     policySpec     `json:"policy"`
	DeadlineMs *int64         `json:"deadline_ms"`
	CancelAtMs *int64         `json:"cancel_at_ms"`
	Results    []resultSpec   `json:"results"`
	Expect     decisionExpect `json:"expect"`
}

type policySpec struct {
	MaxAttempts      int             `json:"max_attempts"`
	MaxElapsedMs     int64           `json:"max_elapsed_ms"`
	AttemptTimeoutMs int64           `json:"attempt_timeout_ms"`
	Backoff          *backoffSpec    `json:"backoff"`
	MaxRetryAfterMs  int64           `json:"max_retry_after_ms"`
	Classes          map[int]string  `json:"classes"`
	Idempotent       *bool           `json:"idempotent"`
	IdempotencyKey   *string         `json:"idempotency_key"`
	RetryUnprocessed bool            `json:"retry_unprocessed"`
	RecordBytes      int64           `json:"record_bytes"`
	Budget           *decisionBudget `json:"budget"`
	Below            *policySpec     `json:"below"`
}

type decisionBudget struct {
	bucketSpec
	Unlimited bool `json:"unlimited"`
}

type decisionExpect struct {
	Attempts  int            `json:"attempts"`
	Stop      retryhttp.Stop `json:"stop"`
	Status    int            `json:"status"`
	Error     string         `json:"error"`
	Ambiguous bool           `json:"ambiguous"`
	Waits     []expectedWait `json:"waits"`
	ElapsedMs *int64         `json:"elapsed_ms"`
	Balance   *float64       `json:"balance"`
	Keys      []string       `json:"keys"`
}

type expectedWait struct {
	Ms     *int64 `json:"ms"`
	LowMs  int64  `json:"low_ms"`
	HighMs int64  `json:"high_ms"`
}

func testDecisionVectors(t *testing.T) {
	file := vectors[decisionCase](t, "decisions.json")
	require.Positive(t, file.Draws)
	for _, c := range file.Cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.check(t, file.Draws, file.GapShare) })
		})
	}
}

// check runs the case once, or a number of times if its waits are a range.
func (c *decisionCase) check(t *testing.T, times int, gapShare float64) {
	ranges, drawn := make([]draws, len(c.Expect.Waits)), false
	for i, w := range c.Expect.Waits {
		ranges[i] = draws{low: millis(w.LowMs), high: millis(w.HighMs)}
		if w.Ms != nil {
			ranges[i] = draws{low: millis(*w.Ms), high: millis(*w.Ms)}
		}
		drawn = drawn || ranges[i].low < ranges[i].high
	}
	if !drawn {
		times = 1
	}
	for range times {
		waits := c.run(t)
		require.Len(t, waits, len(ranges), "waits; %s", c.Because)
		for i, wait := range waits {
			ranges[i].add(t, wait)
		}
	}
	for _, r := range ranges {
		r.requireBothEnds(t, gapShare)
	}
}

// run sends the request once, checks everything that is not random, and returns
// the waits between its attempts.
func (c *decisionCase) run(t *testing.T) []time.Duration {
	began := time.Now()
	ctx, cancel := c.context(t)
	defer cancel()
	req, body := c.Request.build(t, ctx)
	before := req.Header.Clone()
	server := newScriptedServer(t, c.Results, body.content)
	policy, bucket := c.Policy.build(t)
	rt := http.RoundTripper(server.script)
	if below := c.Policy.Below; below != nil {
		inner, _ := below.build(t)
		rt = retryhttp.New(rt, inner)
	}

	resp, err := retryhttp.New(rt, policy).RoundTrip(req)

	elapsed := time.Since(began)
	synctest.Wait() // for what closes a body
	outcome := c.checkEnd(t, ctx, resp, err)
	assert.Equal(t, c.Expect.Stop, outcome.Stop, "stop; %s", c.Because)
	assert.Equal(t, c.Expect.Attempts, outcome.Attempts, "attempts that are told; %s", c.Because)
	assert.Len(t, server.script.Requests(), c.Expect.Attempts, "attempts that were made; %s", c.Because)
	assert.Equal(t, c.Expect.Ambiguous, outcome.Ambiguous, "ambiguous; %s", c.Because)
	if c.Expect.ElapsedMs != nil {
		assert.Equal(t, millis(*c.Expect.ElapsedMs), elapsed, "elapsed; %s", c.Because)
	}
	if c.Expect.Balance != nil {
		require.NotNil(t, bucket)
		assert.InDelta(t, *c.Expect.Balance, bucket.Status(req).Tokens, 1e-9, "balance; %s", c.Because)
	}
	if c.Expect.Keys != nil {
		assert.Equal(t, c.Expect.Keys, server.keys(), "keys; %s", c.Because)
	}
	assert.Equal(t, before, req.Header, "the caller's request is not changed")
	for _, closes := range body.closes {
		assert.Equal(t, 1, closes, "every body is closed once")
	}
	return server.waits()
}

func (c *decisionCase) context(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	if c.DeadlineMs != nil {
		ctx, cancel = context.WithTimeout(ctx, millis(*c.DeadlineMs))
	}
	switch {
	case c.CancelAtMs == nil:
	case *c.CancelAtMs == 0:
		cancel()
	default:
		time.AfterFunc(millis(*c.CancelAtMs), cancel)
	}
	return ctx, cancel
}

func (c *decisionCase) checkEnd(t *testing.T, ctx context.Context, resp *http.Response, err error) retryhttp.Outcome {
	t.Helper()
	if c.Expect.Error == "" {
		require.NoError(t, err, c.Because)
		assert.Equal(t, c.Expect.Status, resp.StatusCode, c.Because)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.NotEmpty(t, text, "the body is unread")
		require.NoError(t, resp.Body.Close())
		return retryhttp.OutcomeOf(resp)
	}
	require.Error(t, err, c.Because)
	assert.Nil(t, resp)
	assert.ErrorIs(t, err, c.cause(t), c.Because)
	if c.Expect.Stop == retryhttp.StopCanceled {
		assert.ErrorIs(t, err, ctx.Err(), c.Because)
	}
	e, ok := errors.AsType[*retryhttp.Error](err)
	require.True(t, ok, "%T", err)
	return e.Outcome
}

// cause is what the error must wrap. If the body can't be read, it is the body's
// own error.
func (c *decisionCase) cause(t *testing.T) error {
	if c.Expect.Error == "request-body-unreadable" {
		return errUnreadable
	}
	return errorOfKind(t, c.Expect.Error)
}

func (s *policySpec) build(t *testing.T) (retryhttp.Policy, *retryhttp.TokenBucket) {
	t.Helper()
	p := retryhttp.Policy{
		MaxAttempts:      s.MaxAttempts,
		MaxElapsed:       millis(s.MaxElapsedMs),
		AttemptTimeout:   millis(s.AttemptTimeoutMs),
		Backoff:          s.Backoff.build(t),
		MaxRetryAfter:    millis(s.MaxRetryAfterMs),
		RetryUnprocessed: s.RetryUnprocessed,
		RecordBytes:      s.RecordBytes,
	}
	if s.Classes != nil {
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			if a.Response != nil {
				if name, ok := s.Classes[a.Response.StatusCode]; ok {
					return classOfName(t, name)
				}
			}
			return retryhttp.Classify(a)
		}
	}
	if s.Idempotent != nil {
		p.Idempotent = func(*http.Request) bool { return *s.Idempotent }
	}
	if s.IdempotencyKey != nil {
		p.IdempotencyKey = keyMaker(*s.IdempotencyKey)
	}
	switch {
	case s.Budget == nil:
	case s.Budget.Unlimited:
		p.Budget = retryhttp.Unlimited{}
	default:
		bucket := s.Budget.build()
		p.Budget = bucket
		return p, bucket
	}
	return p, nil
}
