package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/pause"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A table of races: what two attempts meet, and what comes of it. They leave nothing in the caller's context, which may
// live for as long as its process: the bubble would not end. FuzzHedge compares many more with a model.
func TestHedge(t *testing.T) {
	type testCase struct {
		laps     []lap
		at       time.Duration
		status   int
		hedgeWon bool
		sent     []time.Duration // nil: at 0, and a hedge at 50 ms
	}
	inBubbles(t, map[string]testCase{
		"the first attempt wins": {
			laps: []lap{{after: 55 * ms, code: 200}, {after: 10 * ms, code: 200}}, at: 55 * ms, status: 200,
		},
		"the hedge wins": {laps: []lap{{}, {after: 10 * ms, code: 404}}, at: 60 * ms, status: 404, hedgeWon: true},
		"a retry is hedged": {
			laps: []lap{{after: 10 * ms, code: 503}, {}, {after: 10 * ms, code: 200}},
			at:   1070 * ms, status: 200, hedgeWon: true, sent: []time.Duration{0, 1010 * ms, 1060 * ms},
		},
		"an attempt that ignores its context": {
			laps: []lap{{after: 2 * time.Second, code: 200, deaf: true}, {after: 10 * ms, code: 404}},
			at:   2 * time.Second, status: 404, hedgeWon: true,
		},
	}, func(t *testing.T, c testCase) {
		if c.sent == nil {
			c.sent = []time.Duration{0, 50 * ms}
		}
		r := newTrack(c.laps...)
		f := r.runOn(t, hedging(), get(t, newForeign(t)))
		assert.Equal(t, c.status, f.status)
		assert.Equal(t, c.at, f.at)
		assert.Equal(t, c.sent, r.times())
		assert.Equal(t, len(c.sent), f.out.Attempts)
		assert.Equal(t, 1, f.out.Hedges)
		assert.Equal(t, c.hedgeWon, f.out.HedgeWon)
		assert.Equal(t, retryhttp.StopFinal, f.out.Stop)
		r.requireClosed(t)
		for i, s := range r.attempts() {
			assert.Equal(t, i+1, s.number)
			assert.Equal(t, i > 0 && c.sent[i]-c.sent[i-1] == hedgeAfter, retryhttp.AttemptOf(s.req.Context()).Hedge)
		}
	})
}

// A base may know where to send the request.
func TestRequestWithoutAURLIsHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := get(t, t.Context())
		req.URL = nil
		assert.True(t, newTrack(lap{}, lap{after: ms, code: 200}).runOn(t, hedging(), req).out.HedgeWon)
	})
}

// A body that can be read once is sent as it is if there are no retries, and nothing can be sent beside it.
func TestBodyThatCanBeReadOnceIsNotHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.MaxAttempts = -1
		for range 2 {
			req := get(t, t.Context())
			req.Body = io.NopCloser(io.MultiReader(strings.NewReader("query")))
			f := newTrack(lap{after: 2 * hedgeAfter, code: 200}).runOn(t, p, req)
			assert.Equal(t, 200, f.resp.StatusCode)
			assert.Zero(t, f.out.Hedges)
			p.MaxAttempts = 1
		}
	})
}

// Some RoundTrippers change the request that they are given.
func TestHedgeHasAHeaderAndAURLOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := get(t, t.Context())
		req.Header.Set("X", "caller's")
		r := newTrack(lap{}, lap{after: ms, code: 200, do: func(req *http.Request) {
			assert.Equal(t, "caller's", req.Header.Get("X"))
			req.Header.Set("X", "hedge's")
			req.URL.Host = "elsewhere.example"
		}})
		f := r.runOn(t, hedging(), req)
		assert.True(t, f.out.HedgeWon)
		assert.Equal(t, http.Header{"X": {"caller's"}}, req.Header)
		assert.Equal(t, "host.example", req.URL.Host)
	})
}

// A GetBody that rewinds its only reader would take the body from the first attempt.
func TestHedgeOpensABodyOnlyAfterTheFirstWasClosed(t *testing.T) {
	inBubbles(t, map[string]bool{"closed": true, "still open": false}, func(t *testing.T, closed bool) {
		req, _ := rewinding(t, t.Context())
		opened, open := 0, req.GetBody
		req.GetBody = func() (io.ReadCloser, error) {
			opened++
			return open()
		}
		slow := lap{after: time.Second, code: 200}
		if closed {
			slow.do = func(req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				_ = req.Body.Close()
			}
		}
		p := hedging()
		f := newTrack(slow).runOn(t, p, req)
		assert.Equal(t, closed, f.out.Hedges == 1)
		assert.Equal(t, closed, opened == 1)
		if b := p.Budget.(*countingBudget); !closed {
			assert.Equal(t, 1, b.withdrawn)
			assert.Equal(t, 1, b.refunded)
			assert.Equal(t, 1, hedgesOf(t, p, 1, slow), "the allowance has what was given back")
		}
	})
}

