package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/pause"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHedgeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		p := hedging()
		p.MaxAttempts = 2
		p.Hedge.Share = 1
		p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
		p.OnRetry = func(retryhttp.Attempt) { assert.Fail(t, "nothing failed") }
		for _, laps := range [][]lap{
			{{}, {after: 10 * ms, code: 200}},
			{{after: 60 * ms, code: 200}, {}},
			{{after: 60 * ms, code: 503}, {after: 5 * ms, err: errBroken}},
		} {
			newTrack(laps...).runOn(t, p, get(t, t.Context()))
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
		p.OnRetry = func(a retryhttp.Attempt) {
			body, err := io.ReadAll(a.Response.Body)
			assert.NoError(t, err)
			assert.Equal(t, "whole", string(body), "of the first attempt, though a hedge was awaited")
		}
		for first, judged := range map[time.Duration]time.Duration{55 * ms: 75 * ms, 65 * ms: 100 * ms} {
			r := newTrack(lap{after: first, code: 503}, lap{after: 10 * ms, code: 503}, lap{after: ms, code: 200})
			f := r.runOn(t, p, get(t, t.Context()))
			assert.Equal(t, judged+time.Second, r.times()[2])
			assert.Equal(t, 3, f.out.Attempts)
		}
	})
}

// failedAt60 is a first attempt that fails 10 ms after the hedge was sent.
var failedAt60 = lap{after: 60 * ms, code: 503}

// nestedAt is a base of which one attempt goes through a Transport that gives up.
func (r *track) nestedAt(number int) http.RoundTripper {
	below := retryhttp.New(r, retryhttp.Policy{MaxAttempts: 1})
	return script.Step(func(req *http.Request) (*http.Response, error) {
		if retryhttp.AttemptOf(req.Context()).Number == number {
			return below.RoundTrip(req)
		}
		return r.RoundTrip(req)
	})
}

// If a Transport below has given up on either attempt, the Transport above does not retry. But only the hedge may
// meet an error that is final.
func TestFailureOfAHedgeThatIsNestedIsNotRetried(t *testing.T) {
	early, late, hedge := lap{after: 55 * ms, code: 503}, lap{after: 200 * ms, code: 503}, lap{after: 10 * ms, code: 503}
	type testCase struct {
		laps   []lap
		nested int
		stop   retryhttp.Stop
	}
	inBubbles(t, map[string]testCase{
		"the first attempt, which fails first": {[]lap{early, hedge}, 1, retryhttp.StopNested},
		"the first attempt, which fails last":  {[]lap{late, hedge}, 1, retryhttp.StopNested},
		"the hedge, which fails first":         {[]lap{late, hedge}, 2, retryhttp.StopNested},
		"the hedge, which fails last":          {[]lap{early, hedge}, 2, retryhttp.StopNested},
		"the hedge, which meets a final error": {
			[]lap{late, {after: 10 * ms, err: errBroken}, {after: ms, code: 200}}, 2, retryhttp.StopFinal,
		},
	}, func(t *testing.T, c testCase) {
		r := newTrack(c.laps...)
		p := hedging()
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			if a.Hedge && a.Err != nil {
				return retryhttp.Final
			}
			return retryhttp.Classify(a)
		}
		f := r.through(t, r.nestedAt(c.nested), p, get(t, t.Context()))
		f.read(t)
		assert.Equal(t, c.stop, f.out.Stop)
		assert.Equal(t, len(c.laps), f.out.Attempts)
		assert.False(t, f.out.HedgeWon)
		time.Sleep(time.Second)
	})
}

// Two nested Transports that both hedge have three attempts under way. The Outcome has the hedges of both.
func TestNestedTransportsThatHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := retryhttp.New(newTrack(lap{}, lap{after: ms, code: 200}), hedging())
		once := newTrack().through(t, inner, retryhttp.Policy{}, get(t, t.Context()))
		once.read(t)
		assert.Equal(t, 1, once.out.Hedges)
		assert.True(t, once.out.HedgeWon)

		r := newTrack(lap{}, lap{}, lap{after: 100 * ms, code: 200})
		below := hedging()
		below.Hedge.After = 20 * ms
		f := r.through(t, retryhttp.New(r, below), hedging(), get(t, t.Context()))
		f.read(t)
		assert.Equal(t, []time.Duration{0, 20 * ms, 50 * ms}, r.times())
		assert.True(t, f.out.HedgeWon)
		time.Sleep(time.Second)
		r.requireClosed(t)
	})
}

