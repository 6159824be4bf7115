package retryhttp_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// A table of races: what two attempts meet, and what comes of it.
func TestHedge(t *testing.T) {
	permanent := retryhttp.Permanent(errBroken)
	for name, c := range map[string]struct {
		laps     []lap
		at       time.Duration
		status   int // 0: an error
		attempts int
		hedges   int
		hedgeWon bool
		sent     []time.Duration
		stop     retryhttp.Stop
	}{
		"the first attempt is quick": {
			laps: []lap{{after: 49 * ms, code: 200}},
			at:   49 * ms, status: 200, attempts: 1, sent: []time.Duration{0},
		},
		"the hedge wins": {
			laps: []lap{{}, {after: 10 * ms, code: 200}},
			at:   60 * ms, status: 200, attempts: 2, hedges: 1, hedgeWon: true, sent: []time.Duration{0, 50 * ms},
		},
		"the first attempt wins": {
			laps: []lap{{after: 55 * ms, code: 200}, {after: 10 * ms, code: 200}},
			at:   55 * ms, status: 200, attempts: 2, hedges: 1, sent: []time.Duration{0, 50 * ms},
		},
		"a 404 wins": {
			laps: []lap{{}, {after: 10 * ms, code: 404}},
			at:   60 * ms, status: 404, attempts: 2, hedges: 1, hedgeWon: true, sent: []time.Duration{0, 50 * ms},
		},
		"a 503 of the hedge does not win": {
			laps: []lap{{after: 300 * ms, code: 200}, {after: 10 * ms, code: 503}},
			at:   300 * ms, status: 200, attempts: 2, hedges: 1, sent: []time.Duration{0, 50 * ms},
		},
		"a 503 of the first attempt does not win": {
			laps: []lap{{after: 60 * ms, code: 503}, {after: 150 * ms, code: 200}},
			at:   200 * ms, status: 200, attempts: 2, hedges: 1, hedgeWon: true, sent: []time.Duration{0, 50 * ms},
		},
		"an error of the hedge does not win": {
			laps: []lap{{after: 300 * ms, code: 200}, {after: 10 * ms, err: errBroken}},
			at:   300 * ms, status: 200, attempts: 2, hedges: 1, sent: []time.Duration{0, 50 * ms},
		},
		"an error of the first attempt does not win": {
			laps: []lap{{after: 60 * ms, err: errBroken}, {after: 150 * ms, code: 200}},
			at:   200 * ms, status: 200, attempts: 2, hedges: 1, hedgeWon: true, sent: []time.Duration{0, 50 * ms},
		},
		"a final error of the hedge does not win": {
			laps: []lap{{after: 300 * ms, code: 200}, {after: 10 * ms, err: permanent}},
			at:   300 * ms, status: 200, attempts: 2, hedges: 1, sent: []time.Duration{0, 50 * ms},
		},
		"a final error of the hedge does not end the retries": {
			laps: []lap{{after: 300 * ms, code: 503}, {after: 10 * ms, err: permanent}, {after: 10 * ms, code: 200}},
			at:   1310 * ms, status: 200, attempts: 3, hedges: 1, sent: []time.Duration{0, 50 * ms, 1300 * ms},
		},
		"a final error of the hedge does not end the retries, also while it is awaited": {
			laps: []lap{{after: 60 * ms, code: 503}, {after: 200 * ms, err: permanent}, {after: 10 * ms, code: 200}},
			at:   1070 * ms, status: 200, attempts: 3, hedges: 1, sent: []time.Duration{0, 50 * ms, 1060 * ms},
		},
		"a final error of the first attempt ends both": {
			laps: []lap{{after: 60 * ms, err: permanent}, {}},
			at:   60 * ms, attempts: 2, hedges: 1, sent: []time.Duration{0, 50 * ms},
		},
		"a failure before the hedge is due is retried": {
			laps: []lap{{after: 10 * ms, code: 503}, {after: 10 * ms, code: 200}},
			at:   1020 * ms, status: 200, attempts: 2, sent: []time.Duration{0, 1010 * ms},
		},
		"a retry is hedged": {
			laps: []lap{{after: 10 * ms, code: 503}, {}, {after: 10 * ms, code: 200}},
			at:   1070 * ms, status: 200, attempts: 3, hedges: 1, hedgeWon: true,
			sent: []time.Duration{0, 1010 * ms, 1060 * ms},
		},
		"both fail, and a retry follows that is not hedged": {
			laps: []lap{{after: 60 * ms, code: 503}, {after: 100 * ms, code: 503}, {after: 500 * ms, code: 200}},
			at:   1560 * ms, status: 200, attempts: 3, hedges: 1, sent: []time.Duration{0, 50 * ms, 1060 * ms},
		},
		"the first attempt fails, and the hedge hangs": {
			laps: []lap{{after: 60 * ms, code: 503}, {}, {after: 500 * ms, code: 200}},
			at:   1560 * ms, status: 200, attempts: 3, hedges: 1, sent: []time.Duration{0, 50 * ms, 1060 * ms},
		},
		"the hedge answers before a retry is due": {
			laps: []lap{{after: 60 * ms, code: 503}, {after: 1000 * ms, code: 404}},
			at:   1050 * ms, status: 404, attempts: 2, hedges: 1, hedgeWon: true, sent: []time.Duration{0, 50 * ms},
		},
		"the hedge would answer after the retry was sent": {
			laps: []lap{{after: 60 * ms, code: 503}, {after: 1020 * ms, code: 404}, {after: 500 * ms, code: 200}},
			at:   1560 * ms, status: 200, attempts: 3, hedges: 1, sent: []time.Duration{0, 50 * ms, 1060 * ms},
		},
		"the hedge fails, and the first attempt hangs for a while": {
			laps: []lap{{after: 5 * time.Second, code: 200}, {after: 10 * ms, code: 503}},
			at:   5 * time.Second, status: 200, attempts: 2, hedges: 1, sent: []time.Duration{0, 50 * ms},
		},
		"the hedge fails first, and then the other": {
			laps: []lap{{after: 200 * ms, code: 503}, {after: 10 * ms, err: errBroken}, {after: 500 * ms, code: 200}},
			at:   1700 * ms, status: 200, attempts: 3, hedges: 1, sent: []time.Duration{0, 50 * ms, 1200 * ms},
		},
		"the longer Retry-After of two counts": {
			laps: []lap{
				{after: 60 * ms, code: 503, asks: "20"}, {after: 50 * ms, code: 503, asks: "10"},
				{code: 503, after: 1 * ms, asks: "3600"},
			},
			status: 503, attempts: 3, hedges: 1, stop: retryhttp.StopRetryAfter,
		},
		"the longer Retry-After of two counts, also the hedge's": {
			laps: []lap{
				{after: 60 * ms, code: 503}, {after: 10 * ms, code: 503, asks: "20"},
				{code: 503, after: 1 * ms, asks: "3600"},
			},
			status: 503, attempts: 3, hedges: 1, stop: retryhttp.StopRetryAfter,
		},
		"a Retry-After that is too long ends the retries, also the awaited hedge's": {
			laps: []lap{{after: 60 * ms, code: 503}, {after: 50 * ms, code: 503, asks: "3600"}},
			at:   100 * ms, status: 503, attempts: 2, hedges: 1,
			sent: []time.Duration{0, 50 * ms}, stop: retryhttp.StopRetryAfter,
		},
		"a Retry-After that is too long ends the retries": {
			laps: []lap{{after: 60 * ms, code: 503, asks: "3600"}, {after: 50 * ms, code: 503}},
			at:   100 * ms, status: 503, attempts: 2, hedges: 1,
			sent: []time.Duration{0, 50 * ms}, stop: retryhttp.StopRetryAfter,
		},
		"an attempt that ignores its context": {
			laps: []lap{{after: 2 * time.Second, code: 200, deaf: true}, {after: 10 * ms, code: 404}},
			at:   2 * time.Second, status: 404, attempts: 2, hedges: 1, hedgeWon: true, sent: []time.Duration{0, 50 * ms},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTrack(c.laps...)
				f := r.runOn(t, hedging(), get(t, t.Context()))
				synctest.Wait()
				assert.Equal(t, c.status, f.status)
				if c.stop == "" {
					c.stop = retryhttp.StopFinal
				}
				if c.sent == nil { // the spread is random
					times := r.times()
					require.Len(t, times, 3)
					assert.GreaterOrEqual(t, times[2], 20*time.Second+60*ms)
					assert.LessOrEqual(t, times[2], 30*time.Second+100*ms)
				} else {
					assert.Equal(t, c.at, f.at)
					assert.Equal(t, c.sent, r.times())
				}
				assert.Equal(t, c.stop, f.out.Stop)
				assert.Equal(t, c.attempts, f.out.Attempts)
				assert.Equal(t, c.hedges, f.out.Hedges)
				assert.Equal(t, c.hedgeWon, f.out.HedgeWon)
				r.requireClosed(t)
				for i, s := range r.attempts() {
					assert.Equal(t, i+1, s.number)
				}
			})
		})
	}
}