// slowDeposit is a Budget that one success fills, and whose Deposit takes a moment.
type slowDeposit struct{ *retryhttp.TokenBucket }

func (b slowDeposit) Deposit(req *http.Request) {
	time.Sleep(time.Microsecond)
	b.TokenBucket.Deposit(req)
}

// The line asks for a token when a success is reported to the Gate. The Budget has it by then.
func TestSuccessOfAHedgedRequestIsDepositedBeforeTheLineAsks(t *testing.T) {
	for _, hedge := range []*retryhttp.Hedge{nil, {After: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			b := slowDeposit{&retryhttp.TokenBucket{Burst: 1, Ratio: 1}}
			require.True(t, withdraw(b, requestTo("host")))
			l := newLining(t, func(p *retryhttp.Policy) { p.Budget, p.Hedge = b, hedge })
			l.at(0, "/503,200,200")
			l.at(150*ms, "/200")
			time.Sleep(ms)
			_, o, _ := l.ask("/503,200")
			assert.Less(t, o.Waited, 151*ms)
			assert.Equal(t, 2, o.Attempts)
			l.others.Wait()
		})
	}
}

// Each reason for which no hedge is sent leaves the attempt alone. FuzzHedge has more of them.
func TestHedgeIsNotSent(t *testing.T) {
	inBubbles(t, map[string]func(*retryhttp.Policy, context.CancelFunc){
		"it is not idempotent": func(p *retryhttp.Policy, _ context.CancelFunc) {
			p.Idempotent = func(*http.Request) bool { return false }
		},
		"the caller has gone": func(_ *retryhttp.Policy, cancel context.CancelFunc) { time.AfterFunc(49*ms, cancel) },
	}, func(t *testing.T, change func(*retryhttp.Policy, context.CancelFunc)) {
		p := hedging()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		change(&p, cancel)
		f := newTrack(lap{after: time.Second, code: 200, deaf: true}).begin(t, p, get(t, ctx))
		require.NoError(t, f.err)
		assert.NoError(t, f.resp.Body.Close())
		assert.Equal(t, 200, f.status)
		assert.Equal(t, time.Second, f.at)
		assert.Equal(t, retryhttp.Outcome{Attempts: 1, Stop: retryhttp.StopFinal}, f.out)
		assert.Equal(t, p.Budget.(*countingBudget).withdrawn, p.Budget.(*countingBudget).refunded)
	})
}

// The context of a Transport above says that it is at its second attempt.
func TestHedgeIsNotSentBelowARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrack(lap{after: 10 * ms, err: retryhttp.Permanent(errBroken)}, lap{after: time.Second, code: 200})
		below := retryhttp.New(r, hedging())
		above := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			resp, err := below.RoundTrip(req)
			if err != nil {
				return nil, errBroken // hides what is below
			}
			return resp, nil
		}), noWait)
		resp, err := above.RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, []time.Duration{0, 10 * ms}, r.times())
	})
}

// The allowance has one hedge at the start, and each answer earns a Share of another.
func TestHedgesAreAShareOfTheAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Hedge.Share = 0.25
		hedges := hedgesOf(t, p, 101, lap{after: 60 * ms, code: 200})
		assert.Equal(t, 1+100/4, hedges)
		assert.Equal(t, hedges, p.Budget.(*countingBudget).withdrawn)
		assert.Equal(t, hedges, p.Budget.(*countingBudget).refunded)
	})
}

func TestAtMostTenHedgesAreSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Hedge.Share = 1
		hedgesOf(t, p, 100, lap{after: ms, code: 200})
		assert.Equal(t, 10, hedgesOf(t, p, 20, lap{after: 60 * ms, err: retryhttp.Permanent(errBroken)}))
	})
}

// hedgesOf makes requests, one after the other, of which each attempt meets the same, and returns how many were hedged.
func hedgesOf(t *testing.T, p retryhttp.Policy, requests int, l lap) (hedges int) {
	t.Helper()
	for range requests {
		hedges += newTrack(l).runOn(t, p, get(t, t.Context())).out.Hedges
	}
	return hedges
}