// The Gate counts attempts that are under way while a host may be down. A hedge whose response comes from a Transport
// that has given up wins here, and says nothing about the host.
func TestAttemptThatHasLostIsNoLongerUnderWay(t *testing.T) {
	type testCase struct {
		laps     []lap
		nested   int
		panics   bool
		failures int64
	}
	inBubbles(t, map[string]testCase{
		"the hedge":                          {[]lap{{after: 60 * ms, err: retryhttp.Permanent(errBroken)}, {}}, 0, false, 1},
		"the first attempt":                  {[]lap{{}, {after: 10 * ms, code: 200}}, 0, false, 0},
		"to a nested failure":                {[]lap{{}, {after: 10 * ms, code: 503}}, 2, false, 1},
		"to a nested failure, OnDone panics": {[]lap{{}, {after: 10 * ms, code: 503}}, 2, true, 1},
	}, func(t *testing.T, c testCase) {
		p := hedging()
		p.Gate = new(retryhttp.Gate)
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			if a.Hedge {
				return retryhttp.Final
			}
			return retryhttp.Classify(a)
		}
		p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
			assert.Equal(t, a.Hedge, o.HedgeWon)
			if c.panics {
				panic("boom")
			}
		}
		hedgesOf(t, retryhttp.Policy{Gate: p.Gate, MaxAttempts: 1}, 1, lap{after: ms, code: 503})
		r := newTrack(c.laps...)
		endOfCall(func() {
			f := r.through(t, r.nestedAt(c.nested), p, get(t, t.Context()))
			f.read(t)
		})
		time.Sleep(time.Second)
		r.requireClosed(t)
		assert.Equal(t, c.failures, retryhttp.FailuresInARow(p.Gate, "host.example"))
		assert.Zero(t, retryhttp.InTrouble(p.Gate, "host.example"))
	})
}

// endOfCall returns how a call ends that may panic, or end its goroutine.
func endOfCall(call func()) string {
	how, ended := "exits", make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if value := recover(); value != nil {
				how = fmt.Sprint("panics: ", value)
			}
		}()
		call()
		how = "returns"
	}()
	<-ended
	return how
}

// The response of a hedge is resumed like any other, and the resumption has the next attempt
// number.
// The context of a hedge is no child of the caller's. Over HTTP/2, a Read returns the error of that context.
func TestBodyOfAHedgeThatHasWonEndsWithTheCallersDeadline(t *testing.T) {
	for _, resume := range []bool{false, true} {
		overBoth(t, play(
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			},
		), func(t *testing.T, base http.RoundTripper, _ *server) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			p := hedging()
			p.Resume = resume
			resp := responseTo(t, base, p, get(t, ctx))
			require.True(t, retryhttp.OutcomeOf(resp).HedgeWon)
			_, err := io.ReadAll(resp.Body)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, resp.Body.Close())
		})
	}
}

func TestBodyOfAHedgeIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Resume = true
		base := script.New(lap{}.run, cutAfter(10), rest(10))
		f := newTrack().through(t, base, p, get(t, t.Context()))
		f.read(t)
		assert.Equal(t, object, f.body)
		assert.True(t, f.out.HedgeWon)
		require.Len(t, base.Requests(), 3)
		assert.Equal(t, 3, retryhttp.AttemptOf(base.Requests()[2].Context()).Number)
	})
}

// panickingLap does something in the place of an answer.
func panickingLap(after time.Duration, do func()) lap {
	return lap{do: func(*http.Request) {
		time.Sleep(after)
		do()
	}}
}

func boom() { panic("boom") }

