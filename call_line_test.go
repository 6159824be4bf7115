package retryhttp_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// lining is a Transport for one host. The path of a request lists the statuses of its attempts.
type lining struct {
	t        *testing.T
	rt       *retryhttp.Transport
	gate     *retryhttp.Gate
	start    time.Time
	body     func() io.ReadCloser // of a failed response
	attempts sync.Map             // maps a path to *atomic.Int64
	sent     atomic.Int64
	others   sync.WaitGroup
}

func newLining(t *testing.T, edit func(*retryhttp.Policy)) *lining {
	l := &lining{t: t, gate: new(retryhttp.Gate), start: time.Now()}
	l.body = func() io.ReadCloser { return io.NopCloser(strings.NewReader("sorry")) }
	spent := &retryhttp.TokenBucket{Burst: 1}
	require.True(t, withdraw(spent, l.request("/")))
	p := retryhttp.Policy{Backoff: retryhttp.Constant(100 * ms), Gate: l.gate, Budget: spent}
	if edit != nil {
		edit(&p)
	}
	l.rt = retryhttp.New(script.Step(l.answer), p)
	t.Cleanup(func() { assert.Zero(t, retryhttp.InTrouble(l.gate, "host"), "counted in the end") })
	return l
}

// lasting returns l in the midst of a trouble that began a time ago. After Hold, a probe needs a token,
// and one retry may wait.
func (l *lining) lasting(since time.Duration) *lining {
	_, _, took := l.ask("/503")
	time.Sleep(since - took)
	l.start = time.Now()
	l.sent.Store(0)
	return l
}

func (l *lining) request(path string) *http.Request {
	req, err := http.NewRequest(http.MethodGet, "http://host"+path, nil)
	require.NoError(l.t, err)
	return req
}

func (l *lining) answer(req *http.Request) (*http.Response, error) {
	l.sent.Add(1)
	n, _ := l.attempts.LoadOrStore(req.URL.Path, new(atomic.Int64))
	statuses := strings.Split(strings.TrimPrefix(req.URL.Path, "/"), ",")
	i := min(int(n.(*atomic.Int64).Add(1)), len(statuses)) - 1
	resp := &http.Response{StatusCode: 200, Body: http.NoBody, ContentLength: -1, Header: http.Header{}}
	switch statuses[i] {
	case "503":
		resp.StatusCode, resp.Body = 503, l.body()
	case "409":
		resp.StatusCode = 409
	case "429":
		resp.StatusCode = 429
	case "500":
		resp.StatusCode = 500
	case "503 at once":
		resp.StatusCode, resp.Body = 503, nil
		resp.Header.Set("Retry-After", "0")
	case "reset":
		return nil, syscall.ECONNRESET
	case "503 closes", "429 closes":
		resp.StatusCode = map[string]int{"503 closes": 503, "429 closes": 429}[statuses[i]]
		resp.Header.Set("Retry-After", "2")
	}
	return resp, nil
}

func (l *lining) ask(path string) (*http.Response, retryhttp.Outcome, time.Duration) {
	began := time.Now()
	resp, err := l.rt.RoundTrip(l.request(path))
	require.NoError(l.t, err)
	return resp, retryhttp.OutcomeOf(resp), time.Since(began)
}

// at sends a request of its own at a time since the start.
func (l *lining) at(d time.Duration, path string) {
	l.others.Go(func() {
		time.Sleep(d - time.Since(l.start))
		resp, err := l.rt.RoundTrip(l.request(path))
		if assert.NoError(l.t, err) {
			assert.NoError(l.t, resp.Body.Close())
		}
	})
}

func TestRefusedRetryIsSentWhenASuccessHasEarnedIt(t *testing.T) {
	for name, c := range map[string]struct {
		successes []time.Duration
		took      time.Duration
		held      time.Duration
	}{
		"while it is in line": {[]time.Duration{40 * ms, 340 * ms}, 340 * ms, 240 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var heard []string
				l := newLining(t, func(p *retryhttp.Policy) {
					p.OnRetry = func(a retryhttp.Attempt) {
						text, err := io.ReadAll(a.Response.Body)
						assert.NoError(t, err)
						assert.Equal(t, c.took, a.Wait)
						heard = append(heard, string(text))
					}
				}).lasting(5 * time.Second)
				for _, d := range c.successes {
					l.at(d, "/200,"+d.String())
				}
				resp, o, took := l.ask("/503,200")
				assert.Equal(t, 200, resp.StatusCode)
				assert.Equal(t, c.took, took)
				assert.Equal(t, retryhttp.Outcome{
					Attempts: 2, Elapsed: c.took, Waited: c.took, Held: c.held, Stop: retryhttp.StopFinal,
				}, o)
				assert.Equal(t, []string{"sorry"}, heard, "OnRetry reads what was kept")
				l.others.Wait()
			})
		})
	}
}