func TestHedgeIsSentAtTheQuantile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Hedge = &retryhttp.Hedge{Share: 0.1, Window: time.Minute}
		req := get(t, t.Context())
		for i := range 50 {
			_, ok := p.Hedge.Delay(req)
			require.False(t, ok, "after %d answers", i)
			f := newTrack(lap{after: time.Duration(i+1) * 2 * ms, code: 200}).runOn(t, p, req)
			require.Equal(t, 1, f.out.Attempts)
		}
		delay, ok := p.Hedge.Delay(req)
		require.True(t, ok)
		assert.InDelta(t, float64(90*ms), float64(delay), float64(90*ms)/8, "the 90th of 100")

		r := newTrack(lap{after: time.Second, code: 200}, lap{after: 10 * ms, code: 200})
		f := r.runOn(t, p, req)
		assert.Equal(t, []time.Duration{0, delay}, r.times())
		assert.True(t, f.out.HedgeWon)

		time.Sleep(40 * time.Second)
		_, ok = p.Hedge.Delay(req)
		assert.True(t, ok)
		time.Sleep(20 * time.Second) // the answers are no longer recent
		_, ok = p.Hedge.Delay(req)
		assert.False(t, ok)
		f = newTrack(lap{after: time.Second, code: 200}).runOn(t, p, req)
		assert.Equal(t, 1, f.out.Attempts)
	})
}

// Key is asked once for a request, and so a retry is hedged by the latencies of the same key.
func TestDelayIsOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		h := &retryhttp.Hedge{Share: 1, Key: func(req *http.Request) string { asked++; return req.URL.Path }}
		for range 5 {
			r := newTrack(lap{after: ms, code: 503}, lap{after: 20 * ms, code: 200})
			r.runOn(t, retryhttp.Policy{Hedge: h}, getURL(t, "http://a/x"))
			assert.Len(t, r.attempts(), 2)
		}
		assert.Equal(t, 5, asked)
		_, ok := h.Delay(getURL(t, "http://b/x"))
		assert.True(t, ok)
		_, ok = h.Delay(getURL(t, "http://a/y"))
		assert.False(t, ok)
		post := getURL(t, "http://a/x")
		post.Method = http.MethodPost
		_, ok = h.Delay(post)
		assert.False(t, ok, "it would not be hedged")
		_, ok = (&retryhttp.Hedge{Share: math.NaN(), After: hedgeAfter}).Delay(get(t, t.Context()))
		assert.False(t, ok, "nothing is hedged")
		delay, ok := (&retryhttp.Hedge{After: hedgeAfter}).Delay(get(t, t.Context()))
		assert.True(t, ok, "whatever the answers are like")
		assert.Equal(t, hedgeAfter, delay)
	})
}

// Only answers, and attempts that were given up for being slow, say how quick a host is.
func TestLatenciesAreThoseOfAnswers(t *testing.T) {
	type testCase struct {
		lap    lap
		counts bool
	}
	inBubbles(t, map[string]testCase{
		"a success":         {lap{after: 100 * ms, code: 200}, true},
		"a 503":             {lap{after: 100 * ms, code: 503}, false},
		"an error":          {lap{after: 100 * ms, err: errBroken}, false},
		"a permanent error": {lap{after: 100 * ms, err: retryhttp.Permanent(errBroken)}, false},
		"it timed out":      {lap{}, true},
	}, func(t *testing.T, c testCase) {
		h := &retryhttp.Hedge{Share: 0.5}
		p := retryhttp.Policy{Hedge: h, MaxAttempts: 1, AttemptTimeout: 101 * ms}
		hedgesOf(t, p, 10, lap{after: 20 * ms, code: 200})
		hedgesOf(t, p, 30, c.lap)
		delay, ok := h.Delay(get(t, t.Context()))
		require.True(t, ok)
		assert.Equal(t, c.counts, delay > 50*ms, "%v", delay)
	})
}

