package retryhttp_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
)

// failedAt60 is a first attempt that fails 10 ms after the hedge was sent.
var failedAt60 = lap{after: 60 * ms, code: 503}

// A retry is reported when the hedge has ended, because there is none if the hedge wins.
func TestRetryIsReportedAfterTheHedgeHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		laps   []lap
		at     time.Duration
		told   []time.Duration
		waited time.Duration
	}{
		"the hedge wins":  {[]lap{failedAt60, {after: 500 * ms, code: 200}}, 550 * ms, nil, 0},
		"the hedge hangs": {[]lap{failedAt60, {}, {after: ms, code: 200}}, 1061 * ms, []time.Duration{1060 * ms}, 0},
		"the hedge fails": {[]lap{failedAt60, {after: 500 * ms, err: errBroken}, {after: ms, code: 200}}, 1061 * ms, []time.Duration{550 * ms}, 510 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []time.Duration
				r := newTrack(c.laps...)
				p := hedging()
				p.OnRetry = func(a retryhttp.Attempt) {
					told = append(told, time.Since(r.start))
					assert.Equal(t, 1, a.Number)
					assert.Equal(t, c.waited, a.Wait)
					body, err := io.ReadAll(a.Response.Body)
					assert.NoError(t, err)
					assert.Equal(t, "whole", string(body))
				}
				f := r.runOn(t, p, get(t, t.Context()))
				assert.Equal(t, 200, f.status)
				assert.Equal(t, c.told, told)
				assert.Equal(t, c.at, f.at)
				assert.Equal(t, c.waited, f.out.Waited, "the time in which no attempt was under way")
				r.requireClosed(t)
			})
		})
	}
}

// A hook that panics or exits after the first attempt has failed ends the hedge. OnRetry is not
// called beside a hedge that wins.
func TestHookThatEndsTheCallBesideAHedgeEndsTheHedge(t *testing.T) {
	hooks := map[string]func(*retryhttp.Policy, func()){
		"OnRetry": func(p *retryhttp.Policy, end func()) { p.OnRetry = func(retryhttp.Attempt) { end() } },
		"Backoff": func(p *retryhttp.Policy, end func()) {
			p.Backoff = func(int, time.Duration) time.Duration { end(); return 0 }
		},
	}
	for hedge, second := range map[string]lap{
		"hangs": {}, "wins meanwhile": {after: 40 * ms, code: 200}, "fails meanwhile": {after: 40 * ms, code: 503},
	} {
		for name, set := range hooks {
			if name == "OnRetry" && second.code == 200 {
				continue
			}
			for how, end := range map[string]func(){"panics": func() { panic("boom") }, "exits": runtime.Goexit} {
				t.Run(name+" "+how+", the hedge "+hedge, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := hedging()
						set(&p, func() {
							time.Sleep(100 * ms)
							end()
						})
						r := newTrack(failedAt60, second)
						ended := make(chan struct{})
						go func() {
							defer close(ended)
							defer func() { _ = recover() }()
							_, _ = retryhttp.New(r, p).RoundTrip(get(t, t.Context())) //nolint:bodyclose // there is none
						}()
						<-ended
						time.Sleep(time.Second)
						r.requireClosed(t)
						b := p.Budget.(*countingBudget)
						assert.Equal(t, 1, b.withdrawn-b.refunded, "the hedge's token, and not a retry's")
					})
				})
			}
		}
	}
}

func TestCancelAtAnyTimeBesideAHedge(t *testing.T) {
	for _, hedge := range []lap{{}, {after: 500 * ms, code: 200}, {after: 500 * ms, code: 503}, {after: 500 * ms, err: retryhttp.Permanent(errBroken)}} {
		for at := 40 * ms; at < 1200*ms; at += 5 * ms {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				time.AfterFunc(at, func() { cancel(errBroken) })
				r := newTrack(failedAt60, hedge, lap{after: 100 * ms, code: 200})
				p := hedging()
				f := r.begin(t, p, get(t, ctx))
				synctest.Wait()
				assert.LessOrEqual(t, f.at, max(at, 0))
				if f.err != nil {
					assert.Equal(t, retryhttp.StopCanceled, f.out.Stop)
					assert.ErrorIs(t, f.err, errBroken)
					assert.Equal(t, at, f.at)
				}
				assert.GreaterOrEqual(t, f.out.Waited, time.Duration(0))
				f.read(t)
				time.Sleep(2 * time.Second)
				r.requireClosed(t)
				b := p.Budget.(*countingBudget)
				b.mu.Lock()
				defer b.mu.Unlock()
				assert.LessOrEqual(t, b.refunded, b.withdrawn)
			})
		}
	}
}

