package retryhttp_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// panickingLap does something in the place of an answer.
func panickingLap(after time.Duration, do func()) lap {
	return lap{do: func(*http.Request) {
		time.Sleep(after)
		do()
	}}
}

// A panic of other people's code in the hedge's goroutine would end the process.
func TestPanicOfAHedgeSurfacesInTheCaller(t *testing.T) {
	boom := func() { panic("boom") }
	for name, c := range map[string]struct {
		laps   []lap
		change func(*retryhttp.Policy)
		sent   int
	}{
		"of the base": {[]lap{{}, panickingLap(10*ms, boom)}, nil, 2},
		"of the base, when the first has failed": {
			[]lap{{after: 55 * ms, code: 503}, panickingLap(10*ms, boom)}, nil, 2,
		},
		"of Classify": {[]lap{{}, {after: 10 * ms, code: 200}}, func(p *retryhttp.Policy) {
			p.Classify = func(retryhttp.Attempt) retryhttp.Class { panic("boom") }
		}, 2},
		"of the Budget": {[]lap{{}}, func(p *retryhttp.Policy) { p.Budget = panickingBudget{} }, 1},
		"of the Budget, once": {[]lap{{}, {after: ms, code: 200}}, func(p *retryhttp.Policy) {
			p.Budget = new(oncePanickingBudget)
		}, 1},
		"of a key": {[]lap{{}}, func(p *retryhttp.Policy) {
			p.Budget = &retryhttp.TokenBucket{Key: func(*http.Request) string { panic("boom") }}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				if c.change != nil {
					c.change(&p)
				}
				r := newTrack(c.laps...)
				assert.PanicsWithValue(t, "boom", func() { r.begin(t, p, get(t, t.Context())) })
				synctest.Wait()
				assert.Len(t, r.attempts(), c.sent)
				r.requireClosed(t)
				if b, ok := p.Budget.(*countingBudget); ok {
					assert.Equal(t, 1, b.withdrawn-b.refunded, "not the token of a retry that is not sent")
				}
			})
		})
	}
}

// The Gate counts attempts that are under way while a host may be down.
func TestPanicOfAHedgeLeavesNothingUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Gate = new(retryhttp.Gate)
		req := get(t, t.Context())
		newTrack(lap{code: 503, after: ms}).runOn(t, retryhttp.Policy{Gate: p.Gate, MaxAttempts: 1}, req)
		r := newTrack(lap{}, panickingLap(10*ms, func() { panic("boom") }))
		assert.Panics(t, func() { r.begin(t, p, req) })
		synctest.Wait()
		assert.Zero(t, retryhttp.InTrouble(p.Gate, req.URL.Host))
	})
}

// Nobody receives the panic of a hedge that has lost, or of an attempt that has been superseded.
func TestPanicOfALoserIsDropped(t *testing.T) {
	boom := func() { panic("boom") }
	for name, laps := range map[string][]lap{
		"the base of the hedge":       {{after: 60 * ms, code: 200}, panickingLap(100*ms, boom)},
		"a body of the hedge":         {{after: 60 * ms, code: 200}, {after: 100 * ms, code: 200, closing: boom}},
		"a body of a failed hedge":    {{after: 60 * ms, code: 200}, {after: 5 * ms, code: 503, closing: boom}},
		"a body of the first attempt": {{after: 60 * ms, code: 200, deaf: true, closing: boom}, {after: 5 * ms, code: 200}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTrack(laps...)
				f := r.runOn(t, hedging(), get(t, t.Context()))
				assert.Equal(t, 200, f.status)
				assert.Equal(t, 60*ms, f.at)
			})
		})
	}
}

// The call has given the token back by then.
func TestPanicOfALosersLoggerGivesNoTokenBackTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Logger = slog.New(panickingHandler{slog.DiscardHandler})
		f := newTrack(lap{after: 60 * ms, code: 200}).runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 200, f.status)
		b := p.Budget.(*countingBudget)
		assert.Equal(t, 1, b.withdrawn)
		assert.Equal(t, 1, b.refunded)
	})
}

// A hedge whose Logger panics is not sent, and costs neither a token nor a part of the allowance.
func TestPanicOfTheLoggerOfAHedgeCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Logger = slog.New(panickingHandler{})
		r := newTrack(lap{after: time.Second, code: 200})
		assert.PanicsWithValue(t, "boom", func() { r.runOn(t, p, get(t, t.Context())) })
		assert.Len(t, r.attempts(), 1)
		b := p.Budget.(*countingBudget)
		assert.Equal(t, 1, b.withdrawn)
		assert.Equal(t, 1, b.refunded)
		p.Logger = nil
		f := newTrack(lap{after: time.Second, code: 200}, lap{after: ms, code: 200}).runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 1, f.out.Hedges, "the first request may be hedged, and no other yet")
	})
}

func TestPanicOfTheFirstAttemptEndsTheHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrack(panickingLap(60*ms, func() { panic("boom") }), lap{after: time.Hour, code: 200})
		assert.PanicsWithValue(t, "boom", func() { r.begin(t, hedging(), get(t, t.Context())) })
		synctest.Wait()
		assert.Equal(t, 60*ms, r.attempts()[1].over)
	})
}