// A request that could do harm is never hedged.
func TestHedgeIsForSafeMethods(t *testing.T) {
	key := func(req *http.Request) { req.Header.Set("Idempotency-Key", "k") }
	for name, c := range map[string]struct {
		change func(*http.Request)
		hedged bool
	}{
		"GET": {hedged: true}, "HEAD": {hedged: true}, "OPTIONS": {hedged: true}, "TRACE": {hedged: true}, "QUERY": {hedged: true},
		"POST": {}, "PUT": {}, "DELETE": {}, "PATCH": {}, "CONNECT": {},
		"POST with a key": {change: key}, "PUT with a key": {change: key},
		"GET to upgrade": {change: func(req *http.Request) { req.Header.Set("Upgrade", "websocket") }},
		// A body may set the values when it ends, and two bodies would do so at once.
		"QUERY with a trailer": {change: func(req *http.Request) { req.Trailer = http.Header{"Digest": nil} }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTrack(lap{after: time.Second, code: 200})
				req := get(t, t.Context())
				req.Method, _, _ = strings.Cut(name, " ")
				if c.change != nil {
					c.change(req)
				}
				assert.Equal(t, c.hedged, r.runOn(t, hedging(), req).out.Hedges == 1)
			})
		})
	}
}

func TestHedgeSendsTheWholeBodyOrNothing(t *testing.T) {
	content := []byte(strings.Repeat("content ", 10_000))
	for kind, request := range bodies.Kinds(t) {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var got []string
				read := func(req *http.Request) {
					b, err := io.ReadAll(req.Body)
					assert.NoError(t, err)
					mu.Lock()
					defer mu.Unlock()
					got = append(got, string(b))
				}
				req := request(content).WithContext(t.Context())
				req.Method = "QUERY"
				r := newTrack(lap{after: time.Second, code: 200, do: read}, lap{after: 10 * ms, code: 200, do: read})
				f := r.runOn(t, hedging(), req)
				want := []string{string(content)}
				switch kind {
				case "bytes.Reader with GetBody", "file":
					want = append(want, want[0])
				}
				assert.Equal(t, len(want)-1, f.out.Hedges)
				assert.Equal(t, want, got)
			})
		})
	}
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
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			content := strings.NewReader("content")
			req := get(t, t.Context())
			req.Method, req.Body, req.ContentLength = "QUERY", io.NopCloser(content), 7
			opened := 0
			req.GetBody = func() (io.ReadCloser, error) {
				opened++
				_, err := content.Seek(0, io.SeekStart)
				return io.NopCloser(content), err
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
				f = newTrack(slow).runOn(t, p, get(t, t.Context()))
				assert.Equal(t, 1, f.out.Hedges, "the allowance has what was given back")
			}
		})
	}
}

