package retryhttp_test

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asking is a Budget that calls a function when it is asked.
type asking struct {
	retryhttp.Unlimited
	asked func(*http.Request) bool

	mu       sync.Mutex
	refunded int
}

func (b *asking) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	return 1, b.asked(r.Request)
}

func (b *asking) Refund(*http.Request, float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refunded++
}

// While a retry asks for the last time, a probe may be due, and the Gate may choose this retry.
func TestProbeIsGivenBackByARetryThatAsksForTheLastTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &asking{asked: func(r *http.Request) bool {
			if r.URL.Path == "/503,first" && time.Since(start) > 200*ms {
				time.Sleep(ms) // it waits for a lock
			}
			return false
		}}
		l := newLining(t, func(p *retryhttp.Policy) { p.Budget = b })
		l.gate.Hold = 154900 * time.Microsecond
		l.at(0, "/503,first") // its hold ends at 254.9 ms, and a probe is due at 255 ms
		for i := range 8 {
			l.at(5*ms, "/503,"+string(rune('a'+i)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		l.others.Go(func() {
			time.Sleep(5 * ms)
			_, err := l.rt.RoundTrip(l.request("/503,canceled").WithContext(ctx))
			assert.Error(t, err)
		})
		time.Sleep(255500 * time.Microsecond)
		cancel() // has the Gate look for a probe that is due
		synctest.Wait()
		l.others.Wait()
		assert.Zero(t, retryhttp.InTrouble(l.gate, "host"), "nothing is under way")
	})
}

func TestOnRetryOfARetryInLineMayCancel(t *testing.T) {
	for name, inLine := range map[string]bool{"in line": true, "with a token": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				b := &asking{asked: func(*http.Request) bool { return !inLine || time.Since(start) > 200*ms }}
				l := newLining(t, func(p *retryhttp.Policy) {
					p.Budget = b
					p.OnRetry = func(retryhttp.Attempt) { cancel() }
				})
				if inLine {
					start = start.Add(5 * time.Second)
					l = l.lasting(5 * time.Second)
				}
				l.at(50*ms, "/200,x")
				l.at(300*ms, "/200,y")
				_, err := l.rt.RoundTrip(l.request("/503,200").WithContext(ctx))
				l.others.Wait()
				if assert.Error(t, err) {
					assert.Equal(t, retryhttp.StopCanceled, errorOf(t, err).Stop)
				}
				assert.EqualValues(t, 3, l.sent.Load(), "the retry is not sent")
				assert.Equal(t, 1, b.refunded)
			})
		})
	}
}

// With one processor, the request is canceled after it was called on, and before it has asked.
func TestCanceledRetryInLinePassesItsTurnOn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	lost := 0
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := newLining(t, nil)
			l.others.Go(func() {
				_, _ = l.rt.RoundTrip(l.request("/503,a").WithContext(ctx))
			})
			l.at(40*ms, "/200,1") // half a token
			l.others.Go(func() {
				time.Sleep(300 * ms)
				cancel()
				_, err := l.rt.RoundTrip(l.request("/200,2")) // the token
				assert.NoError(t, err)
			})
			time.Sleep(10 * ms)
			_, _, took := l.ask("/503,200")
			if took > 400*ms {
				lost++
			}
			l.others.Wait()
		})
	}
	assert.Zero(t, lost)
}

