package retryhttp_test

import (
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lining is a gated whose Budget is spent.
type lining struct {
	*gated
	others *sync.WaitGroup
}

func newLining(t *testing.T, edit func(*retryhttp.Policy)) *lining {
	g := newGated(t, new(retryhttp.Gate))
	spent := &retryhttp.TokenBucket{Burst: 1}
	require.True(t, withdraw(spent, requestTo("host")))
	g.policy = retryhttp.Policy{Gate: g.gate, Budget: spent, Backoff: retryhttp.Constant(100 * ms)}
	if edit != nil {
		edit(&g.policy)
	}
	g.rt = retryhttp.New(script.Step(g.answer), g.policy)
	t.Cleanup(func() { assert.Zero(t, retryhttp.InTrouble(g.gate, "host"), "counted in the end") })
	return &lining{g, &g.ended}
}

// lasting returns l in the midst of a trouble that began 5 s ago. After Hold, a probe needs a token,
// and one retry may wait. A success at 50 ms ends the outage, and earns too little for a retry.
func (l *lining) lasting() *lining {
	_, _, took := l.ask("/503")
	time.Sleep(5*time.Second - took)
	l.start = time.Now()
	l.at(50*ms, "/200")
	return l
}

func (l *lining) request(path string) *http.Request {
	req, _ := l.visit(context.Background(), path)
	return req
}

func (l *lining) ask(path string) (*http.Response, retryhttp.Outcome, time.Duration) {
	began := time.Now()
	resp, err := l.rt.RoundTrip(l.request(path))
	require.NoError(l.t, err)
	return resp, retryhttp.OutcomeOf(resp), time.Since(began)
}

func TestRefusedRetryIsSentWhenASuccessHasEarnedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		l := newLining(t, func(p *retryhttp.Policy) {
			p.OnRetry = func(a retryhttp.Attempt) {
				text, err := io.ReadAll(a.Response.Body)
				assert.NoError(t, err)
				assert.Equal(t, 340*ms, a.Wait)
				heard = append(heard, string(text))
			}
		}).lasting()
		l.at(340*ms, "/200")
		resp, o, took := l.ask("/503,200")
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, 340*ms, took)
		assert.Equal(t, retryhttp.Outcome{
			Attempts: 2, Elapsed: took, Waited: took, Held: 240 * ms, Stop: retryhttp.StopFinal,
		}, o)
		assert.Equal(t, []string{"body of 503"}, heard, "OnRetry reads what was kept")
		l.others.Wait()
	})
}

func TestRefusedRetryReturnsTheResponseThatItKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) {
			p.OnRetry = func(retryhttp.Attempt) { assert.Fail(t, "no retry is sent") }
		}).lasting()
		resp, o, took := l.ask("/503,200")
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "body of 503", string(text))
		assert.Equal(t, retryhttp.Outcome{
			Attempts: 1, Elapsed: took, Waited: took, Held: 5 * time.Second, Stop: retryhttp.StopBudget,
		}, o)
		assert.Equal(t, 5100*ms, took, "the backoff, and then Hold")
		l.others.Wait()
	})
}

// A request waits in line for at most Hold in all of its retries. A retry after that asks once.
func TestRefusedRetryEndsWithItsHold(t *testing.T) {
	for _, c := range []struct {
		from time.Duration // when a retry is granted
		once bool
		body io.ReadCloser // kept as it is
	}{
		{4 * time.Second, false, http.NoBody},
		{5100 * ms, true, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &grudging{from: c.from, start: time.Now(), grants: 1}
			l := newLining(t, func(p *retryhttp.Policy) { p.Budget = b })
			l.body = func() io.ReadCloser { return c.body }
			l.every(25*ms, 50*ms, 160, "/200")
			_, o, took := l.ask("/503,503,200")
			assert.Equal(t, 2, o.Attempts)
			assert.Equal(t, retryhttp.StopBudget, o.Stop)
			assert.Equal(t, 5*time.Second, o.Held)
			assert.Equal(t, 5200*ms, took)
			assert.Equal(t, []int{1, 2}, b.heard, "each failure is reported once")
			assert.Equal(t, c.once, b.refused == 1)
			l.others.Wait()
		})
	}
}

// grudging is a Budget that grants a number of retries, from a time on.
type grudging struct {
	retryhttp.Unlimited
	from    time.Duration
	start   time.Time
	grants  int
	refused int   // since its last grant
	heard   []int // the numbers of the failed attempts
}

