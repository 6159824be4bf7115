package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A caller may use its reader, or the memory of its body, again once its request's body is closed and the
// response has come: icholy/digest sends the request again then.
func TestHedgeThatHasLostLeavesTheCallersBodyAlone(t *testing.T) {
	inBubbles(t, map[string]int{"a reader": len(raceContent) - 1, "memory": 0}, func(t *testing.T, left int) {
		req, content := rewinding(t, t.Context())
		if left == 0 {
			req.GetBody = requestOf(t, "QUERY", strings.NewReader(raceContent)).GetBody
		}
		uploaded := func(req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
		}
		slowly := func(req *http.Request) {
			_, _ = req.Body.Read(make([]byte, 1))
			time.Sleep(100 * ms)
			_, err := io.Copy(io.Discard, req.Body)
			assert.Error(t, err)
		}
		r := newTrack(lap{after: 60 * ms, code: 200, proto: 1, do: uploaded}, lap{code: 200, do: slowly})
		f := r.runOn(t, hedging(), req)
		assert.Equal(t, 1, f.out.Hedges)
		assert.False(t, f.out.HedgeWon)
		assert.Equal(t, left, content.Len(), "left of the caller's reader")
	})
}

// rewinding makes a request whose GetBody returns the same reader each time.
func rewinding(t *testing.T, ctx context.Context) (*http.Request, *strings.Reader) {
	t.Helper()
	content := strings.NewReader(raceContent)
	req := get(t, ctx)
	req.Method, req.Body, req.ContentLength = "QUERY", io.NopCloser(content), content.Size()
	req.GetBody = func() (io.ReadCloser, error) {
		_, err := content.Seek(0, io.SeekStart)
		return io.NopCloser(content), err
	}
	return req, content
}

// A hedge that waits for a connection would take the first attempt's, and nobody would want
// its answer.
func TestHedgeThatHasLostBeforeItHadAConnectionIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served atomic.Int32
		network, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, _ *http.Request) {
			served.Add(1)
			time.Sleep(200 * ms)
			_, _ = io.WriteString(w, "whole") // else net/http gives the connection away before it returns
		}, false)
		defer stop()
		base.MaxConnsPerHost = 1
		p := hedging()
		p.Hedge.Share = 1
		rt := retryhttp.New(base, p)
		start := time.Now()
		for range 2 {
			resp, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 1, retryhttp.OutcomeOf(resp).Hedges)
		}
		assert.Equal(t, 400*ms, time.Since(start))
		time.Sleep(time.Second)
		assert.EqualValues(t, 2, served.Load())
		assert.Equal(t, 1, network.Dials())
	})
}

// A body that the hedge has open is closed when the first attempt has won. Its panic surfaces
// in the caller, which can recover it.
func TestPanicOfTheRequestBodysCloseDoesNotEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closesNow := func(req *http.Request) { _ = req.Body.Close() } // or there is no hedge
		leaves := func(req *http.Request) {
			body := req.Body
			_, _ = body.Read(make([]byte, 1))
			req.Body = nil // the base closes it late
			time.AfterFunc(time.Second, func() { _ = body.Close() })
		}
		req, content := rewinding(t, t.Context())
		req.GetBody = func() (io.ReadCloser, error) {
			return &bodies.Hooked{OnRead: content.Read, OnClose: func() { panic("closed") }}, nil
		}
		tr := newTrack(lap{after: 60 * ms, code: 200, proto: 1, do: closesNow},
			lap{after: time.Second, code: 200, deaf: true, do: leaves})
		assert.PanicsWithValue(t, "closed", func() { tr.runOn(t, hedging(), req) })
		assert.Len(t, tr.attempts(), 2)
		time.Sleep(2 * time.Second)
	})
}

// A key that is new again does not start with a hedge, or each of many keys would always have
// one.
func TestMoreKeysThanAHedgeKnowsKeepToTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, rounds = 4200, 2
		p := hedging()
		p.Budget = retryhttp.Unlimited{}
		rt := retryhttp.New(script.Step(lap{after: 60 * ms, code: 200, proto: 2}.run), p)
		hedges := 0
		for i := range keys * rounds {
			resp, err := rt.RoundTrip(getURL(t, fmt.Sprintf("http://host%d.example/", i%keys)))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			hedges += retryhttp.OutcomeOf(resp).Hedges
		}
		assert.LessOrEqual(t, hedges, keys+keys*rounds/20)
		time.Sleep(time.Second)
	})
}