// Each reason for which no hedge is sent leaves the attempt alone.
func TestHedgeIsNotSent(t *testing.T) {
	for name, change := range map[string]func(*retryhttp.Policy){
		"Share is negative":      func(p *retryhttp.Policy) { p.Hedge.Share = -1 },
		"Share is not a number":  func(p *retryhttp.Policy) { p.Hedge.Share = math.NaN() },
		"MaxAttempts is 1":       func(p *retryhttp.Policy) { p.MaxAttempts = 1 },
		"MaxElapsed has passed":  func(p *retryhttp.Policy) { p.MaxElapsed = 49 * ms },
		"Min has not passed":     func(p *retryhttp.Policy) { p.Hedge.Min = 2 * time.Second },
		"it is not idempotent":   func(p *retryhttp.Policy) { p.Idempotent = func(*http.Request) bool { return false } },
		"there are no latencies": func(p *retryhttp.Policy) { p.Hedge.After = 0 },
		"there is no Hedge":      func(p *retryhttp.Policy) { p.Hedge = nil },
		"it would be too late":   func(p *retryhttp.Policy) { p.Hedge.After = 1001 * ms },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTrack(lap{after: time.Second, code: 200})
				p := hedging()
				change(&p)
				f := r.runOn(t, p, get(t, t.Context()))
				assert.Equal(t, 200, f.status)
				assert.Equal(t, time.Second, f.at)
				assert.Equal(t, retryhttp.Outcome{Attempts: 1, Stop: retryhttp.StopFinal}, f.out)
				if b, ok := p.Budget.(*countingBudget); ok {
					assert.Equal(t, b.withdrawn, b.refunded)
				}
			})
		})
	}
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