func (b *grudging) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	if !r.Again {
		b.heard = append(b.heard, r.Failed.Number)
	}
	b.refused++
	if time.Since(b.start) < b.from || b.grants == 0 {
		return 0, false
	}
	b.grants--
	b.refused = 0
	return 1, true
}

// A response is kept in memory, if it is short and comes soon. Otherwise its retry may not wait in line.
func TestRefusedRetryWithALongResponseReturnsItAtOnce(t *testing.T) {
	type testCase struct {
		size   int
		late   time.Duration // when the last byte comes
		end    error         // what comes with it
		buffer int64
		took   time.Duration
		waited time.Duration
	}
	inBubbles(t, map[string]testCase{
		"16 KiB":              {16 << 10, 0, io.EOF, 0, 5100 * ms, 5100 * ms},
		"a byte more":         {16<<10 + 1, 0, io.EOF, 0, 100 * ms, 100 * ms},
		"a body that is slow": {100, time.Second, io.EOF, 0, 250 * ms, 250 * ms},
		"a slow body that was awaited for the buffer": {100, time.Second, io.EOF, 1 << 10, 250*ms + 100*ms, 100 * ms},
		"longer than its buffer":                      {4 << 10, 0, io.EOF, 1 << 10, 5100 * ms, 5100 * ms},
		"a mebibyte in a buffer":                      {1 << 20, 0, io.EOF, 1 << 20, 100 * ms, 100 * ms},
		"a body that breaks off in its buffer":        {100, 0, errBroken, 1 << 10, 100 * ms, 100 * ms},
	}, func(t *testing.T, c testCase) {
		l := newLining(t, func(p *retryhttp.Policy) { p.BufferBytes = c.buffer }).lasting()
		l.body = func() io.ReadCloser {
			last := &bodies.Hooked{OnRead: func(p []byte) (int, error) {
				time.Sleep(c.late)
				return copy(p, "x"), c.end
			}}
			return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", c.size-1)), last))
		}
		resp, o, took := l.ask("/503,200")
		assert.Equal(t, c.took, took)
		assert.Equal(t, c.waited, o.Waited)
		assert.Equal(t, retryhttp.StopBudget, o.Stop)
		text, err := io.ReadAll(resp.Body)
		assert.ErrorIs(t, cmp.Or(err, io.EOF), c.end)
		assert.Len(t, text, c.size, "what was read, and the rest")
		require.NoError(t, resp.Body.Close())
		l.others.Wait()
	})
}

// A retry whose Budget grants nothing does not keep back a retry of another Budget.
func TestBudgetsOfOneGateTakeTurnsInItsLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		poor := newLining(t, func(p *retryhttp.Policy) { p.Budget = &grudging{} })
		rich := newLining(t, func(p *retryhttp.Policy) {
			p.Gate, p.Budget = poor.gate, &grudging{start: time.Now(), from: 120 * ms, grants: 1}
		})
		poor.at(0, "/503")
		poor.at(150*ms, "/200")
		time.Sleep(ms)
		_, o, took := rich.ask("/503,200")
		assert.Equal(t, 2, o.Attempts)
		assert.Less(t, took, 200*ms)
		poor.others.Wait()
	})
}

// A request that its Budget cancels is not reported as one that is repeated.
func TestRefusedRetryIsCanceledWhileItGetsItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		b := &asking{asked: func(*http.Request) bool {
			if time.Since(start) < 5200*ms {
				return false
			}
			cancel()
			return true
		}}
		l := newLining(t, func(p *retryhttp.Policy) {
			p.Budget = b
			p.OnRetry = func(a retryhttp.Attempt) { t.Errorf("reported: %v", a.Request.URL) }
		}).lasting()
		l.at(300*ms, "/200")
		v := l.with(ctx, 0, "/503,200")
		l.others.Wait()
		assert.ErrorContains(t, v.err, "503", "the last result")
		assert.Equal(t, retryhttp.StopCanceled, v.outcome.Stop)
		assert.EqualValues(t, 1, b.refunded.Load())
	})
}

// It asks once, however long the Budget takes.
func TestRetryThatIsAloneHasNotWaitedInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := retryhttp.Policy{Backoff: retryhttp.Constant(100 * ms), Budget: &asking{asked: func(*http.Request) bool {
			time.Sleep(10 * ms)
			asked++
			return asked > 1
		}}}
		var retry retryhttp.Attempt
		base := script.New(script.Status(503), func(req *http.Request) (*http.Response, error) {
			retry = retryhttp.AttemptOf(req.Context())
			return script.Response(req, 200), nil
		})
		resp := responseTo(t, base, p, requestOf(t, http.MethodGet, nil))
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, retryhttp.Attempt{Number: 2}, retry)
	})
}

