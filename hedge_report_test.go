package retryhttp_test

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestHedgeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		var done []retryhttp.Attempt
		var outcomes []retryhttp.Outcome
		p := hedging()
		p.MaxAttempts = 2
		p.Hedge.Share = 1
		p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
		p.OnRetry = func(retryhttp.Attempt) { assert.Fail(t, "nothing failed") }
		p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
			done, outcomes = append(done, a), append(outcomes, o)
		}
		for _, c := range []struct {
			laps   []lap
			number int
		}{
			{[]lap{{}, {after: 10 * ms, code: 200}}, 2},
			{[]lap{{after: 60 * ms, code: 200}, {}}, 1},
			{[]lap{{after: 60 * ms, code: 503}, {after: 5 * ms, err: errBroken}}, 1},
		} {
			r := newTrack(c.laps...)
			f := r.runOn(t, p, get(t, t.Context()))
			a := done[len(done)-1]
			assert.Equal(t, c.number, a.Number)
			assert.Equal(t, c.number == 2, a.Hedge)
			assert.Same(t, f.resp, a.Response)
			sent := r.attempts()[c.number-1]
			assert.Equal(t, sent.over-sent.at, a.Elapsed)
			assert.Equal(t, f.out, outcomes[len(outcomes)-1])
			assert.Equal(t, retryhttp.OutcomeOf(f.resp), f.out)
			assert.Equal(t, 1, f.out.Hedges)
			assert.Zero(t, f.out.Waited)
		}
		const hedging = `level=INFO msg="hedging request" method=GET url=http://host.example/path attempt=2 elapsed=50ms` + "\n"
		assert.Equal(t, hedging+hedging+hedging+
			`level=WARN msg="gave up on request" method=GET url=http://host.example/path status=503 attempts=2 elapsed=60ms `+
			`waited=0s held=0s hedges=1 stop=attempts ambiguous=false`+"\n", logged.String())
	})
}

// The two results are judged one after the other, whichever comes first.
func TestClassifyIsNeverCalledForBothAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var judging atomic.Int32
		p := hedging()
		p.Hedge.Share = 1
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			assert.EqualValues(t, 1, judging.Add(1))
			time.Sleep(20 * ms)
			judging.Add(-1)
			return retryhttp.Classify(a)
		}
		for first, judged := range map[time.Duration]time.Duration{55 * ms: 75 * ms, 65 * ms: 100 * ms} {
			r := newTrack(lap{after: first, code: 503}, lap{after: 10 * ms, code: 503}, lap{after: ms, code: 200})
			f := r.runOn(t, p, get(t, t.Context()))
			assert.Equal(t, judged+time.Second, r.times()[2])
			assert.Equal(t, 3, f.out.Attempts)
		}
	})
}

// If a Transport below has given up on either attempt, the Transport above does not retry.
func TestFailureOfAHedgeThatIsNestedIsNotRetried(t *testing.T) {
	for name, nested := range map[string]int{"the first attempt": 1, "the hedge": 2} {
		for _, later := range []int{1, 2} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					after := map[int]time.Duration{1: 200 * ms, 2: 10 * ms}
					if later == 2 {
						after[1] = 55 * ms
					}
					r := newTrack(lap{after: after[1], code: 503}, lap{after: after[2], code: 503})
					below := retryhttp.New(r, retryhttp.Policy{MaxAttempts: 1})
					p := hedging()
					f := r.through(t, script.Step(func(req *http.Request) (*http.Response, error) {
						if retryhttp.AttemptOf(req.Context()).Number == nested {
							return below.RoundTrip(req)
						}
						return r.RoundTrip(req)
					}), p, get(t, t.Context()))
					require.NotNil(t, f.resp)
					f.resp.Body.Close()
					assert.Equal(t, retryhttp.StopNested, f.out.Stop)
					assert.Equal(t, 2, f.out.Attempts)
					assert.False(t, f.out.HedgeWon)
					time.Sleep(time.Second)
				})
			})
		}
	}
}

// Only the hedge may meet such an error.
func TestFinalErrorOfAHedgeThatIsNestedDoesNotEndTheRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrack(lap{after: 200 * ms, code: 503}, lap{after: 10 * ms, err: errBroken}, lap{after: ms, code: 200})
		below := retryhttp.New(r, retryhttp.Policy{MaxAttempts: 1})
		p := hedging()
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			if a.Hedge {
				return retryhttp.Final
			}
			return retryhttp.Classify(a)
		}
		f := r.through(t, script.Step(func(req *http.Request) (*http.Response, error) {
			if retryhttp.AttemptOf(req.Context()).Hedge {
				return below.RoundTrip(req)
			}
			return r.RoundTrip(req)
		}), p, get(t, t.Context()))
		assert.Equal(t, 200, f.status)
		assert.Equal(t, 3, f.out.Attempts)
		f.read(t)
		time.Sleep(time.Second)
	})
}

