package redisbudget_test

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

// A Bucket without a Client is compared with a TokenBucket that has its Burst.
func TestRestIsATokenAsForATokenBucket(t *testing.T) {
	failed := retryhttp.Attempt{Err: errors.New("reset")}
	success := func(b retryhttp.Budget, req *http.Request) { b.Deposit(req) }
	ends := func(status int) func(retryhttp.Budget, *http.Request) {
		return func(b retryhttp.Budget, req *http.Request) {
			b.Withdraw(retryhttp.Retry{Request: req, Failed: failed, Status: status, Stop: retryhttp.StopNotIdempotent})
		}
	}
	failure, refusal := ends(503), ends(429)
	passes := func(d time.Duration) func(retryhttp.Budget, *http.Request) {
		return func(retryhttp.Budget, *http.Request) { time.Sleep(d) }
	}
	long := passes(window + 1)
	for name, c := range map[string]struct {
		alone *retryhttp.TokenBucket // with the Burst of the Bucket
		steps []func(retryhttp.Budget, *http.Request)
		want  bool
	}{
		"a success and a Window":          {new(retryhttp.TokenBucket), []func(retryhttp.Budget, *http.Request){success, long}, true},
		"a Window and a success":          {new(retryhttp.TokenBucket), []func(retryhttp.Budget, *http.Request){long, success}, true},
		"a success":                       {new(retryhttp.TokenBucket), []func(retryhttp.Budget, *http.Request){success, passes(window)}, false},
		"a Window":                        {new(retryhttp.TokenBucket), []func(retryhttp.Budget, *http.Request){long}, false},
		"a failure meanwhile":             {new(retryhttp.TokenBucket), []func(retryhttp.Budget, *http.Request){success, passes(window - 1), failure, passes(2)}, false},
		"a 429 meanwhile, not retried":    {new(retryhttp.TokenBucket), []func(retryhttp.Budget, *http.Request){success, passes(window - 1), refusal, passes(2)}, true},
		"a failure afterwards":            {new(retryhttp.TokenBucket), []func(retryhttp.Budget, *http.Request){success, long, failure}, true},
		"a failure before a success":      {new(retryhttp.TokenBucket), []func(retryhttp.Budget, *http.Request){long, failure, success}, false},
		"two failures afterwards":         {new(retryhttp.TokenBucket), []func(retryhttp.Budget, *http.Request){success, long, failure, failure}, true},
		"where Ratio bounds the retries":  {&retryhttp.TokenBucket{Ratio: 0.1}, []func(retryhttp.Budget, *http.Request){success, long}, false},
		"where there is no Burst":         {&retryhttp.TokenBucket{Burst: -1}, []func(retryhttp.Budget, *http.Request){success, long}, false},
		"a Window that is short, is over": {&retryhttp.TokenBucket{Window: time.Second}, []func(retryhttp.Budget, *http.Request){success, passes(time.Second + 1)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := &redisbudget.Bucket{Ratio: c.alone.Ratio, Burst: c.alone.Burst, Window: c.alone.Window}
				c.alone.Burst = cmp.Or(c.alone.Burst, 1) // which a Bucket without a Client has
				req := get(t, host)
				for name, b := range map[string]retryhttp.Budget{"alone": c.alone, "shared": shared} {
					withdraw(b, req)
					require.False(t, withdraw(b, req), name)
					for _, step := range c.steps {
						step(b, req)
					}
					tokens := 0.0
					if c.want {
						tokens = 1
					}
					assert.GreaterOrEqual(t, b.(interface {
						Status(*http.Request) retryhttp.BucketStatus
					}).Status(req).Tokens, tokens, name)
					cost, granted := b.Withdraw(retryhttp.Retry{Request: req})
					assert.Equal(t, c.want, granted, name)
					if granted {
						b.Refund(req, cost)
						assert.True(t, withdraw(b, req), "%s: it was given back", name)
					}
					assert.False(t, withdraw(b, req), "%s: a rest is one token", name)
				}
			})
		})
	}
}

// A process that needs a retry for each success has no success without one.
func TestRestsWithoutASuccessAreRarerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := get(t, host)
		for name, b := range map[string]retryhttp.Budget{"alone": &retryhttp.TokenBucket{Burst: 1}, "shared": new(redisbudget.Bucket)} {
			require.True(t, withdraw(b, req))
			for _, windows := range []time.Duration{32, 64, 128} {
				time.Sleep(windows*window - 1)
				assert.False(t, withdraw(b, req), "%s: %d Windows later", name, windows)
				time.Sleep(window + 1)
				assert.True(t, withdraw(b, req), "%s: %d Windows later", name, windows+1)
			}
			b.Deposit(req)
			time.Sleep(32 * window)
			assert.True(t, withdraw(b, req), name)
			time.Sleep(32 * window)
			assert.True(t, withdraw(b, req), "%s: a success counts anew", name)
		}
	})
}

// The first attempt after a pause fails, as on a connection that somebody has dropped. The balance of the fleet is
// drawn on each second, and does not rest. It pays for a rest what it has.
func TestRestOfAProcessIsNotARestOfTheFleet(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		const processes = 60
		var all sync.WaitGroup
		lost := make([]int, processes)
		for i := range processes {
			b := &redisbudget.Bucket{Client: e.client(t)}
			defer b.Close()
			c := retryhttp.New(cold(window), retryhttp.Policy{Budget: b})
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				for range 20 {
					resp, err := c.RoundTrip(get(t, host))
					if assert.NoError(t, err) && resp.StatusCode != http.StatusOK {
						lost[i]++
					}
					time.Sleep(time.Minute)
				}
			})
		}
		all.Wait()
		assert.Equal(t, make([]int, processes), lost)
		// Processes that do not know of each other's retries yet may overspend a little. Booked rests would leave
		// a debt of 19 at least.
		assert.Greater(t, e.stored(t, "tokens"), -15.0)
	})
}

// cold is a service whose first answer after a pause is a 503.
func cold(pause time.Duration) http.RoundTripper {
	var last time.Time
	return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		status := http.StatusOK
		if time.Since(last) > pause {
			status = http.StatusServiceUnavailable
		}
		last = time.Now()
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
	})
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