func TestHedgeCountsForMaxAttempts(t *testing.T) {
	for attempts, want := range map[int][]time.Duration{
		1: {0}, 2: {0, 50 * ms}, 3: {0, 50 * ms, 1100 * ms}, 4: {0, 50 * ms, 1100 * ms, 2200 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newTrack(lap{after: 100 * ms, code: 503}, lap{after: 10 * ms, code: 503}, lap{after: 100 * ms, code: 503})
			p := hedging()
			p.MaxAttempts = attempts
			f := r.runOn(t, p, get(t, t.Context()))
			assert.Equal(t, want, r.times())
			assert.Equal(t, attempts, f.out.Attempts)
			assert.Equal(t, retryhttp.StopAttempts, f.out.Stop)
			assert.Equal(t, "whole", f.body)
			synctest.Wait()
			r.requireClosed(t)
		})
	}
}

// A hedge is no reason for a longer backoff.
func TestHedgeDoesNotCountForTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var numbers []int
		var previous []time.Duration
		r := newTrack(lap{after: 100 * ms, code: 503}, lap{after: 10 * ms, code: 503}, lap{after: 1 * ms, code: 503})
		p := hedging()
		p.Backoff = func(n int, prev time.Duration) time.Duration {
			numbers, previous = append(numbers, n), append(previous, prev)
			return time.Duration(n) * time.Second
		}
		r.runOn(t, p, get(t, t.Context()))
		assert.Equal(t, []int{1, 2}, numbers)
		assert.Equal(t, []time.Duration{0, time.Second}, previous)
	})
}

// The allowance has one hedge at the start, and each answer earns a Share of another.
func TestHedgesAreAShareOfTheAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Hedge.Share = 0.25
		hedges := 0
		for range 101 {
			f := newTrack(lap{after: 60 * ms, code: 200}).runOn(t, p, get(t, t.Context()))
			hedges += f.out.Hedges
		}
		assert.Equal(t, 1+100/4, hedges)
		assert.Equal(t, hedges, p.Budget.(*countingBudget).withdrawn)
		assert.Equal(t, hedges, p.Budget.(*countingBudget).refunded)
	})
}

func TestAtMostTenHedgesAreSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Hedge.Share = 1
		for range 100 {
			newTrack(lap{after: ms, code: 200}).runOn(t, p, get(t, t.Context()))
		}
		hedges := 0
		for range 20 {
			f := newTrack(lap{after: 60 * ms, err: retryhttp.Permanent(errBroken)}).runOn(t, p, get(t, t.Context()))
			hedges += f.out.Hedges
		}
		assert.Equal(t, 10, hedges)
	})
}

