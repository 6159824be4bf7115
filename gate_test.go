package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// inGate runs f in a bubble, and checks that nothing is held in the end.
func inGate(t *testing.T, gate *retryhttp.Gate, f func(t *testing.T, g *gated)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, gate)
		f(t, g)
		g.ended.Wait()
		assert.Zero(t, g.held(), "held in the end")
		assert.Zero(t, retryhttp.InTrouble(gate, "host"), "counted in the end")
	})
}

func TestGateIsDownAfterEightFailuresIn100ms(t *testing.T) {
	for _, c := range []struct {
		name     string
		failures int // after the retry's own
		newest   time.Duration
		backoff  time.Duration
		held     bool
	}{
		{"eight", 7, 90 * ms, 200 * ms, true},
		{"seven", 6, 90 * ms, 200 * ms, false},
		{"eight, the first 100 ms ago", 7, 90 * ms, 100 * ms, true},
		{"eight, the first 99 ms ago", 7, 90 * ms, 99 * ms, false},
		{"eight at once", 7, 10 * ms, 100 * ms, true},
		{"a hundred in less than 100 ms", 99, 98 * ms, 99 * ms, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
				v := g.at(0, "/503,200", func(p *retryhttp.Policy) { p.Backoff = retryhttp.Constant(c.backoff) })
				g.every(c.newest/2, c.newest/2/time.Duration(c.failures-1), c.failures-1, "/503")
				g.at(c.newest, "/503", once)
				g.ended.Wait()
				want := inMillis(0, float64(c.backoff/ms))
				if c.held {
					want[1] = c.newest + 250*ms // as a probe
				}
				assert.Equal(t, want, v.sent)
				assert.Equal(t, want[1]-c.backoff, v.outcome.Held)
				assert.Equal(t, want[1], v.outcome.Waited, "it contains Held")
			})
		})
	}
}

func TestGateCountsResults(t *testing.T) {
	// A retry comes due after as many failures as are given, its own included, and a result.
	holds := func(t *testing.T, failures int, path string) (held bool) {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			v := g.at(0, "/503,200")
			g.every(10*ms, 10*ms, failures-1, "/503")
			ctx, cancel := context.WithTimeout(t.Context(), 190*ms)
			defer cancel()
			g.with(ctx, 100*ms, path, once, func(p *retryhttp.Policy) { p.MaxRetryAfter = -1 })
			g.ended.Wait()
			held = v.outcome.Held > 0
		})
		return held
	}
	const failure, nothing, success = "a failure", "nothing", "a success"
	for path, counts := range map[string]string{
		"/503":                   failure,
		"/500":                   failure,
		"/broken":                failure,
		"/503?Retry-After=soon":  failure,
		"/200":                   success,
		"/404":                   success,
		"/302":                   success,
		"/429":                   nothing,
		"/408":                   nothing,
		"/503?Retry-After=0":     failure,
		"/503?Retry-After=1":     failure,
		"/500?Retry-After=86400": failure,
		"/permanent":             nothing,
		"/hang":                  nothing, // until the caller has had enough
	} {
		t.Run(path, func(t *testing.T) {
			assert.Equal(t, counts == failure, holds(t, 7, path), "it makes eight")
			assert.Equal(t, counts != success, holds(t, 8, path), "it leaves eight")
		})
	}
}

func retryAll(p *retryhttp.Policy) {
	p.Classify = func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Retryable }
}

func TestGateCountsNoRetryableResponseBelow500(t *testing.T) {
	for path, fails := range map[string]bool{
		"/200": false, "/202": false, "/302": false, "/404": false, "/409": false, "/499": false,
		"/500": true, "/503": true, "/broken": true,
	} {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.at(0, path, once, retryAll)
			g.ended.Wait()
			assert.Equal(t, fails, retryhttp.FailuresInARow(g.gate, "host") == 1, path)
		})
	}
}

func TestGateCountsABufferedBodyThatBreaksOff(t *testing.T) {
	for status, fails := range map[int]bool{200: true, 202: true, 404: true, 500: true, 408: false, 429: false} {
		g := new(retryhttp.Gate)
		rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			body := io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
			return &http.Response{StatusCode: status, Body: body, ContentLength: 10, Request: req}, nil
		}), retryhttp.Policy{Gate: g, MaxAttempts: 1, BufferBytes: 100})
		_, err := rt.RoundTrip(requestTo("host"))
		require.NoError(t, err)
		assert.Equal(t, fails, retryhttp.FailuresInARow(g, "host") == 1, status)
	}
}