// A server may answer while it still reads the request.
func TestPanicOfClassifyEndsAnUploadBesideAHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Classify = func(retryhttp.Attempt) retryhttp.Class { panic("boom") }
		leaves := func(req *http.Request) {
			_, _ = req.Body.Read(make([]byte, 1))
			req.Body = nil // or the track would close it
		}
		r := newTrack(lap{after: 60 * ms, code: 200, do: leaves}, lap{})
		req := inMemoryRequest(t, make([]byte, 64<<10)).WithContext(t.Context())
		assert.PanicsWithValue(t, "boom", func() { r.begin(t, p, req) })
		synctest.Wait()
		assert.Len(t, r.attempts(), 2)
		r.requireClosed(t)
	})
}

// The hedge is about to be sent at that moment.
func TestHedgeIsNotSentAfterAPanicOfTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &slowBudget{takes: 20 * ms}
		p := hedging()
		p.Budget = budget
		r := newTrack(panickingLap(60*ms, func() { panic("boom") }), lap{after: ms, code: 200})
		assert.PanicsWithValue(t, "boom", func() { r.begin(t, p, get(t, t.Context())) })
		time.Sleep(time.Second)
		assert.Len(t, r.attempts(), 1)
		assert.EqualValues(t, 1, budget.refunded.Load())
	})
}

func TestPanicOfARefundForAHedgeThatIsNotSentSurfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Budget = panickingRefund{}
		req := get(t, t.Context())
		req.Method, req.Body = "QUERY", io.NopCloser(strings.NewReader("content"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, errBroken }
		r := newTrack(lap{do: func(req *http.Request) { req.Body.Close() }})
		assert.PanicsWithValue(t, "boom", func() { r.begin(t, p, req) })
		assert.Equal(t, hedgeAfter, time.Since(r.start))
		assert.Len(t, r.attempts(), 1)
	})
}

// A hedge that has lost may take a moment, and its caller reads the winner's body meanwhile.
func TestPanicOfALoserDoesNotEndTheWinnersBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &late{pause: 200 * ms, text: "first"}
		first := lap{after: 60 * ms, code: 200, body: body, do: func(req *http.Request) { body.attempt = req.Context() }}
		f := newTrack(first, panickingLap(100*ms, func() { panic("boom") })).runOn(t, hedging(), get(t, t.Context()))
		assert.Equal(t, 1, f.out.Hedges)
		assert.Equal(t, "first", f.body)
	})
}

// Nobody gets the hedge's response then.
func TestPanicOfOnDoneClosesTheHedgesResponse(t *testing.T) {
	for name, c := range map[string]struct {
		laps     []lap
		hedgeWon bool
	}{
		"which has won":                       {[]lap{{}, {after: 10 * ms, code: 200}}, true},
		"which is the second failure":         {[]lap{{after: 60 * ms, code: 503, asks: "3600"}, {after: 50 * ms, code: 503}}, false},
		"which ends the wait for a retry":     {[]lap{failedAt60, {after: 100 * ms, code: 503, asks: "3600"}}, false},
		"which has lost, while a retry fails": {[]lap{failedAt60, {}, {after: ms, code: 404}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				p.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) {
					assert.Equal(t, c.hedgeWon, o.HedgeWon)
					panic("boom")
				}
				r := newTrack(c.laps...)
				assert.PanicsWithValue(t, "boom", func() { r.begin(t, p, get(t, t.Context())) })
				time.Sleep(time.Second)
				r.requireClosed(t)
			})
		})
	}
}

// A test that fails in a base ends its goroutine. The caller's goroutine must not wait forever.
func TestGoexitOfAHedgeEndsTheCaller(t *testing.T) {
	for name, first := range map[string]lap{"is under way": {}, "has failed": {after: 55 * ms, code: 503}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTrack(first, panickingLap(10*ms, runtime.Goexit))
				returned, ended := false, make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = retryhttp.New(r, hedging()).RoundTrip(get(t, t.Context())) //nolint:bodyclose // there is none
					returned = true
				}()
				<-ended
				assert.False(t, returned)
				assert.Equal(t, 60*ms, time.Since(r.start))
			})
		})
	}
}

// panickingHandler panics after 100 ms.
type panickingHandler struct{ slog.Handler }

func (panickingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (panickingHandler) Handle(context.Context, slog.Record) error {
	time.Sleep(100 * ms)
	panic("boom")
}

type panickingBudget struct{ retryhttp.Unlimited }

func (panickingBudget) Withdraw(retryhttp.Retry) (cost float64, ok bool) { panic("boom") }

// oncePanickingBudget panics at its first Withdraw.
type oncePanickingBudget struct {
	retryhttp.Unlimited
	panicked atomic.Bool
}

func (b *oncePanickingBudget) Withdraw(retryhttp.Retry) (cost float64, ok bool) {
	if b.panicked.CompareAndSwap(false, true) {
		panic("boom")
	}
	return 1, true
}

type panickingRefund struct{ retryhttp.Unlimited }

func (panickingRefund) Refund(*http.Request, float64) { panic("boom") }