// A caller that never closes its response, and goes, leaves nothing behind: the bubble would not
// end.
func TestResponseThatNobodyClosesAfterAWaitBesideAHedge(t *testing.T) {
	for _, second := range []lap{{after: 500 * ms, code: 200}, {}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			r := newTrack(failedAt60, second, lap{after: ms, code: 200})
			f := r.begin(t, hedging(), get(t, ctx))
			assert.Equal(t, 200, f.status)
			cancel()
			time.Sleep(time.Second)
			for _, s := range r.attempts()[:2] {
				assert.Error(t, s.req.Context().Err())
			}
		})
	}
}

// The hedge may read its body until the retry is sent. Only then is the retry's body opened, which
// may rewind the hedge's.
func TestBodyOfARetryIsOpenedAfterTheHedgeHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		hedge time.Duration // how long the hedge takes to read a byte
		won   bool
	}{"the hedge wins": {50 * ms, true}, "the hedge is slow": {400 * ms, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				content := strings.NewReader("content")
				req := get(t, t.Context())
				req.Method, req.Body, req.ContentLength = "QUERY", io.NopCloser(content), 7
				req.GetBody = func() (io.ReadCloser, error) {
					_, err := content.Seek(0, io.SeekStart)
					return io.NopCloser(content), err
				}
				read := func(pause time.Duration, whole *atomic.Int32) func(*http.Request) {
					return func(req *http.Request) {
						var got bytes.Buffer
						for p := make([]byte, 1); ; time.Sleep(pause) {
							n, err := req.Body.Read(p)
							got.Write(p[:n])
							if err != nil {
								break
							}
						}
						_ = req.Body.Close()
						if got.String() == "content" {
							whole.Add(1)
						}
					}
				}
				var first, hedge, retry atomic.Int32
				r := newTrack(
					lap{after: 60 * ms, code: 503, do: read(0, &first)},
					lap{code: 200, after: ms, do: read(c.hedge, &hedge)},
					lap{code: 200, after: ms, do: read(0, &retry)})
				f := r.runOn(t, hedging(), req)
				assert.Equal(t, 200, f.status)
				assert.Equal(t, c.won, f.out.HedgeWon)
				assert.EqualValues(t, 1, first.Load())
				assert.Equal(t, c.won, hedge.Load() == 1)
				assert.Equal(t, !c.won, retry.Load() == 1)
				time.Sleep(5 * time.Second)
			})
		})
	}
}

// A base may go on reading when its attempt has failed, also while its response is cleared away.
func TestBodiesOfBothAttemptsAreCutOffBeforeARetry(t *testing.T) {
	hangs := func() io.Reader { return &dripping{"body", time.Second} }
	after := func(backoffs ...time.Duration) func(int, time.Duration) time.Duration {
		return func(int, time.Duration) time.Duration {
			next := backoffs[0]
			if len(backoffs) > 1 {
				backoffs = backoffs[1:]
			}
			return next
		}
	}
	for name, c := range map[string]struct {
		first, hedge lap
		backoff      func(int, time.Duration) time.Duration
		at           time.Duration // of the retry
	}{
		"the hedge has failed first": {
			lap{after: 60 * ms, code: 503}, lap{after: 5 * ms, code: 503, body: hangs()}, after(0), 60 * ms,
		},
		"the hedge fails while it is awaited": {
			lap{after: 60 * ms, code: 503}, lap{after: 50 * ms, code: 503, body: hangs()}, after(100 * ms), 160 * ms,
		},
		"the hedge meets a final error while it is awaited": {
			lap{after: 60 * ms, code: 503}, lap{after: 50 * ms, err: retryhttp.Permanent(errBroken)}, after(100 * ms), 160 * ms,
		},
		"the hedge hangs": {lap{after: 60 * ms, code: 503}, lap{}, after(100 * ms), 160 * ms},
		"only the hedge's failure is retried": {
			lap{after: 60 * ms, code: 503, body: hangs()}, lap{after: 50 * ms, code: 503}, after(time.Hour, 0), 350 * ms,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var kept []io.Reader
				keep := func(req *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					kept = append(kept, req.Body)
					req.Body = nil // or the track would close it
				}
				c.first.do, c.hedge.do = keep, keep
				r := newTrack(c.first, c.hedge, lap{after: ms, code: 200, do: func(*http.Request) {
					mu.Lock()
					defer mu.Unlock()
					assert.Len(t, kept, 2)
					for i, body := range kept {
						_, err := io.ReadAll(body)
						assert.Error(t, err, "attempt %d", i+1)
					}
				}})
				p := hedging()
				p.Backoff, p.MaxElapsed = c.backoff, time.Minute
				req := get(t, t.Context())
				req.Method, req.Body = "QUERY", bodies.File(t, "content")
				f := r.runOn(t, p, req)
				assert.Equal(t, 200, f.status)
				assert.Equal(t, c.at+ms, f.at)
				time.Sleep(time.Minute)
			})
		})
	}
}