func TestGateCountsNothingOfANestedTransport(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.rt = retryhttp.New(retryhttp.New(script.Step(g.answer), retryhttp.Policy{
			MaxAttempts: 1, Gate: &retryhttp.Gate{Hold: -1},
		}), g.policy)
		g.every(0, 10*ms, 20, "/503")
		g.ended.Wait()
		assert.Zero(t, retryhttp.FailuresInARow(g.gate, "host"))
	})
}

func TestGateKeepsTheTokenOfWhatItHolds(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		v := g.at(90*ms, "/503,503")
		g.wait(300 * ms)
		assert.Equal(t, 1, g.held())
		assert.Equal(t, 1, g.budget.withdrawn, "before the wait")
		g.ended.Wait()
		assert.Len(t, v.sent, 2)
		assert.Equal(t, 1, g.budget.withdrawn)
		assert.Zero(t, g.budget.refunded)
	})
}

func TestGateNeverHoldsAFirstAttemptOfAHostThatIsDown(t *testing.T) {
	inGate(t, &retryhttp.Gate{HoldFirst: true}, func(t *testing.T, g *gated) {
		g.down()
		for _, v := range append(g.every(150*ms, 10*ms, 50, "/503"), g.at(700*ms, "/200")) {
			defer func() { assert.Zero(t, v.outcome.Held) }()
		}
	})
}

func TestGateNeverHoldsALoneRequest(t *testing.T) {
	for name, before := range map[string]func(*gated){
		"of a host that nobody knows": func(*gated) {},
		"of a host that is down":      (*gated).down,
	} {
		t.Run(name, func(t *testing.T) {
			inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
				before(g)
				v := g.at(time.Second, "/503", func(p *retryhttp.Policy) { p.MaxAttempts = 30 })
				g.ended.Wait()
				for i := range 30 {
					assert.Equal(t, time.Second+time.Duration(i)*200*ms, v.sent[i])
				}
				assert.Zero(t, v.outcome.Held)
			})
		})
	}
}

func TestGateProbesLessOftenWhileProbesFail(t *testing.T) {
	inGate(t, &retryhttp.Gate{Hold: time.Hour}, func(t *testing.T, g *gated) {
		g.down()
		for i := range 8 {
			g.at(90*ms+time.Duration(i)*ms, "/503,503@20ms") // so that the first comes due at 290 ms
		}
		g.ended.Wait()
		var probes []time.Duration
		for _, v := range g.order[len(g.order)-8:] {
			probes = append(probes, v.sent[1])
		}
		at, want := 100*ms, []time.Duration(nil)
		for _, pause := range inMillis(250, 500, 1000, 2000, 4000, 5000, 5000, 5000) {
			want = append(want, at+pause)
			at += pause + 20*ms
		}
		assert.Equal(t, want, probes)
	})
}

func TestGateProbesWhenNothingHasBeenUnderWay(t *testing.T) {
	t.Run("a first attempt is under way", func(t *testing.T) {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.down()
			v := g.at(90*ms, "/503")
			g.at(150*ms, "/503@900ms", once)
			g.ended.Wait()
			assert.Equal(t, 1050*ms+250*ms, v.sent[1])
		})
	})
	t.Run("a first attempt is under way for long", func(t *testing.T) {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.down()
			v := g.at(90*ms, "/503")
			g.at(150*ms, "/503@3s", once)
			g.ended.Wait()
			assert.Equal(t, 150*ms+time.Second, v.sent[1], "a fifth of Hold")
		})
	})
	t.Run("a first attempt is under way for long, in a long outage", func(t *testing.T) {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.down()
			v := g.at(5100*ms, "/503")
			g.at(5150*ms, "/503@3s", once)
			g.ended.Wait()
			assert.Equal(t, 8150*ms+250*ms, v.sent[1])
		})
	})
	t.Run("a first attempt is canceled", func(t *testing.T) {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.down()
			v := g.at(90*ms, "/503")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			g.with(ctx, 150*ms, "/hang", once)
			g.ended.Wait()
			assert.Equal(t, 1000*ms+250*ms, v.sent[1])
		})
	})
	t.Run("one begun when all was well does not count", func(t *testing.T) {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.at(0, "/503@1s", once)
			g.wait(1 * ms)
			g.down()
			v := g.at(90*ms, "/503")
			g.ended.Wait()
			assert.Equal(t, 350*ms, v.sent[1])
		})
	})
}