// hookedLogger calls do for each record.
func hookedLogger(do func()) *slog.Logger { return slog.New(hookedHandler{slog.DiscardHandler, do}) }

type hookedHandler struct {
	slog.Handler
	do func()
}

func (hookedHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h hookedHandler) Handle(context.Context, slog.Record) error {
	h.do()
	return nil
}

// A Budget and a Logger may take long. A hedge that is not sent is not named, and is reported only if the first
// attempt answers in the Logger. The caller may change its request meanwhile, which the race detector sees.
func TestHedgeIsNotSentAfterTheFirstAttemptHasAnswered(t *testing.T) {
	type testCase struct {
		budget   *slowBudget
		logs     time.Duration // how long the Logger takes
		hedges   int
		reported int
		refund   int
	}
	inBubbles(t, map[string]testCase{
		"it is under way":           {&slowBudget{}, 0, 1, 1, 1},
		"the Budget grants it late": {&slowBudget{takes: 20 * ms}, 0, 0, 0, 1},
		"the Budget refuses late":   {&slowBudget{takes: 20 * ms, refuses: true}, 0, 0, 0, 0},
		"the Logger takes long":     {&slowBudget{}, 100 * ms, 0, 1, 1},
	}, func(t *testing.T, c testCase) {
		var reported atomic.Int32
		p := hedging()
		p.Budget, p.Logger = c.budget, hookedLogger(func() {
			reported.Add(1)
			time.Sleep(c.logs)
		})
		req := get(t, t.Context())
		req.Header.Set("X", "1")
		r := newTrack(lap{after: 60 * ms, code: 200, proto: 1}, lap{after: 50 * ms, code: 200, deaf: true})
		f := r.begin(t, p, req)
		f.read(t)
		req.URL.Host = "other.example"
		req.Header.Set("X", "2")
		time.Sleep(time.Minute)
		assert.Equal(t, 60*ms, f.at)
		assert.Equal(t, c.hedges, f.out.Hedges)
		assert.False(t, f.out.HedgeRefused)
		assert.Len(t, r.attempts(), 1+c.hedges)
		assert.Equal(t, 1+c.hedges, f.out.Attempts)
		assert.EqualValues(t, c.refund, c.budget.refunded.Load())
		assert.EqualValues(t, c.reported, reported.Load())
	})
}

// slowBudget takes its time, which a Budget should not.
type slowBudget struct {
	takes    time.Duration
	refuses  bool
	refunded atomic.Int64
}

func (b *slowBudget) Withdraw(retryhttp.Retry) (cost float64, ok bool) {
	time.Sleep(b.takes)
	return 1, !b.refuses
}

func (b *slowBudget) Refund(req *http.Request, _ float64) {
	_ = req.URL.Host + req.Header.Get("X")
	b.refunded.Add(1)
}

func (*slowBudget) Deposit(*http.Request) {}

// A hedge that has lost reads no more of its response than its connection is worth.
func TestHedgeThatHasLostReadsOnlyAShortBody(t *testing.T) {
	type testCase struct {
		body        counting
		header      time.Duration // after which it comes; the first attempt wins after 10 ms
		buffer      int64
		least, most int
	}
	inBubbles(t, map[string]testCase{
		"a long body is being buffered":  {counting{left: 1 << 20, each: 1, pause: ms}, 5 * ms, 1 << 20, 1, 6},
		"a long body comes afterwards":   {counting{left: 1 << 20, each: 16 << 10}, 20 * ms, 1 << 20, 1, 64 << 10},
		"a short body is being buffered": {counting{left: 20, each: 1, pause: ms}, 5 * ms, 1 << 10, 20, 20},
	}, func(t *testing.T, c testCase) {
		p := hedging()
		p.BufferBytes = c.buffer
		started := func(req *http.Request) { c.body.ctx = req.Context() }
		r := newTrack(lap{after: 60 * ms, code: 200, proto: 1},
			lap{after: c.header, code: 200, body: &c.body, do: started})
		f := r.runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 60*ms, f.at)
		require.False(t, f.out.HedgeWon)
		assert.GreaterOrEqual(t, c.body.read, c.least)
		assert.LessOrEqual(t, c.body.read, c.most)
		r.requireClosed(t)
	})
}

// counting is a body that counts what is read of it. Its context ends it.
type counting struct {
	ctx        context.Context
	left, each int
	pause      time.Duration
	read       int
}

func (c *counting) Read(p []byte) (int, error) {
	time.Sleep(c.pause)
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), c.each, c.left)
	c.left -= n
	c.read += n
	return n, nil
}