// A panic of other people's code in the hedge's goroutine would end the process. A test that fails in a base ends its
// goroutine, and the caller's goroutine must not wait forever. A hedge that is not sent costs neither a token nor a
// part of the allowance.
func TestPanicOfAHedgeSurfacesInTheCaller(t *testing.T) {
	failed := lap{after: 55 * ms, code: 503}
	type testCase struct {
		laps   []lap
		change func(*retryhttp.Policy)
		sent   int
		end    string
	}
	inBubbles(t, map[string]testCase{
		"of the base": {[]lap{{}, panickingLap(10*ms, boom)}, nil, 2, "panics: boom"},
		"of the base, when the first has failed": {
			[]lap{failed, panickingLap(10*ms, boom)}, nil, 2, "panics: boom",
		},
		"of Classify": {[]lap{{}, {after: 10 * ms, code: 200}}, func(p *retryhttp.Policy) {
			p.Classify = func(retryhttp.Attempt) retryhttp.Class { panic("boom") }
		}, 2, "panics: boom"},
		"of the Budget, once": {[]lap{{}, {after: ms, code: 200}}, func(p *retryhttp.Policy) {
			var once sync.Once
			p.Budget = &retryhttp.TokenBucket{Key: func(*http.Request) string { once.Do(boom); return "" }}
		}, 1, "panics: boom"},
		"of the Logger": {[]lap{{}, {after: ms, code: 200}}, func(p *retryhttp.Policy) {
			p.Logger = hookedLogger(boom)
		}, 1, "panics: boom"},
		"exit":                            {[]lap{{}, panickingLap(10*ms, runtime.Goexit)}, nil, 2, "exits"},
		"exit, when the first has failed": {[]lap{failed, panickingLap(10*ms, runtime.Goexit)}, nil, 2, "exits"},
	}, func(t *testing.T, c testCase) {
		p := hedging()
		p.Gate = new(retryhttp.Gate)
		if c.change != nil {
			c.change(&p)
		}
		hedgesOf(t, retryhttp.Policy{Gate: p.Gate, MaxAttempts: 1}, 1, lap{after: ms, code: 503})
		r := newTrack(c.laps...)
		assert.Equal(t, c.end, endOfCall(func() { r.begin(t, p, get(t, t.Context())) }))
		assert.LessOrEqual(t, time.Since(r.start), 60*ms)
		synctest.Wait()
		assert.Len(t, r.attempts(), c.sent)
		r.requireClosed(t)
		assert.Zero(t, retryhttp.InTrouble(p.Gate, "host.example"))
		if b, ok := p.Budget.(*countingBudget); ok {
			assert.Equal(t, c.sent-1, b.withdrawn-b.refunded, "not the token of a retry that is not sent")
		}
		next := hedging()
		next.Hedge = p.Hedge
		assert.Equal(t, 2-c.sent, hedgesOf(t, next, 2, lap{after: time.Second, code: 200}), "what the allowance has")
	})
}

// Nobody receives the panic of a hedge that has lost, or of an attempt that has been superseded. The caller may read
// the winner's body meanwhile.
func TestPanicOfALoserIsDropped(t *testing.T) {
	type testCase struct {
		first, hedge lap
		hedgeWon     bool
	}
	inBubbles(t, map[string]testCase{
		"the base of the hedge":    {lap{after: 60 * ms}, panickingLap(100*ms, boom), false},
		"a body of the hedge":      {lap{after: 60 * ms}, lap{after: 100 * ms, code: 200, closing: boom}, false},
		"a body of a failed hedge": {lap{after: 60 * ms}, lap{after: 5 * ms, code: 503, closing: boom}, false},
		"a body of the first attempt": {
			lap{after: 60 * ms, deaf: true, closing: boom}, lap{after: 5 * ms, code: 200}, true,
		},
	}, func(t *testing.T, c testCase) {
		c.first.code, c.first.slow = 200, 200*ms
		f := newTrack(c.first, c.hedge).runOn(t, hedging(), get(t, t.Context()))
		assert.Equal(t, 60*ms, f.at)
		assert.Equal(t, c.hedgeWon, f.out.HedgeWon)
		assert.Equal(t, "whole", f.body)
	})
}

// Nothing stays in the caller's context, which may live for as long as its process.
func TestCallThatPanicsOrExitsEndsItsHedge(t *testing.T) {
	places := map[string]func(*retryhttp.Policy, *lap, func()){
		"the base": func(_ *retryhttp.Policy, first *lap, end func()) {
			first.do = func(*http.Request) { end() }
		},
		"Classify, beside an upload": func(p *retryhttp.Policy, first *lap, end func()) {
			first.do = func(req *http.Request) {
				_, _ = req.Body.Read(make([]byte, 1))
				req.Body = nil // or the track would close it
			}
			p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
				if !a.Hedge {
					end()
				}
				return retryhttp.Classify(a)
			}
		},
		"Backoff": func(p *retryhttp.Policy, _ *lap, end func()) {
			p.Backoff = func(int, time.Duration) time.Duration { end(); return 0 }
		},
	}
	for meanwhile, hedge := range map[string]lap{
		"hangs": {}, "wins": {after: 40 * ms, code: 200}, "fails": {after: 40 * ms, code: 503},
	} {
		for place, set := range places {
			for how, end := range map[string]func(){"panics: boom": boom, "exits": runtime.Goexit} {
				t.Run(place+" "+how+", the hedge "+meanwhile, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p, first := hedging(), failedAt60
						set(&p, &first, func() {
							time.Sleep(100 * ms)
							end()
						})
						r := newTrack(first, hedge)
						req := requestOf(t, "QUERY", bytes.NewReader(make([]byte, 64<<10))).WithContext(newForeign(t))
						assert.Equal(t, how, endOfCall(func() { r.begin(t, p, req) }))
						time.Sleep(time.Second)
						assert.Len(t, r.attempts(), 2)
						r.requireClosed(t)
						b := p.Budget.(*countingBudget)
						assert.Equal(t, 1, b.withdrawn-b.refunded, "the hedge's token, and not a retry's")
					})
				})
			}
		}
	}
}