func TestGateBeginsAnOutageWithAPauseOf250ms(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		a := g.at(90*ms, "/503,503") // after which the pause is 500 ms
		g.at(400*ms, "/200")
		g.every(1000*ms, 100*ms/7, 7, "/503")
		g.at(1100*ms, "/503", once)
		b := g.at(1090*ms, "/503,200")
		g.ended.Wait()
		assert.Equal(t, 350*ms, a.sent[1])
		assert.Equal(t, 1350*ms, b.sent[1])
	})
}

func TestGateForgetsAFailureOfLongAgo(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.at(0, "/503", once)
		v := g.at(10*time.Second, "/503,200", func(p *retryhttp.Policy) { p.Backoff = retryhttp.Constant(50 * ms) })
		g.every(10*time.Second+ms, 1*ms, 10, "/503") // one connection dies
		g.ended.Wait()
		assert.Equal(t, 10*time.Second+50*ms, v.sent[1])
	})
}

func TestGateReleasesAQuarterForEachSuccess(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		var held []*visit
		for i := range 10 {
			held = append(held, g.at(80*ms+time.Duration(i)*ms, "/503,200@1h"))
		}
		g.every(300*ms, 10*ms, 11, "/200")
		g.wait(450 * ms)
		assert.Equal(t, 8, g.held())
		g.mu.Lock()
		assert.Equal(t, 330*ms, held[0].sent[1], "the oldest first, by the fourth")
		assert.Equal(t, 370*ms, held[1].sent[1])
		for _, v := range held[2:] {
			assert.Len(t, v.sent, 1)
		}
		g.mu.Unlock()
	})
}

func TestGateReleasesTwoForEachReleaseIfNoFirstAttemptSucceeds(t *testing.T) {
	// order is the times at which retries are sent that were held from 290 ms on.
	order := func(t *testing.T, n int, others func(*gated)) (sent []time.Duration) {
		inGate(t, &retryhttp.Gate{Hold: time.Hour}, func(t *testing.T, g *gated) {
			g.down()
			var held []*visit
			for i := range n {
				held = append(held, g.at(80*ms+time.Duration(i)*ms, "/503,200@60ms"))
			}
			others(g)
			g.ended.Wait()
			for _, v := range held {
				sent = append(sent, v.sent[1])
			}
		})
		return sent
	}
	t.Run("no first attempt", func(t *testing.T) {
		sent := order(t, 15, func(*gated) {})
		want := inMillis(350) // a probe
		for generation, n := range []int{2, 4, 8} {
			want = append(want, slices.Repeat([]time.Duration{410*ms + time.Duration(generation)*60*ms}, n)...)
		}
		// Each release also counts as a success, of which four release one more.
		assert.Equal(t, want[:7], sent[:7])
		assert.Equal(t, 530*ms, sent[14])
	})
	t.Run("one succeeded less than 400 ms ago", func(t *testing.T) {
		sent := order(t, 3, func(g *gated) { g.at(11*ms, "/200@290ms") }) // at 301 ms
		assert.Equal(t, inMillis(551, 551+60+125, 736+60), sent, "until 701 ms, a quarter")
	})
	t.Run("a success of what the Gate did not release", func(t *testing.T) {
		sent := order(t, 3, func(g *gated) {
			g.at(79*ms, "/503,200@200ms", func(p *retryhttp.Policy) { p.MaxElapsed = 240 * ms }) // is held for 20 ms
		})
		assert.Equal(t, 299*ms+200*ms+250*ms, sent[0])
	})
}