// The time that a superseded attempt had had counts as its latency. Otherwise hedging would hide slow answers from
// itself. So does the time that a hedge had had when a retry took its place. If the caller has gone, the time says
// nothing about the host.
func TestLatencyOfASupersededAttemptCounts(t *testing.T) {
	failed := lap{after: 110 * ms, code: 503, body: http.NoBody}
	type testCase struct {
		laps    []lap
		timeout time.Duration
		counts  bool
	}
	inBubbles(t, map[string]testCase{
		"the first attempt":              {[]lap{{}, {after: 20 * ms, code: 200}}, time.Hour, true},
		"the hedge":                      {[]lap{failed, {}, {after: ms, code: 503}}, time.Hour, true},
		"the hedge of a caller who goes": {[]lap{failed, {}}, 600 * ms, false},
	}, func(t *testing.T, c testCase) {
		h := &retryhttp.Hedge{Share: 0.25, Min: 100 * ms}
		p := retryhttp.Policy{
			Hedge: h, Budget: retryhttp.Unlimited{}, MaxAttempts: 3, Backoff: retryhttp.Constant(time.Second),
		}
		alone := p
		alone.MaxAttempts = 1
		hedgesOf(t, p, 20, lap{after: 20 * ms, code: 200})
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			f := newTrack(c.laps...).runOn(t, p, get(t, ctx))
			cancel()
			require.Equal(t, 1, f.out.Hedges)
		}
		hedgesOf(t, alone, 5, lap{after: 150 * ms, code: 200})
		delay, ok := h.Delay(get(t, t.Context()))
		require.True(t, ok)
		assert.Equal(t, c.counts, delay > 105*ms, "%v; with the superseded ones, at least 10 of 35 are slow", delay)
	})
}

func TestHedgeIsNotSentWhileTheGateHasTheKeyDownOrClosed(t *testing.T) {
	type testCase struct {
		before lap
		times  int
		hedged bool
	}
	inBubbles(t, map[string]testCase{
		"failed once": {lap{code: 503, after: 20 * ms}, 1, true},
		"down":        {lap{code: 503, after: 20 * ms}, 8, false},
		"closed":      {lap{code: 429, after: ms, asks: 5 * time.Second}, 1, false},
	}, func(t *testing.T, c testCase) {
		p := hedging()
		p.Gate = new(retryhttp.Gate)
		hedgesOf(t, retryhttp.Policy{Gate: p.Gate, MaxAttempts: 1}, c.times, c.before)
		assert.Equal(t, c.hedged, hedgesOf(t, p, 1, lap{after: time.Second, code: 200}) == 1)
	})
}

// choosy is a Budget that chooses what it grants.
type choosy struct {
	countingBudget
	grants func(retryhttp.Retry) bool
}

func (b *choosy) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	if !b.grants(r) {
		return 0, false
	}
	return b.countingBudget.Withdraw(r)
}

func TestBudgetHearsWhatAFailedHedgeAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		p := hedging()
		p.Budget = &choosy{grants: func(r retryhttp.Retry) bool {
			asked = append(asked, r.Asked)
			return true
		}}
		hedge := lap{after: 5 * ms, code: 503, asks: 2 * time.Second}
		r := newTrack(lap{after: 60 * ms, code: 503}, hedge, lap{code: 200})
		f := r.through(t, r.nestedAt(0), p, get(t, t.Context()))
		f.read(t)
		assert.Equal(t, []time.Duration{0, 2 * time.Second}, asked, "for the hedge, and for the retry")
	})
}

// The retry has needed none, and the Transport above has none.
func TestOutcomeNamesAHedgeThatTheBudgetRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Budget = &choosy{grants: func(r retryhttp.Retry) bool { return r.Failed.Number > 0 }} // no hedge
		var done retryhttp.Outcome
		p.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) { done = o }
		for attempts, first := range map[int]lap{1: {after: 60 * ms, code: 200}, 2: failedAt60} {
			r := newTrack(first, lap{after: ms, code: 200})
			f := r.through(t, retryhttp.New(r, p), noWait, get(t, t.Context()))
			f.read(t)
			assert.Equal(t, attempts, f.out.Attempts)
			assert.True(t, f.out.HedgeRefused)
			assert.True(t, done.HedgeRefused)
		}
	})
}

// service answers with a status.
type service func(at time.Duration, luck float64) int