// asking is a Budget that calls a function when it is asked.
type asking struct {
	retryhttp.Unlimited
	asked    func(*http.Request) bool
	refunded atomic.Int64
}

func (b *asking) Withdraw(r retryhttp.Retry) (cost float64, ok bool) { return 1, b.asked(r.Request) }
func (b *asking) Refund(*http.Request, float64)                      { b.refunded.Add(1) }

// The body comes after a second, and does not end with its context.
func TestRequestIsCanceledWhileItsResponseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*ms, cancel)
		l := newLining(t, nil)
		l.body = func() io.ReadCloser {
			r, w := io.Pipe()
			time.AfterFunc(time.Second, func() { _ = w.Close() })
			return r
		}
		v := l.with(ctx, 0, "/503,200")
		l.others.Wait()
		assert.Equal(t, retryhttp.StopCanceled, v.outcome.Stop)
		assert.LessOrEqual(t, v.done, 61*ms, "promptly")
		time.Sleep(time.Second) // the body ends
	})
}

// It does not wait in line, and the caller gets the response that came before.
func TestRequestThatItsBudgetCancelsEndsWithItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newLining(t, func(p *retryhttp.Policy) {
			p.Budget = &asking{asked: func(*http.Request) bool {
				cancel()
				return false
			}}
		})
		v := l.with(ctx, 0, "/503,200")
		l.others.Wait()
		assert.Equal(t, retryhttp.StopCanceled, v.outcome.Stop)
		assert.Equal(t, "body of 503", v.text)
	})
}