func TestGateQueuesRetriesBehindThoseHeld(t *testing.T) {
	// The outage is from 0 to 300 ms: until 1800 ms, retries queue. There are always some,
	// since the host answers slowly then.
	due := func(t *testing.T, hold, at time.Duration) (held bool) {
		inGate(t, &retryhttp.Gate{Hold: hold}, func(t *testing.T, g *gated) {
			g.down()
			for i := range 12 {
				g.at(90*ms+time.Duration(i)*ms, "/503,200@20s")
			}
			g.at(300*ms, "/200")
			g.at(500*ms, "/503,200@20s")
			v := g.at(at-200*ms, "/503,200")
			g.ended.Wait()
			held = v.outcome.Held > 0
		})
		return held
	}
	assert.True(t, due(t, 0, 1799*ms))
	assert.False(t, due(t, 0, 1800*ms), "five times the outage")
	assert.True(t, due(t, 1200*ms, 1480*ms))
	assert.False(t, due(t, 1200*ms, 1500*ms), "Hold at most")
}

func TestGateKeepsWhatIsHeldIfItsHostGoesDownAgain(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		for range 5 {
			g.at(90*ms, "/503,200")
		}
		g.every(300*ms, 1*ms, 4, "/200")
		g.every(310*ms, 20*ms, 100, "/503")
		g.wait(309 * ms)
		assert.Equal(t, 4, g.held())
		g.wait(2250 * ms)
		assert.Equal(t, 4, g.held())
	})
}

func TestGateHoldsNoLongerThanHold(t *testing.T) {
	for _, c := range []struct {
		name    string
		hold    time.Duration
		edit    func(*retryhttp.Policy)
		timeout time.Duration
		want    time.Duration
	}{
		{"Hold", 2 * time.Second, once, 0, 2 * time.Second},
		{"Hold's default", 0, once, 0, 5 * time.Second},
		{"a negative Hold", -1, once, 0, 0},
		{"half of what the deadline leaves", 0, once, 2200 * ms, (2000*ms - 1) / 2},
		{"half of what MaxElapsed leaves", 0, func(p *retryhttp.Policy) { p.MaxElapsed = 1200 * ms }, 0, 500 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			inGate(t, &retryhttp.Gate{Hold: c.hold}, func(t *testing.T, g *gated) {
				g.down()
				ctx := t.Context()
				if c.timeout > 0 {
					// From the request's start, at 90 ms.
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 90*ms+c.timeout)
					defer cancel()
				}
				g.every(150*ms, 20*ms, 400, "/503@30ms") // no time for a probe
				v := g.with(ctx, 90*ms, "/503", func(p *retryhttp.Policy) {
					c.edit(p)
					p.MaxAttempts = 2
				})
				g.ended.Wait()
				assert.Equal(t, 90*ms+200*ms+c.want, v.sent[1])
				assert.Equal(t, c.want, v.outcome.Held)
				assert.Equal(t, 200*ms+c.want, v.outcome.Waited)
				assert.Equal(t, 503, v.status, "the last response is not missed")
				assert.Equal(t, retryhttp.StopAttempts, v.outcome.Stop)
			})
		})
	}
}

func TestGateOfCanceledRequest(t *testing.T) {
	cause := errors.New("enough")
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		ctx, cancel := context.WithCancelCause(t.Context())
		v := g.with(ctx, 90*ms, "/503")
		next := g.at(95*ms, "/503,200")
		g.wait(310 * ms)
		require.Equal(t, 2, g.held())
		cancel(cause)
		synctest.Wait()
		assert.Equal(t, 310*ms, v.done, "at once")
		assert.Equal(t, retryhttp.StopCanceled, v.outcome.Stop)
		assert.Equal(t, 20*ms, v.outcome.Held)
		assert.ErrorIs(t, v.err, cause)
		assert.ErrorContains(t, v.err, "503")
		assert.Equal(t, 1, g.budget.refunded)
		assert.Equal(t, 1, g.held())
		g.ended.Wait()
		assert.Equal(t, 350*ms, next.sent[1], "it probes in the other's place")
	})
}