func TestRefusedRetryReturnsTheResponseThatItKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) {
			p.OnRetry = func(retryhttp.Attempt) { assert.Fail(t, "no retry is sent") }
		}).lasting(5 * time.Second)
		l.at(50*ms, "/200")
		resp, o, took := l.ask("/503,200")
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "sorry", string(text))
		assert.Equal(t, 503, resp.StatusCode)
		assert.Equal(t, retryhttp.Outcome{
			Attempts: 1, Elapsed: took, Waited: took, Held: 5 * time.Second, Stop: retryhttp.StopBudget,
		}, o)
		assert.Equal(t, 5100*ms, took, "the backoff, and then Hold")
		l.others.Wait()
	})
}

// A request waits in line for at most Hold in all of its retries.
func TestRefusedRetryEndsWithItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &grudging{from: 4 * time.Second, start: time.Now(), grants: 1}
		l := newLining(t, func(p *retryhttp.Policy) { p.Budget = b })
		for d := 25 * ms; d < 8*time.Second; d += 50 * ms {
			l.at(d, "/200")
		}
		_, o, took := l.ask("/503,503,200")
		assert.Equal(t, 2, o.Attempts)
		assert.Equal(t, retryhttp.StopBudget, o.Stop)
		assert.Equal(t, 5*time.Second, o.Held)
		assert.Equal(t, 5200*ms, took)
		assert.Equal(t, []int{1, 2}, b.heard, "each failure is reported once")
		l.others.Wait()
	})
}

// grudging is a Budget that grants a number of retries, from a time on.
type grudging struct {
	retryhttp.Unlimited
	from   time.Duration
	start  time.Time
	grants int
	asked  int
	heard  []int // the numbers of the failed attempts
	panics bool  // when it is asked again
	never  bool  // it says so
}

func (b *grudging) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	if !r.Again {
		b.heard = append(b.heard, r.Failed.Number)
	}
	b.asked++
	if b.panics && b.asked > 1 {
		panic("asked again")
	}
	if time.Since(b.start) < b.from || b.grants == 0 {
		if b.never {
			cost = math.Inf(1)
		}
		return cost, false
	}
	b.grants--
	return 1, true
}

func TestRefusedRetryWithALongResponseReturnsItAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		size   int
		stalls bool
		took   time.Duration
	}{
		"16 KiB":              {16 << 10, false, 5100 * ms},
		"a byte more":         {16<<10 + 1, false, 100 * ms},
		"a body that is slow": {100, true, 250 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLining(t, nil).lasting(5 * time.Second)
				l.body = func() io.ReadCloser {
					r, w := io.Pipe()
					go func() {
						_, _ = w.Write([]byte(strings.Repeat("x", c.size-1)))
						if c.stalls {
							time.Sleep(time.Second)
						}
						_, _ = w.Write([]byte("x"))
						_ = w.Close()
					}()
					return r
				}
				l.at(50*ms, "/200")
				resp, o, took := l.ask("/503,200")
				assert.Equal(t, c.took, took)
				assert.Equal(t, retryhttp.StopBudget, o.Stop)
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				assert.Len(t, text, c.size, "what was read, and the rest")
				require.NoError(t, resp.Body.Close())
				l.others.Wait()
			})
		})
	}
}

func TestSingleRefusedRetryAsksOnceMore(t *testing.T) {
	slow := &retryhttp.TokenBucket{Ratio: -1, Burst: -1, MinPerSecond: 0.001}
	require.True(t, withdraw(slow, requestTo("host")))
	for name, c := range map[string]struct {
		budget retryhttp.Budget
		asked  int
		took   time.Duration
	}{
		"a budget":                     {new(grudging), 2, 100 * ms},
		"a budget around a budget":     {struct{ retryhttp.Budget }{new(grudging)}, 2, 100 * ms},
		"a budget that never grants":   {&grudging{never: true}, 1, 100 * ms},
		"a bucket that earns nothing":  {&retryhttp.TokenBucket{Ratio: -1, Burst: -1}, 0, 100 * ms},
		"a bucket with a MinPerSecond": {slow, 0, 100 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLining(t, func(p *retryhttp.Policy) { p.Budget = c.budget })
				_, o, took := l.ask("/503,200")
				assert.Equal(t, c.took, took)
				assert.Equal(t, retryhttp.StopBudget, o.Stop)
				b, ok := c.budget.(*grudging)
				if wrapped, is := c.budget.(struct{ retryhttp.Budget }); is {
					b, ok = wrapped.Budget.(*grudging)
				}
				if ok {
					assert.Equal(t, c.asked, b.asked)
				}
			})
		})
	}
}