// A request that could not be hedged earns no hedge, and its latency does not count.
func TestOnlyRequestsThatMayBeHedgedEarnHedges(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"POST":            func(req *http.Request) { req.Method = http.MethodPost },
		"to upgrade":      func(req *http.Request) { req.Header.Set("Upgrade", "websocket") },
		"a stream":        func(req *http.Request) { req.Body = io.NopCloser(strings.NewReader("x")) },
		"a stream, alone": func(req *http.Request) { req.Body = io.NopCloser(strings.NewReader("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				p.Hedge = &retryhttp.Hedge{Share: 1, After: hedgeAfter}
				alone := p
				if strings.HasSuffix(name, "alone") {
					alone.MaxAttempts = 1
				}
				for range 10 {
					req := get(t, t.Context())
					req.Method = "QUERY"
					change(req)
					newTrack(lap{after: ms, code: 200}).runOn(t, alone, req)
				}
				hedges := 0
				for range 3 {
					f := newTrack(lap{after: 60 * ms, err: retryhttp.Permanent(errBroken)}).runOn(t, p, get(t, t.Context()))
					hedges += f.out.Hedges
				}
				assert.Equal(t, 1, hedges, "which the allowance has at the start")
			})
		})
	}
}

// Failures earn nothing: in an outage there are no hedges after the saved ones.
func TestFailuresEarnNoHedges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.MaxAttempts = 2
		hedges := 0
		for range 100 {
			hedges += newTrack(lap{after: 60 * ms, code: 503}).runOn(t, p, get(t, t.Context())).out.Hedges
		}
		assert.Equal(t, 1, hedges)
	})
}

// The first attempt answers while the hedge's body is being opened.
func TestBodyOfAHedgeThatIsNotSentIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := &bodies.Tracked{Reader: strings.NewReader("content")}
		p := hedging()
		req := get(t, t.Context())
		req.Method, req.Body = "QUERY", io.NopCloser(strings.NewReader("content"))
		req.GetBody = func() (io.ReadCloser, error) {
			time.Sleep(20 * ms)
			return opened, nil
		}
		f := newTrack(lap{after: 60 * ms, code: 200, do: func(r *http.Request) { r.Body.Close() }}).runOn(t, p, req)
		assert.Equal(t, 60*ms, f.at)
		assert.Equal(t, 1, f.out.Attempts)
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, opened.Closes.Load())
		b := p.Budget.(*countingBudget)
		assert.Equal(t, 1, b.withdrawn)
		assert.Equal(t, 1, b.refunded)
	})
}

// A base may go on reading when its attempt is over.
func TestBodyIsCutOffFromAnAttemptThatHasLost(t *testing.T) {
	for name, laps := range map[string][]lap{
		"the hedge":         {{after: 60 * ms, code: 200}, {}},
		"the first attempt": {{}, {after: 10 * ms, code: 200}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				sent := make(map[int]io.Reader)
				for i := range laps {
					laps[i].do = func(req *http.Request) {
						mu.Lock()
						defer mu.Unlock()
						sent[retryhttp.AttemptOf(req.Context()).Number] = req.Body
						req.Body = nil // or the track would close it
					}
				}
				req := get(t, t.Context())
				req.Method, req.Body = "QUERY", bodies.File(t, "content")
				f := newTrack(laps...).runOn(t, hedging(), req)
				require.Equal(t, 200, f.status)
				mu.Lock()
				defer mu.Unlock()
				loser, winner := sent[1], sent[2]
				if !f.out.HedgeWon {
					loser, winner = winner, loser
				}
				_, err := io.ReadAll(loser)
				assert.Error(t, err)
				got, err := io.ReadAll(winner)
				assert.NoError(t, err)
				assert.Equal(t, "content", string(got))
			})
		})
	}
}

func TestHedgeWhoseBodyCannotBeOpenedGivesBothBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		for range 3 {
			req := get(t, t.Context())
			req.Method, req.Body = "QUERY", io.NopCloser(strings.NewReader("content"))
			req.GetBody = func() (io.ReadCloser, error) { return nil, errBroken }
			f := newTrack(lap{after: time.Second, code: 200, do: func(r *http.Request) { r.Body.Close() }}).runOn(t, p, req)
			assert.Equal(t, 1, f.out.Attempts)
		}
		b := p.Budget.(*countingBudget)
		assert.Equal(t, 3, b.withdrawn)
		assert.Equal(t, 3, b.refunded)
		f := newTrack(lap{after: 60 * ms, code: 200}).runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 1, f.out.Hedges, "the allowance has what was given back")
	})
}