// A request that is canceled just after its release passes its turn on. The Logger runs between
// the release and the attempt.
func TestGatePassesOnTheTurnOfACanceledRequest(t *testing.T) {
	for name, c := range map[string]struct {
		successes int
		released  time.Duration
	}{
		"released by successes": {4, 330 * ms},
		"released as a probe":   {0, 350 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
				g.down()
				ctx, cancel := context.WithCancel(t.Context())
				canceled := g.with(ctx, 90*ms, "/503", func(p *retryhttp.Policy) {
					p.Logger = slog.New(onRecord(func(r slog.Record) {
						if r.Message == "held request" {
							cancel()
						}
					}))
				})
				next, last := g.at(95*ms, "/503,200@1s"), g.at(96*ms, "/503,200")
				g.every(300*ms, 10*ms, c.successes, "/200")
				g.ended.Wait()
				assert.Len(t, canceled.sent, 1)
				assert.Equal(t, c.released, canceled.done)
				assert.Equal(t, c.released, next.sent[1])
				assert.Greater(t, last.sent[1], c.released)
			})
		})
	}
}

// What is under way after a success belongs to no trouble, and no probe waits for it.
func TestRetryThatHangsAfterASuccessHoldsUpNobody(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.at(0, "/200@7s", once)
		g.every(100*ms, 500*ms, 12, "/503")
		var held []*visit
		for range 4 {
			held = append(held, g.at(6*time.Second, "/503,200?Retry-After=3"))
		}
		g.at(6500*ms, "/503,200@30s?Retry-After=1")
		g.ended.Wait()
		for _, v := range held {
			assert.LessOrEqual(t, v.outcome.Held, time.Second)
		}
	})
}

// A panic of user code between the end of a hold and the attempt gives the turn back, too.
func TestGateGetsTheTurnOfARequestThatPanicsBack(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		g.ended.Go(func() {
			g.wait(90 * ms)
			req := get(t, context.WithValue(t.Context(), visitKey{}, new(visit)))
			req.URL.Host, req.URL.Path = "host", "/503"
			p := g.policy
			p.Logger = slog.New(onRecord(func(r slog.Record) {
				if r.Message == "held request" {
					panic(http.ErrAbortHandler)
				}
			}))
			assert.Panics(t, func() { _, _ = retryhttp.New(script.Step(g.answer), p).RoundTrip(req) })
		})
		next := g.at(95*ms, "/503,200")
		g.ended.Wait()
		assert.Equal(t, 350*ms, next.sent[1])
		assert.Equal(t, 1, g.budget.refunded)
	})
}

func TestGateSurvivesAProbeThatPanics(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		g.ended.Go(func() {
			g.wait(90 * ms)
			req := get(t, context.WithValue(t.Context(), visitKey{}, new(visit)))
			req.URL.Host, req.URL.Path = "host", "/503,panic"
			assert.Panics(t, func() { _, _ = g.rt.RoundTrip(req) })
		})
		next := g.at(95*ms, "/503,200")
		g.ended.Wait()
		assert.Equal(t, 350*ms, next.sent[1], "the probe said nothing")
	})
}

// An attempt that was sent has used its turn, even if the base panics.
func TestGatePassesOnNoTurnOfAnAttemptThatPanics(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		g.ended.Go(func() {
			g.wait(90 * ms)
			req := get(t, context.WithValue(t.Context(), visitKey{}, new(visit)))
			req.URL.Host, req.URL.Path = "host", "/503,panic"
			assert.Panics(t, func() { _, _ = g.rt.RoundTrip(req) })
		})
		next := g.at(95*ms, "/503,200")
		g.every(320*ms, 2*ms, 4, "/200")
		g.ended.Wait()
		assert.Equal(t, 576*ms, next.sent[1], "250 ms after the newest success, and not with it")
	})
}

func TestGateKnowsNoKeyThatOnlySucceeds(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.at(0, "/503", once)
		g.at(10*ms, "//other/200", once)
		g.ended.Wait()
		assert.Equal(t, 1, retryhttp.Keys(g.gate))
	})
}