// FuzzHedge cancels requests whose attempts end with their contexts.
func TestCancelDoesNotWaitForAHedgeThatDoesNotLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		r := newTrack(failedAt60, lap{after: time.Second, code: 200, deaf: true})
		f := r.begin(t, hedging(), get(t, ctx))
		assert.Equal(t, 100*ms, f.at)
		assert.Equal(t, retryhttp.StopCanceled, f.out.Stop)
		require.NoError(t, f.resp.Body.Close())
		time.Sleep(2 * time.Second)
		r.requireClosed(t)
	})
}

// A base may go on reading when its attempt is over, also while a failed response is cleared away. A hedge that is
// awaited may read on, too.
func TestBodyIsCutOffFromAnAttemptThatIsOver(t *testing.T) {
	type testCase struct {
		first, hedge lap
		backoffs     []time.Duration
		at           time.Duration
		winner       int // 0: a retry
	}
	inBubbles(t, map[string]testCase{
		"the hedge has lost":         {lap{after: 60 * ms, code: 200}, lap{}, nil, 60 * ms, 1},
		"the first attempt has lost": {lap{}, lap{after: 10 * ms, code: 200}, nil, 60 * ms, 2},
		"the hedge wins when the first has failed": {
			failedAt60, lap{after: 50 * ms, code: 200}, []time.Duration{time.Second}, 100 * ms, 2,
		},
		"the hedge has failed first": {
			failedAt60, lap{after: 5 * ms, code: 503, slow: time.Minute}, []time.Duration{0}, 61 * ms, 0,
		},
		"the hedge fails while it is awaited": {
			failedAt60, lap{after: 50 * ms, code: 503, slow: time.Minute}, []time.Duration{100 * ms}, 161 * ms, 0,
		},
		"the hedge hangs": {failedAt60, lap{}, []time.Duration{100 * ms}, 161 * ms, 0},
		"only the hedge's failure is retried": {
			lap{after: 60 * ms, code: 503, slow: time.Minute}, lap{after: 50 * ms, code: 503},
			[]time.Duration{time.Hour, 0}, 351 * ms, 0,
		},
	}, func(t *testing.T, c testCase) {
		var mu sync.Mutex
		var kept []io.Reader
		keep := func(req *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			kept = append(kept, req.Body)
			req.Body = nil // or the track would close it
		}
		check := func(*http.Request) {
			mu.Lock()
			defer mu.Unlock()
			assert.Len(t, kept, 2)
			for i, body := range kept {
				got, err := io.ReadAll(body)
				if i+1 == c.winner {
					assert.NoError(t, err)
					assert.Equal(t, "content", string(got))
				} else {
					assert.Error(t, err, "attempt %d", i+1)
				}
			}
		}
		c.first.do, c.hedge.do = keep, keep
		p := hedging()
		p.MaxElapsed = time.Minute
		p.Backoff = func(int, time.Duration) time.Duration {
			next := c.backoffs[0]
			c.backoffs = c.backoffs[1:]
			return next
		}
		req := get(t, t.Context())
		req.Method, req.Body = "QUERY", bodies.File(t, "content")
		f := newTrack(c.first, c.hedge, lap{after: ms, code: 200, do: check}).runOn(t, p, req)
		assert.Equal(t, 200, f.status)
		assert.Equal(t, c.at, f.at)
		if c.winner > 0 {
			check(req)
		}
		time.Sleep(time.Minute)
	})
}

