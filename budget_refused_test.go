package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// refuses is a Policy whose Budget grants nothing, and whose retries wait for 100 ms.
func refuses(t *testing.T) retryhttp.Policy {
	return retryhttp.Policy{
		Budget:  &retryhttp.TokenBucket{Ratio: -1, Burst: -1},
		Backoff: retryhttp.Constant(100 * ms),
		OnRetry: func(retryhttp.Attempt) { t.Error("no retry is sent") },
	}
}

func TestRefusedRequestEndsAfterItsBackoff(t *testing.T) {
	for name, c := range map[string]struct {
		step   script.Step
		status int // 0: an error
	}{
		"a response":                   {script.Status(503), 503},
		"a response that names a wait": {script.Status(503, "Retry-After", "30"), 503},
		"an invitation":                {script.Status(429, "Retry-After", "30"), 429},
		"an error":                     {script.Fail(errBroken), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				resp, err := retryhttp.New(script.New(c.step), refuses(t)).RoundTrip(get(t, t.Context()))
				assert.Equal(t, 100*ms, time.Since(start))
				want := retryhttp.Outcome{Attempts: 1, Elapsed: 100 * ms, Waited: 100 * ms, Stop: retryhttp.StopBudget}
				if c.status == 0 {
					require.ErrorIs(t, err, errBroken)
					assert.Equal(t, want, errorOf(t, err).Outcome)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, c.status, resp.StatusCode)
				assert.Equal(t, want, retryhttp.OutcomeOf(resp))
			})
		})
	}
}

// A short response is read before the wait, which gives its connection back to the pool.
func TestRefusedRequestHoldsNoConnectionWhileItWaits(t *testing.T) {
	for size, read := range map[int]time.Duration{100: 0, 16 << 10: 0, 16<<10 + 1: 100 * ms} {
		synctest.Test(t, func(t *testing.T) {
			var ended time.Duration
			start := time.Now()
			body := &atEnd{strings.NewReader(strings.Repeat("x", size)), func() { ended = time.Since(start) }}
			resp, err := retryhttp.New(script.New(script.Respond(503, body)), refuses(t)).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			assert.Equal(t, 100*ms, time.Since(start))
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Len(t, got, size)
			assert.Equal(t, read, ended, "%d bytes", size)
			assert.NoError(t, resp.Body.Close())
		})
	}
}

// atEnd is a body that calls a function at its end.
type atEnd struct {
	io.Reader
	call func()
}

func (b *atEnd) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.call()
	}
	return n, err
}

func (b *atEnd) Close() error { return nil }

// A response in hand is the caller's, though the caller has gone.
func TestRefusedRequestEndsWithItsContext(t *testing.T) {
	for name, step := range map[string]script.Step{"a response": script.Status(503), "an error": script.Fail(errBroken)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(30*ms, cancel)
				start := time.Now()
				resp, err := retryhttp.New(script.New(step), refuses(t)).RoundTrip(get(t, ctx))
				assert.Equal(t, 30*ms, time.Since(start))
				if name == "an error" {
					assert.Equal(t, retryhttp.StopCanceled, errorOf(t, err).Stop)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, retryhttp.StopCanceled, retryhttp.OutcomeOf(resp).Stop)
			})
		})
	}
}

func TestRefusedRequestHasRoomForItsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := refuses(t)
		p.MaxElapsed = 50 * ms
		start := time.Now()
		resp, err := retryhttp.New(script.New(script.Status(503)), p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Zero(t, time.Since(start))
		assert.Equal(t, retryhttp.StopDeadline, retryhttp.OutcomeOf(resp).Stop)
	})
}

// sender returns a function that sends a request to the host "a", to be answered with a status.
func sender(t *testing.T, p retryhttp.Policy) func(method string, status int) {
	rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
		code, err := strconv.Atoi(req.URL.Path[1:])
		assert.NoError(t, err)
		return script.Response(req, code), nil
	}), p)
	return func(method string, status int) {
		req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprint("http://a/", status), nil)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
}

// A client of requests that cannot be repeated would otherwise never see an overload.
func TestFailuresThatNoRetryFollowsMakeAServerPoor(t *testing.T) {
	for name, c := range map[string]struct {
		policy retryhttp.Policy
		method string
		earned float64 // by ten successes
	}{
		"not idempotent":        {retryhttp.Policy{}, "POST", 1},
		"no time for a retry":   {retryhttp.Policy{MaxElapsed: ms, Backoff: retryhttp.Constant(time.Second)}, "GET", 1},
		"MaxAttempts were made": {retryhttp.Policy{MaxAttempts: 1}, "GET", 5},
		"Final":                 {retryhttp.Policy{Classify: always(retryhttp.Final)}, "POST", 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, req := &retryhttp.TokenBucket{Burst: 20, Window: -1}, requestTo("a")
				c.policy.Budget = b
				send := sender(t, c.policy)
				for range 100 {
					send(c.method, 503)
					send(c.method, 503)
					send(c.method, 200)
					time.Sleep(100 * ms)
				}
				assert.InDelta(t, c.earned, earned(t, b, req), 1e-9)
			})
		})
	}
}

// While the Gate has a host down, its failures say nothing about the time after the outage. But an
// overload may look like an outage, so the host is on trial after it.
func TestFailuresOfAnOutageMakeNoServerPoor(t *testing.T) {
	for name, c := range map[string]struct {
		gate    *retryhttp.Gate
		outage  float64 // earned by ten successes after the outage
		failing float64 // likewise, when nearly half has failed for a while
	}{
		"with a Gate":    {new(retryhttp.Gate), 5, 1},
		"without a Gate": {&retryhttp.Gate{Hold: -1}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, req := &retryhttp.TokenBucket{Burst: 20, Window: -1}, requestTo("a")
				send := sender(t, retryhttp.Policy{Budget: b, Gate: c.gate})
				results := func(tenths, failures, successes int) float64 {
					for range tenths {
						for range failures {
							send("POST", 503)
						}
						for range successes {
							send("POST", 200)
						}
						time.Sleep(100 * ms)
					}
					return earned(t, b, req)
				}
				require.InDelta(t, 5, results(20, 0, 20), 1e-9)
				assert.InDelta(t, c.outage, results(40, 20, 0), 1e-9, "an outage")
				assert.InDelta(t, c.failing, results(30, 9, 11), 1e-9, "nearly half fails")
			})
		})
	}
}