// failuresOf sends a thousand requests a second, and returns which of them fail. What each attempt that is not a hedge
// meets is the same in every run: its latency and its luck.
func failuresOf(t *testing.T, s service, hedge *retryhttp.Hedge) (failed [6000]bool, hedges int64) {
	t.Helper()
	type idKey struct{}
	synctest.Test(t, func(t *testing.T) {
		p := retryhttp.Policy{Hedge: hedge, MaxAttempts: 4, Backoff: retryhttp.Exponential(250*ms, time.Minute)}
		if hedge != nil {
			p.MaxAttempts++ // for the hedge
		}
		began := time.Now()
		var elders [len(failed)]atomic.Uint64 // attempts that are no hedges
		rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			id, draw := req.Context().Value(idKey{}).(int), uint64(1000)
			if !retryhttp.AttemptOf(req.Context()).Hedge {
				draw = elders[id].Add(1)
			}
			rng := rand.New(rand.NewPCG(uint64(id), draw))
			took := time.Duration(2+rng.ExpFloat64()*3) * ms
			if rng.IntN(10) == 0 {
				took += 30 * ms
			}
			return lap{after: took, code: s(time.Since(began), rng.Float64())}.run(req)
		}), p)
		var all sync.WaitGroup
		for id := range failed {
			all.Go(func() {
				resp, err := rt.RoundTrip(get(t, context.WithValue(t.Context(), idKey{}, id)))
				if assert.NoError(t, err) {
					_ = resp.Body.Close()
					failed[id] = resp.StatusCode != 200
					atomic.AddInt64(&hedges, int64(retryhttp.OutcomeOf(resp).Hedges))
				}
			})
			time.Sleep(ms)
		}
		all.Wait()
		time.Sleep(time.Second)
	})
	return failed, hedges
}

// Hedges leave the tokens to the retries.
func TestHedgesDoNotMakeRequestsFail(t *testing.T) {
	answer := map[bool]int{true: 200, false: 503}
	for name, c := range map[string]struct {
		service service
		hedge   *retryhttp.Hedge
	}{
		"a tenth is hedged, and nothing is answered for 200 ms": {func(at time.Duration, _ float64) int {
			return answer[at < 4*time.Second || at >= 4200*ms]
		}, &retryhttp.Hedge{Share: 0.10}},
		"7 attempts of 100 fail": {func(at time.Duration, luck float64) int {
			return answer[at <= 2*time.Second || luck >= 0.07]
		}, new(retryhttp.Hedge)},
	} {
		t.Run(name, func(t *testing.T) {
			without, _ := failuresOf(t, c.service, nil)
			with, hedges := failuresOf(t, c.service, c.hedge)
			require.Greater(t, hedges, int64(100))
			for id := range with {
				assert.False(t, with[id] && !without[id], "request %d fails only with a Hedge", id)
			}
		})
	}
}

// inBubbles runs a test for each case, in a bubble of its own.
func inBubbles[C any](t *testing.T, cases map[string]C, test func(*testing.T, C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, c) })
		})
	}
}

// lap is what an attempt meets.
type lap struct {
	after time.Duration
	code  int                 // 0: hangs until its context ends, or fails with err
	err   error               // in the place of a response
	proto int                 // ProtoMajor
	asks  time.Duration       // in a Retry-After
	deaf  bool                // it does not look at its context
	slow  time.Duration       // from its header to its body
	body  io.Reader           // nil: a short one
	do    func(*http.Request) // at its start

	closing func() // is called by the body's Close
}

// track is a base whose attempts meet one lap after the other, in the order in which they
// are sent. The last one is for all that follow.
type track struct {
	laps  []lap
	start time.Time

	mu   sync.Mutex
	sent []*sending
}

// sending is an attempt that a track saw.
type sending struct {
	number int // by AttemptOf
	at     time.Duration
	req    *http.Request
	body   *bodies.Hooked // of the response; nil: none
	over   time.Duration
}

func newTrack(laps ...lap) *track { return &track{laps: laps, start: time.Now()} }