// If the first attempt fails because the caller has gone, no attempt has won.
func TestCauseOfALoserIsErrSuperseded(t *testing.T) {
	type testCase struct {
		laps  []lap
		loser int
		gone  bool // the caller, at 60 ms
	}
	inBubbles(t, map[string]testCase{
		"the first attempt":         {[]lap{{}, {after: 10 * ms, code: 200}}, 0, false},
		"the hedge":                 {[]lap{{after: 60 * ms, code: 200, proto: 2}, {}}, 1, false},
		"the hedge, after a moment": {[]lap{{after: 60 * ms, code: 200, proto: 1}, {}}, 1, false},
		"the hedge, for a retry":    {[]lap{failedAt60, {}, {after: ms, code: 200}}, 1, false},
		"unless the caller has gone": {
			[]lap{{after: 61 * ms, err: retryhttp.Permanent(errBroken)}, {}}, 1, true,
		},
	}, func(t *testing.T, c testCase) {
		caller, r := newForeign(t), newTrack(c.laps...)
		time.AfterFunc(60*ms, func() { caller.gone.Store(c.gone) })
		f := r.runOn(t, hedging(), get(t, caller))
		assert.Equal(t, c.gone, f.out.Stop == retryhttp.StopCanceled)
		ctx, cancel := context.WithCancel(r.attempts()[c.loser].req.Context())
		defer cancel()
		assert.Equal(t, !c.gone, errors.Is(context.Cause(ctx), retryhttp.ErrSuperseded))
		assert.ErrorIs(t, context.Cause(ctx), context.Canceled)
		assert.Equal(t, context.Canceled, ctx.Err())
		assert.NotErrorIs(t, context.Canceled, retryhttp.ErrSuperseded)
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

// Over HTTP/1, an attempt that is ended costs its connection. A hedge that has lost is therefore answered if it has one.
func TestHedgeThatHasLostKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served atomic.Int32
		network, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, _ *http.Request) {
			served.Add(1)
			time.Sleep(200 * ms)
			_, _ = io.WriteString(w, "whole")
		}, false)
		defer stop()
		p := hedging()
		p.Hedge.Share = 1
		rt := retryhttp.New(base, p)
		for range 2 {
			resp, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 1, retryhttp.OutcomeOf(resp).Hedges)
			time.Sleep(time.Second)
		}
		assert.EqualValues(t, 4, served.Load())
		assert.Equal(t, 2, network.Dials())
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
		asked    time.Duration // how long the Budget takes
		refuses  bool
		logs     time.Duration // how long the Logger takes
		hedges   int
		reported int
		refund   int
	}
	inBubbles(t, map[string]testCase{
		"it is under way":           {0, false, 0, 1, 1, 1},
		"the Budget grants it late": {20 * ms, false, 0, 0, 0, 1},
		"the Budget refuses late":   {20 * ms, true, 0, 0, 0, 0},
		"the Logger takes long":     {0, false, 100 * ms, 0, 1, 1},
	}, func(t *testing.T, c testCase) {
		var reported atomic.Int32
		budget := &choosy{grants: func(r retryhttp.Retry) bool {
			time.Sleep(c.asked)
			assert.Equal(t, "host.example 1", r.Request.URL.Host+" "+r.Request.Header.Get("X"))
			return !c.refuses
		}}
		p := hedging()
		p.Budget, p.Logger = budget, hookedLogger(func() {
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
		synctest.Wait()
		assert.Equal(t, 60*ms, f.at)
		assert.Equal(t, c.hedges, f.out.Hedges)
		assert.False(t, f.out.HedgeRefused)
		assert.Len(t, r.attempts(), 1+c.hedges)
		assert.Equal(t, 1+c.hedges, f.out.Attempts)
		assert.Equal(t, c.refund, budget.refunded)
		assert.EqualValues(t, c.reported, reported.Load())
	})
}

// A hedge that has lost reads no more of its response than its connection is worth.
func TestHedgeThatHasLostReadsOnlyAShortBody(t *testing.T) {
	type testCase struct {
		length      int
		each        int           // Read brings as much
		takes       time.Duration // of a Read
		header      time.Duration // after which it comes; the first attempt wins after 10 ms
		buffer      int64
		least, most int
	}
	inBubbles(t, map[string]testCase{
		"a long body is being buffered":  {1 << 20, 1, ms, 5 * ms, 1 << 20, 1, 6},
		"a long body comes afterwards":   {1 << 20, 16 << 10, 0, 20 * ms, 1 << 20, 1, 64 << 10},
		"a short body is being buffered": {20, 1, ms, 5 * ms, 1 << 10, 20, 20},
	}, func(t *testing.T, c testCase) {
		p := hedging()
		p.BufferBytes = c.buffer
		read, body := 0, new(bodies.Hooked)
		started := func(req *http.Request) {
			body.OnRead = func(p []byte) (int, error) {
				if err := pause.For(req.Context(), c.takes); err != nil {
					return 0, err
				}
				n := min(len(p), c.each, c.length-read)
				if read += n; n == 0 {
					return 0, io.EOF
				}
				return n, nil
			}
		}
		r := newTrack(lap{after: 60 * ms, code: 200, proto: 1},
			lap{after: c.header, code: 200, body: body, do: started})
		f := r.runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 60*ms, f.at)
		require.False(t, f.out.HedgeWon)
		assert.GreaterOrEqual(t, read, c.least)
		assert.LessOrEqual(t, read, c.most)
		r.requireClosed(t)
	})
}