func TestGateForgetsNoKeyThatHoldsAndHasRoomForNoMoreThan4096(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		v := g.at(90*ms, "/503,200")
		for i := range 4200 {
			g.at(250*ms, "//h"+strconv.Itoa(i)+"/503", once)
		}
		g.wait(300 * ms)
		assert.Equal(t, 4096, retryhttp.Keys(g.gate))
		assert.Equal(t, 1, g.held())
		g.ended.Wait()
		assert.Equal(t, 350*ms, v.sent[1])

		// "host" is well, and makes room for one. The others may be forgotten 10 s after their
		// failure, which is looked for once a second.
		g.at(10*time.Second, "//the-4096th/503", once)
		g.at(10*time.Second+300*ms, "//has-no-gate/503", once)
		g.wait(10*time.Second + 500*ms)
		assert.Equal(t, 4096, retryhttp.Keys(g.gate))
		assert.Zero(t, retryhttp.FailuresInARow(g.gate, "has-no-gate"))
		g.at(11*time.Second, "//the-second/503", once)
		g.wait(11*time.Second + ms)
		assert.Equal(t, 2, retryhttp.Keys(g.gate))
	})
}

func TestStatusAndGaugesOfARequestWithoutAURL(t *testing.T) {
	var key func(*http.Request) string
	for range 2 {
		gate, bucket, hedge := &retryhttp.Gate{Key: key}, &retryhttp.TokenBucket{Key: key}, &retryhttp.Hedge{Key: key}
		_, err := retryhttp.New(script.New(script.Fail(errBroken)), retryhttp.Policy{Gate: gate, MaxAttempts: 1}).
			RoundTrip(requestTo("host")) // a Gate without results looks at nothing
		require.Error(t, err)
		for _, req := range []*http.Request{nil, {}} {
			assert.Zero(t, gate.Status(req))
			assert.EqualValues(t, 5, bucket.Status(req).Tokens)
			_, known := hedge.Delay(req)
			assert.False(t, known)
		}
		key = func(req *http.Request) string { return req.URL.Path }
	}
}

// The panic comes while the Gate holds a retry, and other goroutines ask it.
func TestKeyThatPanicsPanicsInTheCallerOfStatusAlone(t *testing.T) {
	panics := func(req *http.Request) string {
		if req.URL.Path == "/panic" {
			panic("no key")
		}
		return req.URL.Host
	}
	inGate(t, &retryhttp.Gate{Key: panics}, func(t *testing.T, g *gated) {
		g.down()
		held := g.at(90*ms, "/503,200")
		g.wait(295 * ms)
		bad := requestTo("host")
		bad.URL.Path = "/panic"
		var asking sync.WaitGroup
		for range 10 {
			asking.Go(func() {
				assert.PanicsWithValue(t, "no key", func() { g.gate.Status(bad) })
			})
		}
		asking.Wait()
		down := g.gate.Status(requestTo("host")).Down
		assert.True(t, down)
		assert.Equal(t, 1, g.held())
		g.ended.Wait()
		assert.Equal(t, 200, held.status)
		down = g.gate.Status(requestTo("host")).Down
		assert.False(t, down)
	})
}

// Retries wait in line because their budget is spent. Seven failures do not make their host down.
func TestStatusIsNotDownWhileOnlyALineWaits(t *testing.T) {
	for failures, want := range map[int]bool{7: false, 8: true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLining(t, nil)
			for i := range failures {
				l.at(time.Duration(i)*20*ms, "/503,200,"+strconv.Itoa(i))
			}
			time.Sleep(300 * ms)
			s := l.gate.Status(l.request("/"))
			assert.Equal(t, want, s.Down, "after %d failures", failures)
			assert.Zero(t, s.Closed)
			assert.Greater(t, s.Held, 4)
			assert.Equal(t, s.Held, s.InLine)
			l.others.Wait()
		})
	}
}

// gated makes requests through a Transport with a Gate, in a bubble. The path of a
// request says what its attempts meet, one after the other; the last holds for all that
// follow: "/503,200". "hang" is no answer until the context ends, "broken" an error. The
// query is what a response has in its header.
type gated struct {
	t      *testing.T
	start  time.Time
	gate   *retryhttp.Gate
	budget *countingBudget
	policy retryhttp.Policy
	rt     http.RoundTripper
	header http.Header // of the requests that are made next
	ended  sync.WaitGroup

	mu    sync.Mutex
	order []*visit // as attempts were sent
}

// visit is one request.
type visit struct {
	sent    []time.Duration // its attempts
	outcome retryhttp.Outcome
	status  int
	err     error
	done    time.Duration
}