func TestKeptBodyThatPanicsIsClosedOnce(t *testing.T) {
	inBubbles(t, map[string]*bodies.Hooked{
		"Read panics":  {OnRead: func([]byte) (int, error) { panic("no") }},
		"Close panics": {OnRead: strings.NewReader("sorry").Read, OnClose: func() { panic("no") }},
	}, func(t *testing.T, body *bodies.Hooked) {
		l := newLining(t, nil)
		l.body = func() io.ReadCloser { return body }
		l.every(40*ms, 260*ms, 2, "/200")
		assert.PanicsWithValue(t, "no", func() { _, _ = l.rt.RoundTrip(l.request("/503,200")) })
		l.others.Wait()
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

// crowd makes random requests for one host, whose retries wait in line.
type crowd struct {
	wild bool // hooks, keys and bodies panic

	mu               sync.Mutex
	rng              *rand.Rand
	uploads, answers []*bodies.Tracked
}

func (c *crowd) below(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.rng.Int64N(int64(d)))
}

func (c *crowd) chance(p float64) bool { return c.below(time.Second).Seconds() < p }

func sometimes[T any](c *crowd, p float64, value T) (none T) {
	if c.chance(p) {
		return value
	}
	return none
}

// panicNowAndThen is in all that may panic.
func (c *crowd) panicNowAndThen() {
	if c.wild && c.chance(0.01) {
		panic(http.ErrAbortHandler)
	}
}

func (c *crowd) track(all *[]*bodies.Tracked, r io.Reader) io.ReadCloser {
	body := &bodies.Tracked{Reader: r}
	c.mu.Lock()
	defer c.mu.Unlock()
	*all = append(*all, body)
	return body
}

// failure is the body of a 503.
func (c *crowd) failure() io.ReadCloser {
	rest := func([]byte) (int, error) {
		c.panicNowAndThen()
		time.Sleep(sometimes(c, 0.1, c.below(time.Second)))
		return 0, cmp.Or(sometimes(c, 0.1, io.ErrUnexpectedEOF), io.EOF)
	}
	text := strings.NewReader(strings.Repeat("sorry", 1+sometimes(c, 0.1, 4<<10)))
	return c.track(&c.answers, io.MultiReader(text, &bodies.Hooked{OnRead: rest}))
}

// path is what a request meets that is made at a time. The server fails for three seconds.
func (c *crowd) path(at time.Duration) string {
	var answers []string
	for range 4 {
		answer := "200"
		switch down := at > 2*time.Second && at < 5*time.Second; {
		case !down && !c.chance(0.3):
		case c.wild && c.chance(0.01):
			answer = "panic"
		default:
			answer = cmp.Or(sometimes(c, 0.2, "broken"), sometimes(c, 0.2, "429"), "503")
		}
		answers = append(answers, answer+"@"+c.below(20*ms).String())
	}
	return "/" + strings.Join(answers, ",") + sometimes(c, 0.5, "?Retry-After=1")
}

// Requests that wait in line are canceled, time out, end and panic. All that they own is given back.
func TestWhatARequestInLineOwnsIsGivenBack(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{wild: seed%2 == 1, rng: rand.New(rand.NewPCG(seed, 27))}
			var done atomic.Int64
			budget := &counted{Budget: &retryhttp.TokenBucket{Key: func(req *http.Request) string {
				c.panicNowAndThen()
				return req.URL.Host
			}}}
			l := newLining(t, func(p *retryhttp.Policy) {
				p.Budget, p.Gate.HoldFirst = budget, c.chance(0.5)
				p.OnRetry = func(retryhttp.Attempt) { c.panicNowAndThen() }
				p.OnDone = func(retryhttp.Attempt, retryhttp.Outcome) {
					done.Add(1)
					c.panicNowAndThen()
				}
				p.BufferBytes = sometimes[int64](c, 0.5, 1<<10)
				p.AttemptTimeout = sometimes(c, 0.5, 15*ms)
				p.MaxElapsed = sometimes(c, 0.5, 3*time.Second)
				p.Hedge = sometimes(c, 0.3, &retryhttp.Hedge{Share: 0.2, After: 10 * ms})
			})
			l.body = c.failure
			var visits []*visit
			for range 300 {
				l.header = bearer(c.below(3).String()) // one of three tenants
				if c.chance(0.5) {
					l.upload = c.track(&c.uploads, strings.NewReader("x"))
				}
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(sometimes(c, 0.3, c.below(12*time.Second)), time.Minute))
				time.AfterFunc(cmp.Or(sometimes(c, 0.3, c.below(12*time.Second)), time.Minute), cancel)
				at := c.below(8 * time.Second)
				visits = append(visits, l.with(ctx, at, c.path(at)))
			}
			l.others.Wait()
			time.Sleep(time.Minute) // what is drained is closed

			retries := int64(0)
			for i, v := range visits {
				retries += int64(max(len(v.sent)-1, 0))
				assert.LessOrEqual(t, v.outcome.Held, v.outcome.Waited, "seed %d, request %d", seed, i)
				assert.LessOrEqual(t, v.outcome.Waited, v.outcome.Elapsed, "seed %d, request %d", seed, i)
				if v.status == 503 && v.text != "" {
					assert.Contains(t, []int{len("sorry"), len("sorry") * (1 + 4<<10)}, len(v.text), "whole")
				}
			}
			for i, body := range c.uploads {
				assert.EqualValues(t, 1, body.Closes.Load(), "seed %d, request body %d", seed, i)
			}
			for i, body := range c.answers {
				closes := body.Closes.Load()
				assert.True(t, closes == 1 || c.wild && closes > 1, "seed %d, response body %d: %d closes", seed, i, closes)
				assert.Zero(t, body.Misuses.Load(), "seed %d, response body %d is read after its Close", seed, i)
			}
			assert.Zero(t, l.held())
			if !c.wild {
				assert.EqualValues(t, 300, done.Load())
				assert.LessOrEqual(t, budget.granted.Load()-budget.refunded.Load(), retries,
					"seed %d: the token of a retry that is not sent is given back", seed)
			}
		})
	}
}

// A TokenBucket's Key may be finer than the Gate's, and another Budget may be around the bucket.
func TestSpentBucketHoldsUpNoOtherInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counted{Budget: &retryhttp.TokenBucket{Burst: -1, Ratio: 1, Key: func(r *http.Request) string {
			return strings.Split(r.URL.RawQuery, "&")[0]
		}}}
		l := newLining(t, func(p *retryhttp.Policy) { p.Budget = b })
		l.at(0, "/503,200?dead") // at the head of the line
		l.every(150*ms, 100*ms, 39, "/200?live")
		time.Sleep(10 * ms)
		resp, _, took := l.ask("/503,200?live")
		assert.Equal(t, 200, resp.StatusCode)
		assert.LessOrEqual(t, took, 240*ms, "its bucket has had a token since 150 ms")
		assert.EqualValues(t, 1, b.granted.Load(), "it was no probe")
		l.others.Wait()
	})
}
