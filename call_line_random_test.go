package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// crowd is many requests for one host at random times, whose retries wait in line. It is their server,
// which fails for three seconds, and their Budget.
type crowd struct {
	t     *testing.T
	start time.Time
	wild  bool // hooks and bodies panic
	retryhttp.TokenBucket

	mu                    sync.Mutex
	rng                   *rand.Rand
	uploads, answers      []*bodies.Tracked
	resent, retries, done int
	granted, refunded     int
	returned, exploded    int
}

var errWild = errors.New("wild")

func (c *crowd) chance(p float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64() < p
}

func (c *crowd) below(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.rng.Int64N(int64(d)))
}

// count counts, and may panic.
func (c *crowd) count(n *int) {
	c.mu.Lock()
	*n++
	c.mu.Unlock()
	if c.wild && c.chance(0.01) {
		panic(errWild)
	}
}

func (c *crowd) Withdraw(r retryhttp.Retry) (cost float64, granted bool) {
	if c.wild && c.chance(0.01) {
		panic(errWild)
	}
	cost, granted = c.TokenBucket.Withdraw(r)
	if granted {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.granted++
	}
	return cost, granted
}

func (c *crowd) Refund(req *http.Request, cost float64) {
	c.TokenBucket.Refund(req, cost)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refunded++
}

func (c *crowd) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	if retryhttp.AttemptOf(req.Context()).Number > 1 {
		c.count(&c.resent)
	}
	time.Sleep(c.below(20 * ms))
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	at := time.Since(c.start)
	switch failing := 0.3; {
	case at > 2*time.Second && at < 5*time.Second, c.chance(failing):
	default:
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
	}
	if c.chance(0.2) {
		return nil, io.ErrUnexpectedEOF
	}
	return c.failure(), nil
}

func (c *crowd) failure() *http.Response {
	resp := &http.Response{StatusCode: 503, Header: http.Header{}, ContentLength: -1}
	if c.chance(0.1) {
		resp.StatusCode = 429
		resp.Header.Set("Retry-After", "1")
	}
	text := io.Reader(strings.NewReader("sorry"))
	switch {
	case c.chance(0.1):
		text = strings.NewReader(strings.Repeat("x", 20<<10))
	case c.chance(0.1):
		text = io.MultiReader(text, slowReader(c.below(time.Second)))
	case c.chance(0.1):
		text = io.MultiReader(text, iotest.ErrReader(io.ErrUnexpectedEOF))
	case c.wild && c.chance(0.05):
		text = io.MultiReader(text, panicReader{})
	}
	body := &bodies.Tracked{Reader: text}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, body)
	resp.Body = body
	return resp
}

// policy is a policy with features that a request in line may meet.
func (c *crowd) policy() retryhttp.Policy {
	p := retryhttp.Policy{
		Budget: c, Gate: &retryhttp.Gate{HoldFirst: c.chance(0.5)},
		OnRetry: func(retryhttp.Attempt) { c.count(&c.retries) },
		OnDone:  func(retryhttp.Attempt, retryhttp.Outcome) { c.count(&c.done) },
	}
	if c.chance(0.5) {
		p.BufferBytes = 1 << 10
	}
	if c.chance(0.5) {
		p.AttemptTimeout = 15 * ms
	}
	if c.chance(0.5) {
		p.MaxElapsed = 3 * time.Second
	}
	if c.chance(0.3) {
		p.Hedge = &retryhttp.Hedge{Share: 0.2, After: 10 * ms}
	}
	return p
}

// slowReader takes its time to end.
type slowReader time.Duration

func (r slowReader) Read([]byte) (int, error) {
	time.Sleep(time.Duration(r))
	return 0, io.EOF
}

type panicReader struct{}

func (panicReader) Read([]byte) (int, error) { panic(errWild) }

// request makes a request, which may have a body and may be canceled.
func (c *crowd) request() *http.Request {
	req, err := http.NewRequest(http.MethodGet, "http://host/", nil)
	require.NoError(c.t, err)
	if c.chance(0.5) {
		body := &bodies.Tracked{Reader: strings.NewReader("x")}
		c.mu.Lock()
		c.uploads = append(c.uploads, body)
		c.mu.Unlock()
		req.Method, req.Body, req.ContentLength = http.MethodPut, body, 1
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	if c.chance(0.3) {
		ctx, cancel = context.WithTimeout(ctx, c.below(8*time.Second))
	}
	if c.chance(0.3) {
		time.AfterFunc(c.below(8*time.Second), cancel)
	}
	time.AfterFunc(time.Minute, cancel)
	return req.WithContext(ctx)
}

// send sends a request, and checks what comes of it.
func (c *crowd) send(rt http.RoundTripper) {
	defer func() {
		if v := recover(); v != nil {
			assert.Equal(c.t, errWild, v)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.exploded++
		}
	}()
	resp, err := rt.RoundTrip(c.request())
	c.mu.Lock()
	c.returned++
	c.mu.Unlock()
	o := retryhttp.OutcomeOf(resp)
	if e, ok := errors.AsType[*retryhttp.Error](err); ok {
		o = e.Outcome
	}
	assert.LessOrEqual(c.t, o.Held, o.Waited)
	assert.LessOrEqual(c.t, o.Waited, o.Elapsed)
	assert.LessOrEqual(c.t, o.Attempts, 4)
	if resp == nil {
		assert.Error(c.t, err)
		return
	}
	assert.NoError(c.t, err)
	defer func() {
		_ = recover() // from the Read of a wild body
		assert.NoError(c.t, resp.Body.Close())
	}()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		assert.Contains(c.t, []int{len("sorry"), 20 << 10}, len(text), "whole")
	}
}

// Requests that wait in line are canceled, time out, end and panic. All that they own is given back.
func TestWhatARequestInLineOwnsIsGivenBack(t *testing.T) {
	for seed := range uint64(15) {
		for _, wild := range []bool{false, true} {
			t.Run(fmt.Sprint("seed ", seed, " wild ", wild), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := &crowd{t: t, start: time.Now(), wild: wild, rng: rand.New(rand.NewPCG(seed, 27))}
					p := c.policy()
					rt := retryhttp.New(c, p)
					var all sync.WaitGroup
					for range 300 {
						all.Go(func() {
							time.Sleep(c.below(8 * time.Second))
							c.send(rt)
						})
					}
					all.Wait()
					time.Sleep(time.Minute) // what is drained is closed
					c.check(p.Gate)
				})
			})
		}
	}
}

func (c *crowd) check(gate *retryhttp.Gate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, body := range c.uploads {
		assert.EqualValues(c.t, 1, body.Closes.Load(), "request body %d", i)
	}
	for i, body := range c.answers {
		if c.wild {
			assert.Positive(c.t, body.Closes.Load(), "response body %d", i)
		} else {
			assert.EqualValues(c.t, 1, body.Closes.Load(), "response body %d", i)
		}
		assert.Zero(c.t, body.Misuses.Load(), "response body %d is read after its Close", i)
	}
	assert.Equal(c.t, 300, c.returned+c.exploded)
	req, err := http.NewRequest(http.MethodGet, "http://host/", nil)
	require.NoError(c.t, err)
	assert.Zero(c.t, gate.Status(req).Held)
	assert.Zero(c.t, retryhttp.InTrouble(gate, "host"))
	if !c.wild {
		assert.Equal(c.t, 300, c.done)
		assert.LessOrEqual(c.t, c.granted-c.refunded, c.resent, "the token of a retry that is not sent is given back")
	}
}

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