// Both contexts of the attempts end when the caller has closed the winner's body, and not
// before.
func TestWinnersContextLivesUntilItsBodyIsOver(t *testing.T) {
	for name, laps := range map[string][]lap{
		"the hedge wins":         {{}, {after: 10 * ms, code: 200}},
		"the first attempt wins": {{after: 60 * ms, code: 200}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTrack(laps...)
				f := r.begin(t, hedging(), get(t, t.Context()))
				require.NoError(t, f.err)
				winner, loser := r.attempts()[0], r.attempts()[1]
				if f.out.HedgeWon {
					winner, loser = loser, winner
				}
				time.Sleep(time.Hour)
				assert.NoError(t, winner.req.Context().Err())
				assert.Error(t, loser.req.Context().Err())
				f.resp.Body.Close()
				assert.Error(t, winner.req.Context().Err())
			})
		})
	}
}

// A hedge that loses over HTTP/1 may end by itself, also after its caller has gone.
func TestHedgeThatHasLostMayTakeAMoment(t *testing.T) {
	for name, c := range map[string]struct {
		hedge lap
		proto int
		over  time.Duration // the hedge's RoundTrip; the first attempt wins at 60 ms
	}{
		"it answers soon":       {lap{after: 200 * ms, code: 200}, 1, 250 * ms},
		"it takes too long":     {lap{after: 301 * ms, code: 200}, 1, 310 * ms},
		"over HTTP/2":           {lap{after: 200 * ms, code: 200}, 2, 60 * ms},
		"it fails":              {lap{after: 200 * ms, code: 503}, 1, 250 * ms},
		"an unknown protocol":   {lap{after: 200 * ms, code: 200}, 0, 250 * ms},
		"it has failed already": {lap{after: 5 * ms, code: 503}, 1, 55 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				r := newTrack(lap{after: 60 * ms, code: 200, proto: c.proto}, c.hedge)
				f := r.runOn(t, hedging(), get(t, ctx))
				cancel()
				require.Equal(t, 60*ms, f.at)
				require.False(t, f.out.HedgeWon)
				time.Sleep(time.Second)
				assert.Equal(t, c.over, r.attempts()[1].over)
				r.requireClosed(t)
			})
		})
	}
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

		time.Sleep(time.Minute) // the answers are no longer recent
		_, ok = p.Hedge.Delay(req)
		assert.False(t, ok)
		f = newTrack(lap{after: time.Second, code: 200}).runOn(t, p, req)
		assert.Equal(t, 1, f.out.Attempts)
	})
}

func TestDelayIsOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &retryhttp.Hedge{Share: 1, Key: func(req *http.Request) string { return req.URL.Path }}
		for range 5 {
			newTrack(lap{after: 20 * ms, code: 200}).runOn(t, retryhttp.Policy{Hedge: h}, getURL(t, "http://a/x"))
		}
		_, ok := h.Delay(getURL(t, "http://b/x"))
		assert.True(t, ok)
		_, ok = h.Delay(getURL(t, "http://a/y"))
		assert.False(t, ok)
		post := getURL(t, "http://a/x")
		post.Method = http.MethodPost
		_, ok = h.Delay(post)
		assert.False(t, ok, "it would not be hedged")
	})
}

func TestDelayIsUnknownIfNothingIsHedged(t *testing.T) {
	for _, share := range []float64{-1, math.NaN()} {
		_, ok := (&retryhttp.Hedge{Share: share, After: hedgeAfter}).Delay(get(t, t.Context()))
		assert.False(t, ok, "%v", share)
	}
}