// A trial is a request that is sent twice: once without a Hedge, and once with a Hedge. The first
// attempt and each retry end in the same way in both runs, whatever the hedge meets. How they end depends
// on how many attempts that are not hedges came before, and on nothing else.
//
// The claim is that a request that has a Final response without a Hedge has a Final response with
// the Hedge, and no later. There are three conditions. MaxAttempts is one more with the Hedge, which
// counts for it. The Budget has a token more, which pays for the hedge. And the hedge's response has
// no Retry-After, which the retries would obey.
type trial struct {
	request  int // an index of trialRequests
	policy   retryhttp.Policy
	deadline time.Duration
	tokens   int
	after    time.Duration // of the Hedge
	elders   [6]leg        // the first attempt and the retries: one more if no hedge is sent
	hedge    leg
}

var trialRequests = []func(*testing.T, context.Context) *http.Request{
	get, get,
	raceKind{method: "QUERY", body: inMemoryBody}.request,
	raceKind{method: "QUERY", body: fileBody}.request,
	func(t *testing.T, ctx context.Context) *http.Request {
		req, _ := rewinding(t, ctx)
		return req
	},
}

// trialOf makes a trial of random data.
func trialOf(data []byte) trial {
	r := &raceChoices{data: data}
	leg := func() leg {
		ending := []ending{succeeds, missing, unavailable, breaks, permanent, distrusted, hangs, deaf}[r.next()%8]
		l := legOf(ending, r.duration(3*ms))
		if ending == hangs {
			l.after, l.code = time.Hour, 200 // there may be no AttemptTimeout
		}
		l.asks, l.slow = r.maybe(4, 8*ms).Truncate(ms), r.maybe(2, 2*ms)
		return l
	}
	c := trial{
		request: int(r.next()) % len(trialRequests),
		policy: retryhttp.Policy{
			MaxAttempts: 1 + int(r.next()+3)%5, AttemptTimeout: r.maybe(3, 6*ms), MaxElapsed: r.maybe(6, 20*ms),
			Backoff: func(n int, _ time.Duration) time.Duration { return raceBackoff(n) },
		},
		deadline: r.maybe(4, 30*ms),
		tokens:   int(r.next() % 5),
		after:    r.duration(ms),
	}
	for i := range c.elders {
		c.elders[i] = leg()
	}
	c.hedge = leg()
	c.hedge.asks = 0
	return c
}

// run sends the request, with a Hedge or without.
func (c *trial) run(t *testing.T, hedge *retryhttp.Hedge) (f finish) {
	synctest.Test(t, func(t *testing.T) {
		budget, tokens, p := new(grantingBudget), c.tokens, c.policy
		p.Budget, p.Gate, p.Hedge = budget, &retryhttp.Gate{Hold: -1}, hedge
		if hedge != nil {
			tokens++
			p.MaxAttempts++
		}
		budget.grant(tokens)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if c.deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.deadline)
			defer cancel()
		}
		var elders atomic.Int64
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			meets := c.hedge
			if !retryhttp.AttemptOf(req.Context()).Hedge {
				meets = c.elders[elders.Add(1)-1]
			}
			readRaceContent(t, req)
			return meets.run(req)
		})
		f = newTrack().through(t, base, p, trialRequests[c.request](t, ctx))
		if f.resp != nil {
			_, _ = io.Copy(io.Discard, f.resp.Body)
			_ = f.resp.Body.Close()
		}
		time.Sleep(time.Minute)
		budget.mu.Lock()
		defer budget.mu.Unlock()
		assert.LessOrEqual(t, budget.refunded, budget.withdrawn)
	})
	return f
}

// Hedging helps, or it does nothing.
func FuzzHedgingFailsNoRequestThatWouldSucceed(f *testing.F) {
	addRandom(f, 5000, 30, 70)
	f.Fuzz(func(t *testing.T, data []byte) {
		c := trialOf(data)
		without := c.run(t, nil)
		with := c.run(t, &retryhttp.Hedge{After: c.after, Share: 1})
		if without.final() {
			about := fmt.Sprintf("%+v:\n%+v after %v without a Hedge,\n%+v after %v with one, %v",
				c, without.out, without.at, with.out, with.at, with.err)
			require.True(t, with.final(), about)
			require.LessOrEqual(t, with.at, without.at, about)
		}
	})
}

func (f finish) final() bool { return f.status == 200 || f.status == 404 }