// Retry-After: 0 asks for a retry at once. Nothing is to be learned from such a wait, so that a single
// retry does not wait in line.
func TestRefusedRetryThatMayComeAtOnceIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil)
		once := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 1 })
		_, err := l.rt.RoundTrip(l.request("/503").WithContext(once))
		require.NoError(t, err)
		resp, o, took := l.ask("/503 at once,200")
		assert.Equal(t, retryhttp.StopBudget, o.Stop)
		assert.Equal(t, 100*ms, took)
		assert.Equal(t, 503, resp.StatusCode)
	})
}

func TestRefusedRetryOfAGateWithoutHoldIsNotInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) { p.Gate = &retryhttp.Gate{Hold: -1} })
		l.at(50*ms, "/200")
		_, o, took := l.ask("/503,200")
		assert.Equal(t, 100*ms, took, "its backoff")
		assert.Zero(t, o.Held)
		assert.Equal(t, retryhttp.StopBudget, o.Stop)
		l.others.Wait()
	})
}

func TestInLastingTroubleMostRefusedRetriesAreNotInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil)
		var early, late, waited atomic.Int64
		for d := time.Duration(0); d < 30*time.Second; d += 70 * ms { // some fail in each backoff: none is alone
			time.Sleep(d - time.Since(l.start))
			l.others.Go(func() {
				_, _, took := l.ask("/503")
				switch {
				case d < 5*time.Second && took >= time.Second:
					early.Add(1)
				case d > 11*time.Second:
					late.Add(1)
					if took > 100*ms { // its backoff
						waited.Add(1)
					}
				}
			})
		}
		l.others.Wait()
		assert.GreaterOrEqual(t, early.Load(), int64(43), "at first all wait")
		assert.GreaterOrEqual(t, late.Load(), int64(270))
		assert.InDelta(t, 19.0/5, waited.Load(), 1, "later, one at a time, for 5 s each")
	})
}

// A host that asks its clients to stay away closes the line, too: before the retry is in line, and
// after it has got its token.
func TestRefusedRetryHeedsARetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		closes    string
		at        time.Duration
		successes []time.Duration
	}{
		"before the line": {"429 closes", 50 * ms, []time.Duration{20 * ms, 40 * ms}},
		"in the line":     {"429 closes", 200 * ms, []time.Duration{20 * ms, 250 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLining(t, nil)
				for _, d := range c.successes {
					l.at(d, "/200,"+d.String())
				}
				l.others.Go(func() {
					time.Sleep(c.at)
					once := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.MaxAttempts = 1 })
					_, err := l.rt.RoundTrip(l.request("/" + c.closes).WithContext(once))
					assert.NoError(t, err)
				})
				resp, o, took := l.ask("/503,200")
				assert.Equal(t, 200, resp.StatusCode)
				assert.Equal(t, 2, o.Attempts)
				assert.GreaterOrEqual(t, took, c.at+2*time.Second)
				assert.LessOrEqual(t, took, c.at+3*time.Second, "and half of that, at random")
				l.others.Wait()
			})
		})
	}
}

func TestRefusedRetryIsCanceledInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil).lasting(5 * time.Second)
		l.at(50*ms, "/200")
		cause := io.ErrClosedPipe
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := l.rt.RoundTrip(l.request("/503,200").WithContext(ctx))
		var e *retryhttp.Error
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, cause)
		assert.ErrorContains(t, err, "503", "the last result")
		assert.Equal(t, retryhttp.StopCanceled, e.Stop)
		assert.Equal(t, time.Second, e.Elapsed)
		assert.Equal(t, 900*ms, e.Held)
		l.others.Wait()
	})
}