// Two nested Transports that both hedge have three attempts under way.
func TestNestedTransportsThatHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrack(lap{}, lap{}, lap{after: 100 * ms, code: 200})
		below := hedging()
		below.Hedge.After = 20 * ms
		f := r.through(t, retryhttp.New(r, below), hedging(), get(t, t.Context()))
		require.NoError(t, f.err)
		f.resp.Body.Close()
		assert.Equal(t, []time.Duration{0, 20 * ms, 50 * ms}, r.times())
		assert.True(t, f.out.HedgeWon)
		time.Sleep(time.Second)
		r.requireClosed(t)
	})
}

// The Gate counts attempts that are under way while a host may be down.
func TestAttemptThatHasLostIsNoLongerUnderWay(t *testing.T) {
	for name, laps := range map[string][]lap{
		"the hedge":         {{after: 60 * ms, err: retryhttp.Permanent(errBroken)}, {}},
		"the first attempt": {{}, {after: 10 * ms, code: 200}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				p.Gate = new(retryhttp.Gate)
				req := get(t, t.Context())
				newTrack(lap{code: 503, after: ms}).runOn(t, retryhttp.Policy{Gate: p.Gate, MaxAttempts: 1}, req)
				f := newTrack(laps...).runOn(t, p, req)
				require.Equal(t, 1, f.out.Hedges)
				assert.Zero(t, retryhttp.InTrouble(p.Gate, req.URL.Host))
			})
		})
	}
}

// A hedge whose response comes from a Transport that has given up wins here, and says nothing about
// the host.
func TestAttemptThatHasLostToANestedFailureIsNoLongerUnderWay(t *testing.T) {
	for name, onDone := range map[string]func(){"OnDone returns": func() {}, "OnDone panics": func() { panic("boom") }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				p.Gate = new(retryhttp.Gate)
				p.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) {
					assert.True(t, o.HedgeWon)
					onDone()
				}
				p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
					assert.True(t, a.Hedge)
					return retryhttp.Final
				}
				req := get(t, t.Context())
				meet(t, p.Gate, 503)
				r := newTrack(lap{}, lap{after: 10 * ms, code: 503})
				below := retryhttp.New(r, retryhttp.Policy{MaxAttempts: 1})
				base := script.Step(func(req *http.Request) (*http.Response, error) {
					if retryhttp.AttemptOf(req.Context()).Hedge {
						return below.RoundTrip(req)
					}
					return r.RoundTrip(req)
				})
				func() {
					defer func() { _ = recover() }()
					r.through(t, base, p, req).resp.Body.Close()
				}()
				time.Sleep(time.Second)
				assert.EqualValues(t, 1, retryhttp.FailuresInARow(p.Gate, req.URL.Host))
				assert.Zero(t, retryhttp.InTrouble(p.Gate, req.URL.Host))
			})
		})
	}
}

// meet has the host of get answer requests, one after the other, each after 20 ms.
func meet(t *testing.T, gate *retryhttp.Gate, codes ...int) {
	t.Helper()
	for _, code := range codes {
		newTrack(lap{after: 20 * ms, code: code}).runOn(t, retryhttp.Policy{Gate: gate, MaxAttempts: 1}, get(t, t.Context()))
	}
}

// The response of a hedge is resumed like any other, and the resumption has the next attempt
// number.
func TestBodyOfAHedgeIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var numbers []int
		p := hedging()
		p.Resume = true
		f := newTrack().through(t, script.Step(func(req *http.Request) (*http.Response, error) {
			n := retryhttp.AttemptOf(req.Context()).Number
			mu.Lock()
			numbers = append(numbers, n)
			mu.Unlock()
			switch n {
			case 1:
				<-req.Context().Done()
				return nil, req.Context().Err()
			case 2:
				return cutAfter(10)(req)
			}
			return rest(10)(req)
		}), p, get(t, t.Context()))
		require.NoError(t, f.err)
		f.read(t)
		assert.Equal(t, object, f.body)
		assert.Equal(t, []int{1, 2, 3}, numbers)
		assert.True(t, f.out.HedgeWon)
	})
}

// The caller may change the request as soon as the response is closed. A hedge that has lost,
// or that is about to be sent, does not look at it then.
func TestRequestIsNotReadAfterItsResponseWasClosed(t *testing.T) {
	for name, c := range map[string]struct {
		budget time.Duration // how long Withdraw takes
		sent   int
	}{"a hedge that has lost": {0, 2}, "a hedge that is about to be sent": {20 * ms, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				p.Budget = &slowBudget{takes: c.budget}
				req := get(t, t.Context())
				req.Header.Set("X", "1")
				r := newTrack(lap{after: 60 * ms, code: 200, proto: 1}, lap{after: 50 * ms, code: 200, deaf: true})
				f := r.begin(t, p, req)
				require.NoError(t, f.err)
				f.read(t)
				req.URL.Host = "other.example"
				req.Header.Set("X", "2")
				time.Sleep(time.Second)
				require.Len(t, r.attempts(), c.sent)
			})
		})
	}
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