func TestWindowIsHowFarBackLatenciesCount(t *testing.T) {
	for _, c := range []struct {
		window, ago time.Duration
		counts      bool
	}{
		{0, 14 * time.Second, true}, {0, 30 * time.Second, false}, {-1, 14 * time.Second, true},
		{2 * time.Second, 900 * ms, true}, {2 * time.Second, 2 * time.Second, false},
		{time.Hour, 29 * time.Minute, true}, {time.Hour, time.Hour, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &retryhttp.Hedge{Share: 1, Window: c.window}
			for range 5 {
				newTrack(lap{after: ms, code: 200}).runOn(t, retryhttp.Policy{Hedge: h}, get(t, t.Context()))
			}
			time.Sleep(c.ago)
			_, ok := h.Delay(get(t, t.Context()))
			assert.Equal(t, c.counts, ok, "%+v", c)
		})
	}
}

// A retry is hedged by the latencies of the same key, whatever Key would return for it.
func TestKeyOfAHedgeIsAskedOncePerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := hedging()
		p.Hedge.Key = func(*http.Request) string { asked++; return "" }
		f := newTrack(lap{after: ms, code: 503}, lap{after: ms, code: 200}).runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 2, f.out.Attempts)
		assert.Equal(t, 1, asked)
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

// Only answers, and attempts that were given up for being slow, say how quick a host is.
func TestLatenciesAreThoseOfAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		laps   []lap
		change func(*retryhttp.Policy)
		counts bool
	}{
		"a success":         {[]lap{{after: 100 * ms, code: 200}}, nil, true},
		"a 404":             {[]lap{{after: 100 * ms, code: 404}}, nil, true},
		"a 503":             {[]lap{{after: 100 * ms, code: 503}}, nil, false},
		"an error":          {[]lap{{after: 100 * ms, err: errBroken}}, nil, false},
		"a permanent error": {[]lap{{after: 100 * ms, err: retryhttp.Permanent(errBroken)}}, nil, false},
		"it timed out": {[]lap{{}}, func(p *retryhttp.Policy) {
			p.AttemptTimeout = 100 * ms
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &retryhttp.Hedge{Share: 0.5}
				p := retryhttp.Policy{Hedge: h, MaxAttempts: 1}
				req := get(t, t.Context())
				for range 10 {
					newTrack(lap{after: 20 * ms, code: 200}).runOn(t, p, req)
				}
				if c.change != nil {
					c.change(&p)
				}
				for range 30 {
					newTrack(c.laps...).runOn(t, p, req)
				}
				delay, ok := h.Delay(req)
				require.True(t, ok)
				assert.Equal(t, c.counts, delay > 50*ms, "%v", delay)
			})
		})
	}
}

// The time that a superseded attempt had had counts as its latency. Otherwise hedging would
// hide slow answers from itself.
func TestLatencyOfASupersededAttemptCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &retryhttp.Hedge{Share: 0.25, Min: 100 * ms}
		p := retryhttp.Policy{Hedge: h, Budget: retryhttp.Unlimited{}}
		alone := p
		alone.MaxAttempts = 1
		req := get(t, t.Context())
		for range 20 {
			newTrack(lap{after: 20 * ms, code: 200}).runOn(t, p, req)
		}
		for range 5 {
			f := newTrack(lap{}, lap{after: 20 * ms, code: 200}).runOn(t, p, req)
			require.True(t, f.out.HedgeWon)
		}
		for range 5 {
			newTrack(lap{after: 150 * ms, code: 200}).runOn(t, alone, req)
		}
		delay, ok := h.Delay(req)
		require.True(t, ok)
		assert.Greater(t, delay, 105*ms, "10 of 35 are slow, and a quarter is hedged")
	})
}

// So does the time that a hedge had had when a retry took its place. If the caller has gone, the
// time says nothing about the host.
func TestLatencyOfAHedgeCountsIfARetryTakesItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		counts  bool
	}{"a retry": {time.Hour, true}, "the caller goes": {600 * ms, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &retryhttp.Hedge{Share: 0.25, Min: 100 * ms}
				p := retryhttp.Policy{
					Hedge: h, Budget: retryhttp.Unlimited{}, MaxAttempts: 3, Backoff: retryhttp.Constant(time.Second),
				}
				alone := p
				alone.MaxAttempts = 1
				req := get(t, t.Context())
				for range 20 {
					newTrack(lap{after: 20 * ms, code: 200}).runOn(t, p, req)
				}
				for range 5 {
					ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
					f := newTrack(lap{after: 110 * ms, code: 503}, lap{}, lap{after: ms, code: 503}).runOn(t, p, get(t, ctx))
					cancel()
					require.Equal(t, 1, f.out.Hedges)
				}
				for range 5 {
					newTrack(lap{after: 150 * ms, code: 200}).runOn(t, alone, req)
				}
				delay, ok := h.Delay(req)
				require.True(t, ok)
				assert.Equal(t, c.counts, delay > 105*ms, "%v; with the hedges, 10 of 30 are slow, and a quarter is hedged", delay)
			})
		})
	}
}