// The oldest in line is a probe when nothing has been under way for 250 ms since the newest success.
func TestNextInLineIsProbedAfterAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &asking{asked: func(*http.Request) bool { return time.Since(start) > 200*ms }}
		var first, second atomic.Int64
		rt := retryhttp.New(script.Step(func(r *http.Request) (*http.Response, error) {
			code := 200
			switch {
			case r.URL.Path == "/first" && first.Add(1) == 1, r.URL.Path == "/second" && second.Add(1) == 1:
				code = 503
			case r.URL.Path == "/first":
				time.Sleep(10 * time.Second)
			}
			return &http.Response{StatusCode: code, Body: http.NoBody, Header: http.Header{}}, nil
		}), retryhttp.Policy{Budget: b, Backoff: retryhttp.Constant(100 * ms)})
		to := func(path string) *http.Request {
			r := requestTo("host")
			r.URL.Path = path
			return r
		}
		var others sync.WaitGroup
		others.Go(func() { _, _ = rt.RoundTrip(to("/first")) })
		others.Go(func() { time.Sleep(50 * ms); _, _ = rt.RoundTrip(to("/200")) })
		others.Go(func() { time.Sleep(240 * ms); _, _ = rt.RoundTrip(to("/200")) })
		time.Sleep(10 * ms)
		resp, err := rt.RoundTrip(to("/second"))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, 490*ms, time.Since(start), "250 ms after the newest result")
		others.Wait()
	})
}

// A TokenBucket's Key may be finer than the Gate's, and another Budget may be around the bucket.
func TestSpentBucketHoldsUpNoOtherInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counted{Budget: &retryhttp.TokenBucket{Burst: -1, Ratio: 1, Key: func(r *http.Request) string {
			return strings.Split(r.URL.RawQuery, "&")[0]
		}}}
		l := newLining(t, func(p *retryhttp.Policy) { p.Budget = b })
		l.at(0, "/503,never?dead") // at the head of the line
		l.others.Go(func() {
			for d := 150 * ms; d < 4*time.Second; d += 100 * ms {
				time.Sleep(d - time.Since(l.start))
				_, err := l.rt.RoundTrip(l.request("/200," + d.String() + "?live"))
				assert.NoError(t, err)
			}
		})
		time.Sleep(10 * ms)
		resp, _, took := l.ask("/503,200?live")
		assert.Equal(t, 200, resp.StatusCode)
		assert.LessOrEqual(t, took, 240*ms, "its bucket has had a token since 150 ms")
		assert.EqualValues(t, 1, b.granted.Load(), "it was no probe")
		l.others.Wait()
	})
}

// A 429 closes the key for requests with the same credentials.
func TestProbeFromTheLineHeedsAClosure(t *testing.T) {
	for name, waiting := range map[string]int{"with a token": 2, "without a token": 9} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				b := &asking{asked: func(*http.Request) bool { return waiting < 8 && time.Since(start) > 200*ms }}
				l := newLining(t, func(p *retryhttp.Policy) { p.Budget = b })
				for i := range waiting {
					l.at(0, "/503,200,"+string(rune('a'+i)))
				}
				l.others.Go(func() {
					time.Sleep(120 * ms)
					once := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 1 })
					_, err := l.rt.RoundTrip(l.request("/429 closes").WithContext(once))
					assert.NoError(t, err)
				})
				time.Sleep(2119 * ms)
				synctest.Wait()
				assert.EqualValues(t, waiting+1, l.sent.Load(), "the server asked everybody to stay away until 2.12 s")
				l.others.Wait()
			})
		})
	}
}

func TestTimeOfOnRetryInLineIsWaited(t *testing.T) {
	for name, inLine := range map[string]bool{"in line": true, "with a token": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				b := &asking{asked: func(*http.Request) bool { return !inLine || time.Since(start) > 200*ms }}
				var last retryhttp.Attempt
				l := newLining(t, func(p *retryhttp.Policy) {
					p.Budget = b
					p.OnRetry = func(retryhttp.Attempt) { time.Sleep(time.Second) }
					p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
						if a.Number == 2 {
							last = a
						}
					}
				})
				l.at(50*ms, "/200,x")
				l.at(300*ms, "/200,y")
				_, o, took := l.ask("/503,200")
				l.others.Wait()
				assert.Equal(t, 2, o.Attempts)
				assert.Equal(t, took, o.Waited, "the attempts took no time")
				assert.Zero(t, last.Elapsed, "the attempt took no time")
			})
		})
	}
}
