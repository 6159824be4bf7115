package retryhttp_test

import (
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
		type call struct {
			hook string
			at   time.Duration
			made retryhttp.Attempt
		}
		var calls []call
		var last retryhttp.Attempt
		var outcome retryhttp.Outcome
		start := time.Now()
		record := func(hook string, a retryhttp.Attempt) {
			a.Request, a.Response = nil, nil
			calls = append(calls, call{hook, time.Since(start), a})
		}
		slow := func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return script.Response(req, 200), nil
		}
		rt := retryhttp.New(script.New(script.Status(503), script.Fail(errBroken), slow), retryhttp.Policy{
			Backoff: retryhttp.Constant(time.Second),
			OnRetry: func(a retryhttp.Attempt) {
				if a.Response != nil {
					body, err := io.ReadAll(a.Response.Body)
					assert.NoError(t, err)
					assert.Equal(t, "body of 503", string(body), "the hook may read the failed body")
				}
				record("retry", a)
			},
			OnDone: func(a retryhttp.Attempt, o retryhttp.Outcome) {
				last, outcome = a, o
				record("done", a)
			},
		})
		resp := answerTo(t, rt, get(t, t.Context()))
		assert.Same(t, resp, last.Response, "the caller's")
		assert.Equal(t, retryhttp.OutcomeOf(resp), outcome)
		assert.Equal(t, 3, outcome.Attempts)

		req := get(t, t.Context())
		resp = answerTo(t, rt, req)
		assert.True(t, req == last.Request && resp == last.Response, "the caller's, of a success at once")
		assert.Equal(t, retryhttp.Outcome{Attempts: 1, Elapsed: time.Second, Stop: retryhttp.StopFinal}, outcome)
		assert.Equal(t, []call{
			{"retry", 0, retryhttp.Attempt{Number: 1, Wait: time.Second}},
			{"retry", time.Second, retryhttp.Attempt{Number: 2, Err: errBroken, Wait: time.Second}},
			{"done", 3 * time.Second, retryhttp.Attempt{Number: 3, Elapsed: time.Second}},
			{"done", 4 * time.Second, retryhttp.Attempt{Number: 1, Elapsed: time.Second}},
		}, calls)
	})
}

func always(class retryhttp.Class) func(retryhttp.Attempt) retryhttp.Class {
	return func(retryhttp.Attempt) retryhttp.Class { return class }
}

func TestLogger(t *testing.T) {
	const (
		retrying = `level=INFO msg="retrying request" method=GET url=https://host.example/a%2Fb `
		gaveUp   = `level=WARN msg="gave up on request" method=GET url=https://host.example/a%2Fb `
	)
	type testCase struct {
		policy   retryhttp.Policy
		canceled bool
		steps    []script.Step
		want     string
	}
	inBubbles(t, map[string]testCase{
		"nothing of a cancel": {canceled: true, steps: []script.Step{script.Status(200)}},
		"nothing of a final answer": {
			steps: []script.Step{script.Fail(errBroken), script.Status(404)},
			want:  retrying + `error="connection broken" attempt=1 elapsed=0s wait=1s` + "\n",
		},
		"each retry, and the end": {
			steps: []script.Step{script.Status(503), script.Fail(errBroken)},
			want: retrying + "status=503 attempt=1 elapsed=0s wait=1s\n" +
				gaveUp + `error="connection broken" attempts=2 elapsed=1s waited=1s held=0s stop=attempts ambiguous=false` + "\n",
		},
		"a status that does not fail": {
			policy: retryhttp.Policy{Classify: always(retryhttp.Retryable)},
			steps:  []script.Step{script.Status(200), script.Status(404)},
			want: retrying + `status=200 attempt=1 elapsed=0s wait=1s reason="Classify did not call it Final"` + "\n" +
				gaveUp + `status=404 attempts=2 elapsed=1s waited=1s held=0s stop=attempts ambiguous=false ` +
				`reason="Classify did not call it Final"` + "\n",
		},
	}, func(t *testing.T, c testCase) {
		var logged strings.Builder
		p := c.policy
		p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{
			ReplaceAttr: withoutTime, Level: slog.LevelDebug, // and nothing is held
		}))
		p.Backoff, p.MaxAttempts = retryhttp.Constant(time.Second), 2
		const url = "https://user:pass@host.example/a%2Fb?token=secret#frag"
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if c.canceled {
			cancel()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		require.NoError(t, err)
		_, _ = retryhttp.New(script.New(c.steps...), p).RoundTrip(req) //nolint:bodyclose // of a script
		assert.Equal(t, c.want, logged.String())
	})
}
