package retryhttp_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestHooksAreCalledOnceForEachWaitAndOnceAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		var attempts []retryhttp.Attempt
		var outcome retryhttp.Outcome
		req := get(t, t.Context())
		start := time.Now()
		var at []time.Duration
		base := script.New(script.Status(503), script.Fail(errBroken), script.Status(200))
		resp, err := retryhttp.New(base, retryhttp.Policy{
			Backoff: retryhttp.Constant(time.Second),
			OnRetry: func(a retryhttp.Attempt) {
				events = append(events, "retry")
				attempts = append(attempts, a)
				at = append(at, time.Since(start))
				if a.Response != nil {
					body, err := io.ReadAll(a.Response.Body)
					assert.NoError(t, err)
					assert.Equal(t, "body of 503", string(body), "the hook may read the failed body")
				}
			},
			OnDone: func(a retryhttp.Attempt, o retryhttp.Outcome) {
				events = append(events, "done")
				attempts = append(attempts, a)
				outcome = o
			},
		}).RoundTrip(req)
		require.NoError(t, err)
		last := attempts[2]
		attempts = attempts[:2]
		assert.Same(t, resp, last.Response, "the caller's")
		assert.Equal(t, 3, last.Number)
		assert.NoError(t, last.Err)
		assert.Equal(t, outcome, retryhttp.OutcomeOf(last.Response))
		assert.Equal(t, []string{"retry", "retry", "done"}, events)
		assert.Equal(t, []time.Duration{0, time.Second}, at, "before the wait")
		assert.Equal(t, retryhttp.OutcomeOf(resp), outcome)
		assert.Equal(t, 3, outcome.Attempts)
		for i, a := range attempts {
			assert.Equal(t, i+1, a.Number)
			assert.Equal(t, time.Second, a.Wait)
		}
		assert.Equal(t, errBroken, attempts[1].Err)
	})
}

func TestOnDoneOfASuccessAtOnce(t *testing.T) {
	var attempts []retryhttp.Attempt
	var outcomes []retryhttp.Outcome
	synctest.Test(t, func(t *testing.T) {
		base := script.New(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return script.Response(req, 200), nil
		})
		rt := retryhttp.New(base, retryhttp.Policy{OnDone: func(a retryhttp.Attempt, o retryhttp.Outcome) {
			attempts, outcomes = append(attempts, a), append(outcomes, o)
		}})
		req := get(t, t.Context())
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, []retryhttp.Attempt{{Number: 1, Request: req, Response: resp, Elapsed: time.Second}}, attempts)
	})
	require.Len(t, outcomes, 1)
	assert.Equal(t, 1, outcomes[0].Attempts)
	assert.Equal(t, retryhttp.StopFinal, outcomes[0].Stop)
}

func TestOnDoneSeesNoWaitBeforeAnAttemptThatIsNotMade(t *testing.T) {
	for name, c := range map[string]struct {
		policy retryhttp.Policy
		code   int
	}{
		"there is no time":       {retryhttp.Policy{MaxElapsed: time.Second}, 0},
		"there is no token":      {retryhttp.Policy{Budget: &countingBudget{refuse: true}}, 0},
		"a wait that is cut off": {retryhttp.Policy{}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				base := script.New(script.Fail(errBroken))
				if c.code > 0 {
					base = script.New(script.Status(c.code))
					time.AfterFunc(time.Second, cancel)
				}
				wait := time.Duration(-1)
				c.policy.Backoff = retryhttp.Constant(time.Minute)
				c.policy.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { wait = a.Wait }
				_, err := retryhttp.New(base, c.policy).RoundTrip(get(t, ctx))
				require.Error(t, err)
				assert.Zero(t, wait)
			})
		})
	}
}

func logOf(t *testing.T, ctx context.Context, p retryhttp.Policy, steps ...script.Step) string {
	t.Helper()
	var buf bytes.Buffer
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	p.Logger = slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	p.Backoff = retryhttp.Constant(time.Second)
	req, err := http.NewRequestWithContext(ctx, "", "https://user:pass@host.example/a%2Fb?token=secret#frag", nil)
	require.NoError(t, err)
	_, _ = retryhttp.New(script.New(steps...), p).RoundTrip(req) //nolint:bodyclose // of a script
	assert.NotContains(t, buf.String(), "secret")
	assert.NotContains(t, buf.String(), "pass")
	return buf.String()
}

func always(class retryhttp.Class) func(retryhttp.Attempt) retryhttp.Class {
	return func(retryhttp.Attempt) retryhttp.Class { return class }
}

func TestLogger(t *testing.T) {
	const (
		retrying = `level=INFO msg="retrying request" method=GET url=https://host.example/a%2Fb `
		gaveUp   = `level=WARN msg="gave up on request" method=GET url=https://host.example/a%2Fb `
	)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	cases := []struct {
		name   string
		policy retryhttp.Policy
		ctx    context.Context
		steps  []script.Step
		want   string
	}{
		{name: "nothing of a success", steps: []script.Step{script.Status(200)}},
		{name: "nothing of a final failure", steps: []script.Step{script.Status(404)}},
		{name: "nothing of a cancel", ctx: canceled, steps: []script.Step{script.Status(200)}},
		{
			name: "each retry, and the end", policy: retryhttp.Policy{MaxAttempts: 2},
			steps: []script.Step{script.Status(503), script.Fail(errBroken)},
			want: retrying + "status=503 attempt=1 elapsed=0s wait=1s\n" +
				gaveUp + `error="connection broken" attempts=2 elapsed=1s waited=1s held=0s stop=attempts ambiguous=false` + "\n",
		},
		{
			name: "a retry that succeeds", steps: []script.Step{script.Fail(errBroken), script.Status(200)},
			want: retrying + `error="connection broken" attempt=1 elapsed=0s wait=1s` + "\n",
		},
		{
			name: "a status that does not fail", policy: retryhttp.Policy{MaxAttempts: 2, Classify: always(retryhttp.Retryable)},
			steps: []script.Step{script.Status(200), script.Status(404)},
			want: retrying + `status=200 attempt=1 elapsed=0s wait=1s reason="Classify did not call it Final"` + "\n" +
				gaveUp + `status=404 attempts=2 elapsed=1s waited=1s held=0s stop=attempts ambiguous=false reason="Classify did not call it Final"` + "\n",
		},
		{
			name: "a request that was not retried", policy: retryhttp.Policy{Budget: &countingBudget{refuse: true}},
			steps: []script.Step{script.Status(503)},
			want:  gaveUp + "status=503 attempts=1 elapsed=1s waited=1s held=0s stop=budget ambiguous=false\n",
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := tc.ctx
				if ctx == nil {
					ctx = t.Context()
				}
				assert.Equal(t, tc.want, logOf(t, ctx, tc.policy, tc.steps...))
			})
		})
	}
}

func TestLoggerOfARequestWithoutURL(t *testing.T) {
	var buf strings.Builder
	req := &http.Request{Header: http.Header{}}
	p := retryhttp.Policy{MaxAttempts: 1, Logger: slog.New(slog.NewTextHandler(&buf, nil))}
	_, err := retryhttp.New(script.New(script.Fail(errBroken)), p).RoundTrip(req)
	assert.ErrorIs(t, err, errBroken)
	assert.Contains(t, buf.String(), `url=""`)
}