// A caller's context may live for as long as its process.
func TestRaceLeavesNothingInTheCallersContext(t *testing.T) {
	for name, c := range map[string]struct {
		laps []lap
		hook func()
	}{
		"the first attempt wins": {laps: []lap{{after: 60 * ms, code: 200}, {}}},
		"the hedge wins":         {laps: []lap{{}, {after: 10 * ms, code: 200}}},
		"a retry wins":           {laps: []lap{failedAt60, {}, {after: ms, code: 200}}},
		"both fail":              {laps: []lap{failedAt60, {after: 5 * ms, code: 503}, {after: ms, code: 200}}},
		"a hook panics":          {laps: []lap{failedAt60, {}}, hook: func() { panic("boom") }},
		"a hook exits":           {laps: []lap{failedAt60, {}}, hook: runtime.Goexit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				if c.hook != nil {
					p.OnRetry = func(retryhttp.Attempt) { c.hook() }
				}
				r := newTrack(c.laps...)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					assert.Equal(t, 200, r.runOn(t, p, get(t, newForeign(t))).status)
				}()
				<-ended
				time.Sleep(time.Second)
				r.requireClosed(t)
			})
		})
	}
}

// The first attempt fails because the caller has gone. No attempt has won.
func TestCauseOfALoserIsTheCallersIfTheCallerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := newForeign(t)
		r := newTrack(lap{err: retryhttp.Permanent(errBroken), do: func(*http.Request) {
			time.Sleep(60 * ms)
			ctx.gone.Store(true)
		}}, lap{})
		f := r.runOn(t, hedging(), get(t, ctx))
		assert.Equal(t, retryhttp.StopCanceled, f.out.Stop)
		assert.Equal(t, context.Canceled, context.Cause(r.attempts()[1].req.Context()))
	})
}

// A loser's context ends with ErrSuperseded, and with the caller's cause if the caller has gone.
func TestCauseOfALoserIsErrSuperseded(t *testing.T) {
	for name, c := range map[string]struct {
		laps  []lap
		loser int
	}{
		"the first attempt":           {[]lap{{}, {after: 10 * ms, code: 200}}, 0},
		"the hedge":                   {[]lap{{after: 60 * ms, code: 200, proto: 2}, {}}, 1},
		"the hedge, after a moment":   {[]lap{{after: 60 * ms, code: 200, proto: 1}, {}}, 1},
		"the hedge, for a retry":      {[]lap{failedAt60, {}, {after: ms, code: 200}}, 1},
		"the hedge, after an error":   {[]lap{{after: 60 * ms, err: retryhttp.Permanent(errBroken)}, {}}, 1},
		"the first, while it is sent": {[]lap{{deaf: true, after: 100 * ms, code: 200}, {after: 10 * ms, code: 200}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTrack(c.laps...)
				r.runOn(t, hedging(), get(t, t.Context()))
				ctx, cancel := context.WithCancel(r.attempts()[c.loser].req.Context())
				defer cancel()
				assert.ErrorIs(t, context.Cause(ctx), retryhttp.ErrSuperseded)
				assert.ErrorIs(t, context.Cause(ctx), context.Canceled)
				assert.Equal(t, context.Canceled, ctx.Err())
				assert.NotErrorIs(t, context.Canceled, retryhttp.ErrSuperseded)
			})
		})
	}
}
