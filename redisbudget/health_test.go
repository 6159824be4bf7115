package redisbudget_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

func failedWith(status int, took time.Duration, header ...string) retryhttp.Attempt {
	resp := &http.Response{StatusCode: status, Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return retryhttp.Attempt{Number: 1, Response: resp, Elapsed: took}
}

// tenths are tenths of a second with results each.
func tenths(b *redisbudget.Bucket, n, failures, successes int, r retryhttp.Retry) {
	r.Stop = retryhttp.StopNotIdempotent
	for range n {
		for range failures {
			b.Withdraw(r)
		}
		deposit(b, r.Request, successes)
		time.Sleep(100 * time.Millisecond)
		b.Status(r.Request) // weighs them
	}
}

// earned returns how many tokens the next ten successes earn, which Tokens shows at once.
func earned(t *testing.T, b *redisbudget.Bucket, req *http.Request) float64 {
	t.Helper()
	require.Equal(t, 100, granted(b, req, 100), "so that there is room")
	before := b.Status(req).Tokens
	deposit(b, req, 10)
	return b.Status(req).Tokens - before
}

func TestProcessEarnsByItsOwnResults(t *testing.T) {
	failure := failedWith(503, time.Millisecond)
	for name, c := range map[string]struct {
		failures, successes int
		attempt             retryhttp.Attempt
		down                bool    // the Gate has the host down
		earned              float64 // by ten successes
	}{
		"a third fails":             {1, 2, failure, false, 5},
		"two thirds fail":           {2, 1, failure, false, 1},
		"two thirds, in an outage":  {2, 1, failure, true, 5},
		"two thirds are errors":     {2, 1, retryhttp.Attempt{Err: http.ErrServerClosed}, false, 1},
		"two thirds are 429":        {2, 1, failedWith(429, time.Millisecond), false, 5},
		"two thirds ask for a wait": {2, 1, failedWith(503, time.Millisecond, "Retry-After", "1"), false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				one, req := &redisbudget.Bucket{Client: e.client(t), Burst: 1000}, get(t, host)
				other := &redisbudget.Bucket{Client: e.client(t), Burst: 1000}
				tenths(one, 100, c.failures, c.successes, retryhttp.Retry{Request: req, Failed: c.attempt, Down: c.down})
				require.True(t, withdraw(other, req))
				require.Equal(t, 500, granted(one, req, 500))
				time.Sleep(rest)
				before := e.stored(t, "tokens")
				calls := e.record()
				deposit(one, req, 10)
				assert.InDelta(t, before+c.earned, one.Status(req).Tokens, 1e-6, "at once")
				time.Sleep(2 * interval)
				require.NotEmpty(t, calls())
				assert.Equal(t, 10.0, calls()[0].deposits, "the rate is of successes")
				assert.InDelta(t, c.earned, calls()[0].earned, 1e-6)
				assert.InDelta(t, before+c.earned, e.stored(t, "tokens"), 1e-6)
				deposit(other, req, 10)
				time.Sleep(2 * interval)
				assert.InDelta(t, before+c.earned+5, e.stored(t, "tokens"), 1e-6, "the other process is well")
			})
		})
	}
}

// A server that fails as soon as there are more retries is given a rest of 20 s. If it is no better
// afterwards, it is partly broken.
func TestProcessGivesAServerARest(t *testing.T) {
	for name, c := range map[string]struct {
		failing int     // of a hundred results, in the rest
		later   float64 // earned by ten successes, when nearly half fail again
	}{
		"that is better": {0, 1},
		"that is not":    {35, 5},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				b, req := &redisbudget.Bucket{Client: e.client(t), Burst: 100_000}, get(t, host)
				failed := retryhttp.Retry{Request: req, Failed: failedWith(503, time.Millisecond)}
				tenths(b, 20, 100, 0, failed)
				require.InDelta(t, 1, earned(t, b, req), 1e-6, "poor")
				tenths(b, 10, 0, 100, failed)
				require.InDelta(t, 5, earned(t, b, req), 1e-6, "well")
				tenths(b, 20, 45, 55, failed)
				assert.InDelta(t, 1, earned(t, b, req), 1e-6, "worse")
				tenths(b, 184, c.failing, 100-c.failing, failed)
				assert.InDelta(t, 1, earned(t, b, req), 1e-6, "before the end of the rest")
				tenths(b, 16, c.failing, 100-c.failing, failed)
				assert.InDelta(t, 5, earned(t, b, req), 1e-6, "after the rest")
				tenths(b, 30, 45, 55, failed)
				assert.InDelta(t, c.later, earned(t, b, req), 1e-6, "worse again")
			})
		})
	}
}

// A server that was blameless once is on trial like any other when it has been poor again.
func TestProcessTriesAServerThatWasPoorAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Burst: 100_000}, get(t, host)
		failed := retryhttp.Retry{Request: req, Failed: failedWith(503, time.Millisecond)}
		poorAndWell := func() {
			tenths(b, 20, 100, 0, failed)
			tenths(b, 30, 35, 65, failed)
		}
		poorAndWell()
		tenths(b, 30, 45, 55, failed)
		require.InDelta(t, 1, earned(t, b, req), 1e-6, "rests")
		tenths(b, 200, 35, 65, failed)
		tenths(b, 100, 45, 55, failed)
		require.InDelta(t, 5, earned(t, b, req), 1e-6, "no better after the rest")
		poorAndWell()
		require.InDelta(t, 5, earned(t, b, req), 1e-6, "well")
		tenths(b, 30, 45, 55, failed)
		assert.InDelta(t, 1, earned(t, b, req), 1e-6, "rests again")
	})
}

// A busy process need not wait for its next call to see that the server is well.
func TestBusyProcessSeesSoonThatItsServerIsWell(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Burst: 100_000, Interval: time.Minute}, get(t, host)
		tenths(b, 20, 100, 0, retryhttp.Retry{Request: req, Failed: failedWith(503, time.Millisecond)})
		require.InDelta(t, 1, earned(t, b, req), 1e-6, "poor")
		for range 1000 { // 1,000 a second
			b.Deposit(req)
			time.Sleep(time.Millisecond)
		}
		assert.InDelta(t, 5, earned(t, b, req), 1e-6, "a second later")
	})
}