func TestHedgeIsNotSentWhileTheGateHasTheKeyDownOrClosed(t *testing.T) {
	for name, c := range map[string]struct {
		before lap
		hedged bool
	}{
		"all is well":    {lap{code: 200, after: ms}, true},
		"down":           {lap{code: 503, after: 20 * ms}, false},
		"closed":         {lap{code: 429, after: ms, asks: "5"}, false},
		"failed once":    {lap{code: 503, after: 20 * ms}, true},
		"closed earlier": {lap{code: 429, after: ms, asks: "5"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				p.Gate = new(retryhttp.Gate)
				quick := retryhttp.Policy{Gate: p.Gate, MaxAttempts: 1}
				times := 8
				if name == "failed once" {
					times = 1
				}
				for range times {
					newTrack(c.before).runOn(t, quick, get(t, t.Context()))
				}
				if name == "closed earlier" {
					time.Sleep(5 * time.Second)
				}
				f := newTrack(lap{after: time.Second, code: 200}).runOn(t, p, get(t, t.Context()))
				assert.Equal(t, c.hedged, f.out.Hedges == 1)
			})
		})
	}
}

func TestHedgeHasAnAttemptTimeoutOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.AttemptTimeout = 80 * ms
		r := newTrack(lap{}, lap{after: 70 * ms, code: 200})
		f := r.runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 120*ms, f.at)
		assert.True(t, f.out.HedgeWon)
		assert.Equal(t, 80*ms, r.attempts()[0].over)

		p.Hedge = &retryhttp.Hedge{After: hedgeAfter}
		r = newTrack(lap{}, lap{}, lap{after: ms, code: 200})
		f = r.runOn(t, p, get(t, t.Context()))
		assert.Equal(t, []time.Duration{0, 50 * ms, 1080 * ms}, r.times(), "both time out, and a second passes")
		assert.Equal(t, 3, f.out.Attempts)
	})
}

func TestCancelEndsBothAttempts(t *testing.T) {
	failed := lap{after: 60 * ms, code: 503}
	for name, laps := range map[string][]lap{
		"both are under way":      {{}, {}},
		"the first has failed":    {failed, {}},
		"the hedge has failed":    {{}, {after: 5 * ms, code: 503}},
		"the hedge does not look": {failed, {after: time.Second, code: 200, deaf: true}},
	} {
		for how, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"canceled": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(100*ms, func() { cancel(errBroken) })
				return ctx, func() { cancel(nil) }
			},
			"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(ctx, 100*ms, errBroken)
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := end(t.Context())
					defer cancel()
					r := newTrack(laps...)
					p := hedging()
					f := r.runOn(t, p, get(t, ctx))
					assert.Equal(t, 100*ms, f.at)
					assert.Equal(t, retryhttp.StopCanceled, f.out.Stop)
					assert.Equal(t, 2, f.out.Attempts)
					assert.Equal(t, 1, f.out.Hedges)
					assert.False(t, f.out.HedgeWon)
					if laps[0].code == 503 {
						assert.Equal(t, 503, f.status)
					} else {
						assert.ErrorIs(t, f.err, errBroken)
						assert.ErrorIs(t, f.err, ctx.Err())
					}
					b := p.Budget.(*countingBudget)
					assert.Equal(t, 1, b.withdrawn-b.refunded, "the hedge's token, and not a retry's")
					assert.Zero(t, b.deposit)
					time.Sleep(time.Second)
					r.requireClosed(t)
				})
			})
		}
	}
}