func TestRefusedRetryAfterAnErrorIsCanceledInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil).lasting(5 * time.Second)
		l.at(50*ms, "/200")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*ms, cancel)
		_, err := l.rt.RoundTrip(l.request("/reset,200").WithContext(ctx))
		assert.ErrorIs(t, err, syscall.ECONNRESET, "the last result")
		assert.Equal(t, retryhttp.StopCanceled, errorOf(t, err).Stop)
		l.others.Wait()
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
		}).lasting(5 * time.Second)
		l.at(50*ms, "/200,x")
		l.at(300*ms, "/200,y")
		_, err := l.rt.RoundTrip(l.request("/503,200").WithContext(ctx))
		assert.Equal(t, retryhttp.StopCanceled, errorOf(t, err).Stop)
		assert.Equal(t, 1, b.refunded)
		l.others.Wait()
	})
}

// The limit of the time in line holds for a request, not for each of its retries.
func TestRequestWhoseTimeInLineIsOverAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted, refused := false, 0
		start := time.Now()
		b := &asking{asked: func(*http.Request) bool {
			if granted {
				refused++
				return false
			}
			granted = time.Since(start) >= 6100*ms
			return granted
		}}
		l := newLining(t, func(p *retryhttp.Policy) {
			p.Budget = b
			p.Gate.Hold = time.Second
		}).lasting(5 * time.Second)
		l.at(50*ms, "/200")
		_, o, took := l.ask("/500,500,200")
		l.others.Wait()
		assert.Equal(t, retryhttp.StopBudget, o.Stop)
		assert.Equal(t, 2, o.Attempts)
		assert.Equal(t, 1100*ms+100*ms, took, "and the second backoff")
		assert.Equal(t, 1, refused, "after the grant at the end of the hold")
	})
}

func TestRefusedRetryWaitsForThreeQuartersOfTheTimeThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil).lasting(5 * time.Second)
		l.at(50*ms, "/200")
		ctx, cancel := context.WithTimeout(t.Context(), 2100*ms)
		defer cancel()
		resp, err := l.rt.RoundTrip(l.request("/503,200").WithContext(ctx))
		require.NoError(t, err)
		assert.Equal(t, retryhttp.StopBudget, retryhttp.OutcomeOf(resp).Stop)
		assert.InDelta(t, 1500*ms, retryhttp.OutcomeOf(resp).Held, float64(ms))
		l.others.Wait()
	})
}

func TestProbeOfALongLineNeedsNoToken(t *testing.T) {
	for waiting, sent := range map[int]int64{7: 0, 8: 1} {
		synctest.Test(t, func(t *testing.T) {
			l := newLining(t, nil).lasting(4900 * ms)
			for i := range waiting {
				l.at(time.Duration(i)*ms, "/503")
			}
			time.Sleep(355 * ms) // the newest failure's 250 ms are over at 257 ms
			synctest.Wait()
			assert.Equal(t, sent, l.sent.Load()-int64(waiting), "%d wait", waiting)
			l.others.Wait()
		})
	}
}

func TestRefusedRetryWhoseBodyCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &retryhttp.TokenBucket{Burst: 1}
		l := newLining(t, func(p *retryhttp.Policy) { p.Budget = budget })
		req := l.request("/503,200")
		require.True(t, withdraw(budget, req))
		req.Method, req.Body = http.MethodPut, io.NopCloser(strings.NewReader("x"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrClosedPipe }
		l.at(40*ms, "/200,a")
		l.at(240*ms, "/200,b")
		resp, err := l.rt.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
		assert.Equal(t, 240*ms, retryhttp.OutcomeOf(resp).Waited)
		assert.InDelta(t, 1, budget.Status(req).Tokens, 1e-9, "the token is given back")
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "sorry", string(text))
		l.others.Wait()
	})
}

func TestProbeWhoseBodyCannotBeOpenedIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil)
		var unopened atomic.Int64
		for range 8 {
			l.others.Go(func() {
				req := l.request("/503")
				req.Method, req.Body = http.MethodPut, io.NopCloser(strings.NewReader("x"))
				req.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrClosedPipe }
				resp, err := l.rt.RoundTrip(req)
				assert.NoError(t, err)
				if retryhttp.OutcomeOf(resp).Stop == retryhttp.StopBody {
					unopened.Add(1)
				}
			})
		}
		l.others.Wait()
		assert.NotZero(t, unopened.Load(), "probes")
	})
}