// newGated has retries wait for 200 ms, and as many as the Gate lets through.
func newGated(t *testing.T, gate *retryhttp.Gate) *gated {
	g := &gated{t: t, start: time.Now(), gate: gate, budget: new(countingBudget)}
	g.policy = retryhttp.Policy{
		Gate: gate, Budget: g.budget, Backoff: retryhttp.Constant(200 * time.Millisecond), MaxAttempts: 2,
	}
	g.rt = retryhttp.New(script.Step(g.answer), g.policy)
	return g
}

type visitKey struct{}

func (g *gated) answer(req *http.Request) (*http.Response, error) {
	v := req.Context().Value(visitKey{}).(*visit)
	g.mu.Lock()
	v.sent = append(v.sent, time.Since(g.start))
	n := len(v.sent) // a hedge may be sent meanwhile
	g.order = append(g.order, v)
	g.mu.Unlock()
	answers := strings.Split(strings.Trim(req.URL.Path, "/"), ",")
	answer, latency, _ := strings.Cut(answers[min(n, len(answers))-1], "@")
	if d, err := time.ParseDuration(latency); err == nil {
		select {
		case <-time.After(d):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	switch answer {
	case "hang":
		<-req.Context().Done()
		return nil, req.Context().Err()
	case "broken":
		return nil, errBroken
	case "permanent":
		return nil, retryhttp.Permanent(errBroken)
	case "panic":
		panic(http.ErrAbortHandler)
	}
	code, err := strconv.Atoi(answer)
	require.NoError(g.t, err)
	resp := script.Response(req, code)
	for name, values := range req.URL.Query() {
		resp.Header[http.CanonicalHeaderKey(name)] = values
	}
	return resp, nil
}

// at makes a request at a time since the start, of a host "host" unless the path begins
// with another: "//other/503".
func (g *gated) at(at time.Duration, path string, edits ...func(*retryhttp.Policy)) *visit {
	return g.with(context.Background(), at, path, edits...)
}

func (g *gated) with(ctx context.Context, at time.Duration, path string, edits ...func(*retryhttp.Policy)) *visit {
	v := new(visit)
	for _, edit := range edits {
		ctx = retryhttp.WithPolicy(ctx, edit)
	}
	if !strings.HasPrefix(path, "//") {
		path = "//host" + path
	}
	u, err := url.Parse("http:" + path)
	require.NoError(g.t, err)
	req := (&http.Request{Method: http.MethodGet, URL: u, Header: g.header}).WithContext(context.WithValue(ctx, visitKey{}, v))
	g.ended.Go(func() {
		time.Sleep(at - time.Since(g.start))
		resp, err := g.rt.RoundTrip(req)
		v.done, v.err = time.Since(g.start), err
		if err != nil {
			v.outcome = errorOf(g.t, err).Outcome
			return
		}
		v.outcome, v.status = retryhttp.OutcomeOf(resp), resp.StatusCode
	})
	return v
}

// once has a request that is not retried.
func once(p *retryhttp.Policy) { p.MaxAttempts = 1 }

// every makes n requests in equal intervals, which are not retried.
func (g *gated) every(first, interval time.Duration, n int, path string) (visits []*visit) {
	for i := range n {
		visits = append(visits, g.at(first+time.Duration(i)*interval, path, once))
	}
	return visits
}

// down makes eight requests fail, the first at 0, the last at 100 ms. So the host is down from 100
// ms on.
func (g *gated) down() {
	g.every(0, 100*time.Millisecond/7, 7, "/503")
	g.at(100*time.Millisecond, "/503", once)
}

// wait waits until all that happens until a time since the start has happened.
func (g *gated) wait(until time.Duration) {
	time.Sleep(until - time.Since(g.start))
	synctest.Wait()
}

// held is how many of the requests to "host" are held now.
func (g *gated) held() int {
	return g.gate.Status(requestTo("host")).Held
}

func inMillis(list ...float64) (durations []time.Duration) {
	for _, ms := range list {
		durations = append(durations, time.Duration(ms*float64(time.Millisecond)))
	}
	return durations
}

type onRecord func(slog.Record)

func (f onRecord) Enabled(context.Context, slog.Level) bool      { return true }
func (f onRecord) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f onRecord) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f onRecord) WithGroup(string) slog.Handler                 { return f }