func (r *track) RoundTrip(req *http.Request) (*http.Response, error) {
	s := &sending{number: retryhttp.AttemptOf(req.Context()).Number, at: time.Since(r.start), req: req}
	r.mu.Lock()
	l := r.laps[min(len(r.sent), len(r.laps)-1)]
	r.sent = append(r.sent, s)
	r.mu.Unlock()
	if l.do != nil {
		l.do(req)
	}
	if req.Body != nil {
		defer req.Body.Close()
	}
	resp, err := l.run(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	s.over = time.Since(r.start)
	if resp != nil {
		s.body = resp.Body.(*bodies.Hooked)
	}
	return resp, err
}

// run waits for the lap's time, and answers.
func (l lap) run(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if l.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if l.code == 0 && l.err == nil {
		<-ctx.Done()
	}
	if pause.For(ctx, l.after) != nil {
		return nil, ctx.Err()
	}
	if l.err != nil {
		return nil, l.err
	}
	resp := script.Response(req, l.code, "Attempt", strconv.Itoa(retryhttp.AttemptOf(ctx).Number))
	resp.ProtoMajor = l.proto
	if l.asks > 0 {
		resp.Header.Set("Retry-After-Ms", strconv.FormatInt(l.asks.Milliseconds(), 10))
	}
	body := l.body
	if body == nil {
		body = &lapBody{strings.NewReader("whole"), req.Context(), time.Now().Add(l.slow)}
	}
	resp.Body = &bodies.Hooked{OnRead: body.Read, OnClose: l.closing}
	return resp, nil
}

// lapBody comes at some time, whether it is read or not.
type lapBody struct {
	io.Reader
	ctx   context.Context
	comes time.Time
}

func (b *lapBody) Read(p []byte) (int, error) {
	if pause.For(b.ctx, time.Until(b.comes)) != nil {
		return 0, b.ctx.Err()
	}
	return b.Reader.Read(p)
}

func (r *track) attempts() []*sending {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[:len(r.sent):len(r.sent)]
}

// times returns when the attempts were sent.
func (r *track) times() (at []time.Duration) {
	for _, s := range r.attempts() {
		at = append(at, s.at)
	}
	return at
}

const hedgeAfter = 50 * time.Millisecond

// hedging hedges after 50 ms, and retries after a second.
func hedging() retryhttp.Policy {
	return retryhttp.Policy{
		Hedge:   &retryhttp.Hedge{After: hedgeAfter},
		Budget:  new(countingBudget),
		Backoff: retryhttp.Constant(time.Second),
	}
}

// finish is how a request ended for its caller.
type finish struct {
	at     time.Duration
	resp   *http.Response
	err    error
	out    retryhttp.Outcome
	body   string
	status int
}

// runOn makes a request through r, and reads the response.
func (r *track) runOn(t *testing.T, p retryhttp.Policy, req *http.Request) finish {
	t.Helper()
	f := r.begin(t, p, req)
	f.read(t)
	if f.out.Hedges > 0 {
		time.Sleep(time.Second) // which a hedge that has lost does not take
		synctest.Wait()
	}
	return f
}

// begin makes a request through r, and leaves the response's body to its caller.
func (r *track) begin(t *testing.T, p retryhttp.Policy, req *http.Request) finish {
	t.Helper()
	return r.through(t, r, p, req)
}

// through is begin with a base that r is a part of.
func (r *track) through(t *testing.T, base http.RoundTripper, p retryhttp.Policy, req *http.Request) finish {
	t.Helper()
	resp, err := retryhttp.New(base, p).RoundTrip(req)
	f := finish{at: time.Since(r.start), resp: resp, err: err, out: retryhttp.OutcomeOf(resp)}
	if e, ok := errors.AsType[*retryhttp.Error](err); ok {
		f.out = e.Outcome
	}
	if resp != nil {
		f.status = resp.StatusCode
	}
	return f
}

func (f *finish) read(t *testing.T) {
	t.Helper()
	if f.resp == nil {
		return
	}
	body, err := io.ReadAll(f.resp.Body)
	assert.NoError(t, err)
	f.body = string(body)
	assert.NoError(t, f.resp.Body.Close())
}

// foreign is a caller's context that package context does not know. Each context that is derived
// from it has a goroutine until one of the two ends, and a bubble does not end before. Its Err may
// be seen before its Done is closed, as with any context.
type foreign struct {
	context.Context
	done chan struct{}
	gone atomic.Bool
}

func newForeign(t *testing.T) *foreign {
	t.Helper()
	return &foreign{Context: t.Context(), done: make(chan struct{})}
}

func (f *foreign) Done() <-chan struct{} { return f.done }

func (f *foreign) Err() error {
	if f.gone.Load() {
		return context.Canceled
	}
	return nil
}

// requireClosed requires that every response body was closed once, and that the contexts of
// attempts side by side have ended.
func (r *track) requireClosed(t *testing.T) {
	t.Helper()
	attempts := r.attempts()
	for i, s := range attempts {
		beside := i > 0 && s.at-attempts[i-1].at == hedgeAfter || i+1 < len(attempts) && attempts[i+1].at-s.at == hedgeAfter
		if beside {
			require.Error(t, s.req.Context().Err(), "attempt %d", s.number)
		}
		if s.body != nil {
			require.EqualValues(t, 1, s.body.Closes.Load(), "attempt %d", s.number)
		}
	}
}