func TestRefusedRetryKnowsThatItsFirstAttemptMayHaveTakenEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil)
		l.at(40*ms, "/200,a")
		l.at(240*ms, "/200,b")
		req := l.request("/503,409")
		req.Method, req.Header = http.MethodPost, http.Header{"Idempotency-Key": {"k"}}
		resp, err := l.rt.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, 409, resp.StatusCode)
		assert.True(t, retryhttp.OutcomeOf(resp).Ambiguous)
		l.others.Wait()
	})
}

func TestRefusedRetryKnowsThatAnEarlierAttemptMayHaveTakenEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, first := time.Now(), true
		b := &asking{asked: func(*http.Request) bool {
			granted := first || time.Since(start) >= 240*ms
			first = false
			return granted
		}}
		l := newLining(t, func(p *retryhttp.Policy) { p.Budget = b })
		l.at(150*ms, "/200,x") // the retry is not alone
		l.at(250*ms, "/200,y")
		req := l.request("/reset,429,409")
		req.Method, req.Header = http.MethodPost, http.Header{"Idempotency-Key": {"k"}}
		resp, err := l.rt.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, 409, resp.StatusCode)
		assert.Equal(t, 3, retryhttp.OutcomeOf(resp).Attempts)
		assert.True(t, retryhttp.OutcomeOf(resp).Ambiguous)
		assert.NotZero(t, retryhttp.OutcomeOf(resp).Held)
		l.others.Wait()
	})
}

// An attempt may go on reading its body after its response. It must not read on beside the retry.
func TestRetryFromTheLineCutsThePreviousAttemptsReaderOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []io.ReadCloser
		l := newLining(t, nil)
		keeping := script.Step(func(req *http.Request) (*http.Response, error) {
			if req.Body != nil {
				bodies = append(bodies, req.Body)
			}
			return l.answer(req)
		})
		spent := &retryhttp.TokenBucket{Burst: 1}
		require.True(t, withdraw(spent, l.request("/")))
		l.rt = retryhttp.New(keeping, retryhttp.Policy{Gate: l.gate, Budget: spent, Backoff: retryhttp.Constant(100 * ms)})
		l.at(40*ms, "/200,a")
		l.at(240*ms, "/200,b")
		req := l.request("/503,200")
		req.Method, req.Body, req.ContentLength = http.MethodPut, io.NopCloser(strings.NewReader("body")), 4
		resp, err := l.rt.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		require.Len(t, bodies, 2)
		text, err := io.ReadAll(bodies[0])
		assert.Error(t, err)
		assert.Empty(t, text)
		for _, body := range bodies {
			assert.NoError(t, body.Close())
		}
		l.others.Wait()
	})
}

func TestBudgetThatPanicsWhenItIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) { p.Budget = &grudging{panics: true} })
		l.at(50*ms, "/200")
		l.at(150*ms, "/200")
		assert.PanicsWithValue(t, "asked again", func() { _, _ = l.rt.RoundTrip(l.request("/503,200")) })
		assert.Zero(t, retryhttp.InTrouble(l.gate, "host"))
		l.others.Wait()
	})
}

// finally grants nothing, and says of a retry in line that it never will.
type finally struct{ retryhttp.Unlimited }

func (finally) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	if r.Again {
		return math.Inf(1), false
	}
	return 0, false
}

func TestRefusedRetryThatIsNeverGrantedLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) { p.Budget = finally{} }).lasting(6 * time.Second)
		resp, out, took := l.ask("/503 closes,200")
		assert.Equal(t, 503, resp.StatusCode)
		assert.Equal(t, retryhttp.StopBudget, out.Stop)
		assert.Less(t, took, 4*time.Second, "2 of them are the server's wish")
	})
}

func TestKeepingAResponseEndsInTime(t *testing.T) {
	for name, inLine := range map[string]bool{"in line": true, "with a token": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				b := &asking{asked: func(*http.Request) bool { return !inLine || time.Since(start) > 10*ms }}
				l := newLining(t, func(p *retryhttp.Policy) {
					p.Budget, p.MaxElapsed, p.Backoff = b, 50*ms, retryhttp.Constant(10*ms)
				})
				l.body = func() io.ReadCloser {
					r, w := io.Pipe()
					go func() { time.Sleep(240 * ms); _ = w.Close() }()
					return r
				}
				_, o, _ := l.ask("/503,200")
				time.Sleep(time.Second)
				if o.Attempts > 1 {
					assert.LessOrEqual(t, o.Elapsed, 50*ms, "the last attempt's start")
				}
			})
		})
	}
}

