package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func TestBucketThatCanEarnNothingHasNoLine(t *testing.T) {
	for _, b := range []*retryhttp.TokenBucket{{Ratio: -1, Burst: -1}, {Window: -1, Burst: -1}} {
		synctest.Test(t, func(t *testing.T) {
			l := newLining(t, func(p *retryhttp.Policy) { p.Budget = b })
			for at := 25 * ms; at < 6*time.Second; at += 50 * ms {
				l.at(at, "/200")
			}
			_, o, took := l.ask("/503,200")
			assert.Equal(t, retryhttp.StopBudget, o.Stop)
			assert.Equal(t, 100*ms, took, "the backoff")
			l.others.Wait()
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

func TestResponseThatIsLongerThanItsBufferIsKeptInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) { p.BufferBytes = 1 << 10 })
		l.body = func() io.ReadCloser { return io.NopCloser(strings.NewReader(strings.Repeat("x", 4<<10))) }
		l.at(50*ms, "/200")
		resp, _, _ := l.ask("/503,200")
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.NoError(t, resp.Body.Close())
		l.others.Wait()
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