func TestRequestIsCanceledWhileItsResponseIsKept(t *testing.T) {
	for name, heeds := range map[string]bool{"a body that ends with its context": true, "another body": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				l := newLining(t, nil)
				l.body = func() io.ReadCloser {
					r, w := io.Pipe()
					if heeds {
						context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
					} else {
						time.AfterFunc(time.Second, func() { _ = w.Close() })
					}
					return r
				}
				time.AfterFunc(50*ms, cancel)
				resp, err := l.rt.RoundTrip(l.request("/503,200").WithContext(ctx))
				assert.LessOrEqual(t, time.Since(l.start), 61*ms, "promptly")
				if err != nil {
					assert.Equal(t, retryhttp.StopCanceled, errorOf(t, err).Stop)
				} else {
					assert.Equal(t, retryhttp.StopCanceled, retryhttp.OutcomeOf(resp).Stop)
					_ = resp.Body.Close()
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}

func TestTimeOfKeepingAResponseIsWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil)
		l.body = func() io.ReadCloser {
			r, w := io.Pipe()
			time.AfterFunc(time.Second, func() { _ = w.Close() })
			return r
		}
		resp, o, took := l.ask("/503,200")
		assert.Equal(t, took, o.Waited)
		assert.NoError(t, resp.Body.Close())
		time.Sleep(time.Second)
	})
}

func TestBufferedResponseIsNotAwaitedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) { p.BufferBytes = 1 << 10 })
		l.body = func() io.ReadCloser {
			r, w := io.Pipe()
			time.AfterFunc(time.Second, func() { _ = w.Close() })
			return r
		}
		resp, _, took := l.ask("/503,200")
		assert.Equal(t, 250*ms+100*ms, took, "the time for a body, and the backoff")
		assert.NoError(t, resp.Body.Close())
		time.Sleep(2 * time.Second)
	})
}

func TestLongBufferedResponseIsNotKeptInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) { p.BufferBytes = 1 << 20 })
		l.body = func() io.ReadCloser { return io.NopCloser(strings.NewReader(strings.Repeat("x", 1<<20))) }
		l.at(50*ms, "/200")
		resp, _, took := l.ask("/503,200")
		assert.Equal(t, 100*ms, took, "its backoff: a mebibyte is not kept in line")
		assert.NoError(t, resp.Body.Close())
		l.others.Wait()
	})
}

func TestShortResponseOfAnyMediaTypeIsKept(t *testing.T) {
	for _, media := range []string{"text/plain", "text/event-stream", "application/x-ndjson", "application/grpc"} {
		t.Run(media, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spent := &retryhttp.TokenBucket{Burst: 1}
				require.True(t, withdraw(spent, requestTo("host")))
				var n atomic.Int64
				rt := retryhttp.New(script.Step(func(r *http.Request) (*http.Response, error) {
					resp := &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}}
					if r.URL.Path == "/fails" && n.Add(1) == 1 {
						resp.StatusCode, resp.ContentLength = 503, 5
						resp.Body = io.NopCloser(strings.NewReader("sorry"))
						resp.Header.Set("Content-Type", media)
					}
					return resp, nil
				}), retryhttp.Policy{Budget: spent, Backoff: retryhttp.Constant(100 * ms)})
				for _, d := range []time.Duration{40 * ms, 60 * ms} {
					time.AfterFunc(d, func() { _, _ = rt.RoundTrip(requestTo("host")) })
				}
				req := requestTo("host")
				req.URL.Path = "/fails"
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode)
				time.Sleep(time.Second)
			})
		})
	}
}

func TestKeptBodyThatPanicsIsClosedOnce(t *testing.T) {
	for name, read := range map[string]bool{"Read panics": true, "Close panics": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closes := 0
				l := newLining(t, nil)
				l.body = func() io.ReadCloser {
					text := strings.NewReader("sorry")
					return &bodies.Hooked{OnRead: func(p []byte) (int, error) {
						if read {
							panic("no")
						}
						return text.Read(p)
					}, OnClose: func() {
						closes++
						if !read {
							panic("no")
						}
					}}
				}
				l.at(40*ms, "/200,a")
				l.at(300*ms, "/200,b")
				assert.Panics(t, func() { _, _ = l.rt.RoundTrip(l.request("/503,200")) })
				l.others.Wait()
				assert.Equal(t, 1, closes)
			})
		})
	}
}
