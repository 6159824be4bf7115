package retryhttp_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/pause"
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

// The conformance vectors have the statuses and errors of the default policy.
func TestGateCountsResults(t *testing.T) {
	retryAll := func(p *retryhttp.Policy) { p.Classify = always(retryhttp.Retryable) }
	make503 := func(p *retryhttp.Policy) { // of an error that an API answers with a 200
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			a.Response.StatusCode = http.StatusServiceUnavailable
			return retryhttp.Retryable
		}
	}
	buffer := func(p *retryhttp.Policy) { p.BufferBytes = 100 }
	const nothing, failure = 1, 2 // the failures in a row, after one
	for _, c := range []struct {
		path string
		edit func(*retryhttp.Policy)
		want int
	}{
		{"/permanent", once, nothing},
		{"/503@1h", once, nothing}, // until the caller has had enough
		{"/200", retryAll, nothing},
		{"/200", make503, failure},
		{"/499", retryAll, nothing},
		{"/500", retryAll, failure},
		{"/cut404", buffer, failure},
		{"/cut500", buffer, failure},
		{"/cut408", buffer, nothing},
		{"/cut429", buffer, nothing},
	} {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.at(0, "/503", once)
			ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
			defer cancel()
			g.with(ctx, 10*ms, c.path, once, c.edit)
			g.ended.Wait()
			assert.EqualValues(t, c.want, retryhttp.FailuresInARow(g.gate, "host"), c.path)
		})
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

// A request that ends says nothing about its host, whatever comes of its attempt.
func TestGateIsNotDownByRequestsThatHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retryhttp.Policy{Gate: new(retryhttp.Gate)}
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
				cancel()
				return script.Status(503)(req)
			}), p)
			assert.Equal(t, retryhttp.StopCanceled, retryhttp.OutcomeOf(answerTo(t, rt, get(t, ctx))).Stop)
			time.Sleep(20 * ms)
		}
		assert.False(t, p.Gate.Status(get(t, t.Context())).Down)
	})
}

func TestGateBeginsAnOutageWithAPauseOf250ms(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		g.at(90*ms, "/503,503") // after which the pause is 500 ms
		g.at(400*ms, "/200")
		g.every(1000*ms, 15*ms, 8, "/503")
		v := g.at(1090*ms, "/503,200")
		g.ended.Wait()
		assert.Equal(t, 1105*ms+250*ms, v.sent[1])
	})
}

// A request that is canceled just after its release passes its turn on, once, and so does one whose Logger
// panics: the Logger runs between the release and the attempt.
func TestGatePassesOnTheTurnOfACanceledRequest(t *testing.T) {
	cancels := func(cancel func()) { cancel() }
	panics := func(func()) { panic(http.ErrAbortHandler) }
	for _, c := range []struct {
		name      string
		log       func(cancel func())
		onDone    func(retryhttp.Attempt, retryhttp.Outcome)
		successes int
		released  time.Duration
	}{
		{"released by successes", cancels, nil, 4, 330 * ms},
		{"released as a probe", cancels, nil, 0, 350 * ms},
		{"panics after its release", panics, nil, 0, 350 * ms},
		{"panics at its end", cancels, func(retryhttp.Attempt, retryhttp.Outcome) { panic(http.ErrAbortHandler) }, 4, 330 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
				g.down()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := g.with(ctx, 90*ms, "/503", func(p *retryhttp.Policy) {
					p.Logger, p.OnDone = slog.New(whenHeld(func() { c.log(cancel) })), c.onDone
				})
				next, last := g.at(95*ms, "/503,200@1s"), g.at(96*ms, "/503,200")
				g.every(300*ms, 10*ms, c.successes, "/200")
				g.ended.Wait()
				assert.Len(t, ended.sent, 1)
				assert.Equal(t, c.released, ended.done)
				assert.Equal(t, 1, g.budget.refunded)
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
		g.at(6500*ms, "/503,200@30s?Retry-After=1")
		v := g.at(6*time.Second, "/503,200?Retry-After=3")
		g.ended.Wait()
		assert.LessOrEqual(t, v.outcome.Held, time.Second)
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
		g.at(11*time.Second, "//only-succeeds/200", once)
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

// The panic comes while the Gate holds a retry, and leaves it as it is.
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
		assert.PanicsWithValue(t, "no key", func() { g.gate.Status(bad) })
		assert.Equal(t, retryhttp.GateStatus{Down: true, Held: 1}, g.gate.Status(requestTo("host")))
		g.ended.Wait()
		assert.Equal(t, 200, held.status)
		assert.Zero(t, g.gate.Status(requestTo("host")))
	})
}

// Retries wait in line because their budget is spent. Seven failures do not make their host down.
func TestStatusIsNotDownWhileOnlyALineWaits(t *testing.T) {
	for failures, want := range map[int]bool{7: false, 8: true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLining(t, nil)
			for i := range failures {
				l.at(time.Duration(i)*20*ms, "/503,200")
			}
			time.Sleep(300 * ms)
			s := l.gate.Status(l.request("/"))
			assert.Greater(t, s.Held, 4)
			assert.Equal(t, retryhttp.GateStatus{Down: want, Held: s.Held, InLine: s.Held}, s, "after %d failures", failures)
			l.others.Wait()
		})
	}
}

// exhausted is the query of a response with a limit of which nothing remains for 2 s.
const exhausted = "RateLimit=%22p%22%3Br%3D0%3Bt%3D2"

func ignoreRetryAfter(p *retryhttp.Policy) { p.MaxRetryAfter = -1 }

// assertSpread asserts that what a closure of 2 s has held was sent in the second after its end.
func assertSpread(t *testing.T, sent, end time.Duration, message ...any) {
	t.Helper()
	assert.GreaterOrEqual(t, sent, end, message...)
	assert.LessOrEqual(t, sent, end+time.Second, message...)
}

// checkClosed checks for each path whether a response that the path asks for closes its key for 2 s.
func checkClosed(t *testing.T, paths map[string]bool, edits ...func(*retryhttp.Policy)) {
	t.Helper()
	for path, closes := range paths {
		t.Run(path, func(t *testing.T) {
			inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
				v := g.at(0, "/503,200")
				g.at(100*ms, path, append(edits, once)...)
				g.ended.Wait()
				if closes {
					assertSpread(t, v.sent[1], 2100*ms)
				} else {
					assert.Equal(t, 200*ms, v.sent[1])
				}
				assert.Equal(t, v.sent[1]-200*ms, v.outcome.Held)
			})
		})
	}
}

func TestGateIsClosedByRetryAfter(t *testing.T) {
	checkClosed(t, map[string]bool{
		"/429?Retry-After=2":       true,
		"/429?Retry-After-Ms=2000": true,
		"/429":                     false,
		"/503?Retry-After=2":       false, // often one replica of many
		"/500?Retry-After=2&X-RateLimit-Remaining=5": false,
		"/200?Retry-After=2":                         false,
	})
	checkClosed(t, map[string]bool{"/429?Retry-After=2": false, "/200?" + exhausted: false}, ignoreRetryAfter)
	// The server has refused the client, whatever the client makes of it.
	checkClosed(t, map[string]bool{"/429?Retry-After=2": true}, func(p *retryhttp.Policy) { p.Classify = always(retryhttp.Final) })
}

func TestGateIsClosedByRateLimit(t *testing.T) {
	const another = "&X-RateLimit-Remaining=0&X-RateLimit-Reset=2"
	checkClosed(t, map[string]bool{
		"/200?" + exhausted:                                true,
		"/500?" + exhausted:                                true,
		"/200?" + exhausted + "&Age=1":                     false,
		"/200?RateLimit=%22p%22%3Br%3D0":                   false,
		"/200?RateLimit=%22p%22%3Br%3D0%3Bt%3D61":          false, // above MaxRetryAfter
		"/200?" + another:                                  true,
		"/200?RateLimit=malformed" + another:               true,
		"/200?RateLimit=%22p%22%3Br%3D1%3Bt%3D2" + another: false,
		// A Retry-After wins, on any response.
		"/429?RateLimit=%22p%22%3Br%3D0%3Bt%3D50&Retry-After=2": true,
		"/403?RateLimit=%22p%22%3Br%3D0%3Bt%3D50&Retry-After=2": true,
		"/403?RateLimit=%22p%22%3Br%3D0,&Retry-After=2":         false, // malformed
	})
}

// The server is away for longer than MaxRetryAfter. Others come back after that time.
func TestGateIsClosedForMaxRetryAfterAtMost(t *testing.T) {
	checkClosed(t, map[string]bool{
		"/429?Retry-After=3600":                   true,
		"/200?" + exhausted + "&Retry-After=3600": true, // it wins
	}, func(p *retryhttp.Policy) { p.MaxRetryAfter = 2 * time.Second })
}

func TestGateIsClosedForAsLongAsTheLongestAsks(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		v := g.at(0, "/503,200")
		g.at(50*ms, "/429?Retry-After=1", once)
		g.at(500*ms, "/429?Retry-After=3", once) // while the retry is held
		g.ended.Wait()
		assert.GreaterOrEqual(t, v.sent[1], 3500*ms)
	})
}

// A host that refuses a few requests in a hundred closes its key all the time.
func TestGateIsNotClosedForGoodByAFewRefusals(t *testing.T) {
	for path, holdFirst := range map[string]bool{"/503,200": false, "/200": true} {
		inGate(t, &retryhttp.Gate{HoldFirst: holdFirst}, func(t *testing.T, g *gated) {
			g.every(0, 100*ms, 200, "/429?Retry-After=1")
			g.every(50*ms, 100*ms, 200, "/200")
			var visits []*visit
			for i := range 50 {
				visits = append(visits, g.at(5*time.Second+time.Duration(i)*201*ms, path))
			}
			g.ended.Wait()
			for _, v := range visits {
				assert.LessOrEqual(t, v.outcome.Held, 2500*ms, "%s: twice what was asked, and the spread", path)
			}
		})
	}
}

func TestGateHoldsFirstAttemptsWhileClosed(t *testing.T) {
	for _, c := range []struct {
		gate *retryhttp.Gate
		edit func(*retryhttp.Policy)
		held bool
	}{
		{&retryhttp.Gate{}, nil, false},
		{&retryhttp.Gate{HoldFirst: true}, nil, true},
		{&retryhttp.Gate{HoldFirst: true}, ignoreRetryAfter, false},
		{&retryhttp.Gate{HoldFirst: true, Hold: 1900 * ms}, nil, true}, // as long as the closure lasts
		{&retryhttp.Gate{HoldFirst: true, Hold: 1899 * ms}, nil, false},
	} {
		inGate(t, c.gate, func(t *testing.T, g *gated) {
			g.at(0, "/429?Retry-After=2", once)
			v := g.at(100*ms, "/200", c.edit)
			g.wait(101 * ms)
			assert.Equal(t, c.held, g.held() == 1)
			g.ended.Wait()
			if c.held {
				assertSpread(t, v.sent[0], 2*time.Second)
			} else {
				assert.Equal(t, seconds(0.1), v.sent)
			}
			held := v.sent[0] - 100*ms
			assert.Equal(t, retryhttp.Outcome{
				Attempts: 1, Elapsed: held, Waited: held, Held: held, Stop: retryhttp.StopFinal,
			}, v.outcome)
			assert.Zero(t, g.budget.withdrawn, "it draws no token")
		})
	}
}

func TestGateOfAFirstAttemptThatIsCanceled(t *testing.T) {
	inGate(t, &retryhttp.Gate{HoldFirst: true}, func(t *testing.T, g *gated) {
		g.at(0, "/429?Retry-After=2", once)
		ctx, cancel := context.WithCancel(t.Context())
		v := g.with(ctx, 100*ms, "/200")
		g.wait(500 * ms)
		cancel()
		g.ended.Wait()
		assert.Empty(t, v.sent)
		assert.ErrorIs(t, v.err, context.Canceled)
		assert.Equal(t, retryhttp.Outcome{
			Elapsed: 400 * ms, Waited: 400 * ms, Held: 400 * ms, Stop: retryhttp.StopCanceled,
		}, v.outcome)
	})
}

func TestMaxElapsedIncludesTheTimeInWhichAFirstAttemptIsHeld(t *testing.T) {
	inGate(t, &retryhttp.Gate{HoldFirst: true}, func(t *testing.T, g *gated) {
		g.at(0, "/429?Retry-After=1", once)
		v := g.at(100*ms, "/503,200", func(p *retryhttp.Policy) {
			p.MaxElapsed, p.Backoff = 2*time.Second, retryhttp.Constant(1100*ms)
		})
		g.ended.Wait()
		assert.Len(t, v.sent, 1)
		assert.Equal(t, retryhttp.StopDeadline, v.outcome.Stop)
	})
}

func bearer(tenant string) http.Header { return http.Header{"Authorization": {"Bearer " + tenant}} }

func as(header http.Header) *http.Request {
	req := requestTo("host")
	req.Header = header
	return req
}

// oneKey is a Key of a Gate, which knows better than credentials what shares a limit.
func oneKey(*http.Request) string { return "all" }

func TestGateIsClosedByA429ForTheSameCredentials(t *testing.T) {
	type header = http.Header
	for _, c := range []struct {
		name   string
		closes bool
		a, b   header
	}{
		{"the same", true, bearer("a"), bearer("a")},
		{"others", false, bearer("a"), bearer("b")},
		{"none at all", true, nil, header{"X-Api-Key": nil}},
		{"none, and some", false, nil, bearer("a")},
		{"other fields", true, header{"Cookie": {"a"}, "X-Tenant": {"a"}}, header{"Cookie": {"b"}}},
		{"X-Api-Key of others", false, header{"X-Api-Key": {"a"}}, header{"X-Api-Key": {"b"}}},
		{"Api-Key of others", false, header{"Api-Key": {"a"}}, header{"Api-Key": {"b"}}},
		{"X-Goog-Api-Key of others", false, header{"X-Goog-Api-Key": {"a"}}, header{"X-Goog-Api-Key": {"b"}}},
		{"the same value in another field", false, header{"X-Api-Key": {"a"}}, header{"Api-Key": {"a"}}},
		{"one more field", false, bearer("a"), header{"Authorization": {"Bearer a"}, "X-Api-Key": {"b"}}},
		{"one of several lines", false, header{"Authorization": {"a", "b"}}, header{"Authorization": {"a"}}},
		{"lines that are split differently", false, header{"Api-Key": {"a", "bc"}}, header{"Api-Key": {"ab", "c"}}},
		{"lines in one", false, header{"Api-Key": {"a", "b"}}, header{"Api-Key": {"aApi-Keyb"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for path, busy := range map[string]bool{
				"/429?Retry-After=2": false, "/429?" + exhausted: false, "/200?" + exhausted: false, "/503?Retry-After=2": true,
			} {
				for _, gate := range []*retryhttp.Gate{{}, {Key: oneKey}} {
					inGate(t, gate, func(t *testing.T, g *gated) {
						g.header = c.b
						v := g.at(0, "/503,200")
						g.header = c.a
						g.at(100*ms, path, once)
						g.ended.Wait()
						if !busy && (c.closes || gate.Key != nil) {
							assertSpread(t, v.sent[1], 2100*ms, "%s, Key: %t", path, gate.Key != nil)
						} else {
							assert.Equal(t, 200*ms, v.sent[1], "%s, Key: %t", path, gate.Key != nil)
						}
					})
				}
			}
		})
	}
}

// Retries that ignore closures keep their turns. They must not hand them on.
func TestGateReleasesWhatIgnoresThatItsCredentialsAreLimited(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		held := g.hold(2, "/503,200", ignoreRetryAfter)
		g.at(295*ms, "/429?Retry-After=2", once) // which postpones the next probe
		g.every(300*ms, 10*ms, 8, "/200")
		g.ended.Wait()
		assert.Equal(t, seconds(0.08, 0.33), held[0].sent)
		assert.Equal(t, seconds(0.081, 0.36), held[1].sent, "the success of the first counts")
	})
}

func TestGateStatus(t *testing.T) {
	for name, key := range map[string]func(*http.Request) string{"a nil Key": nil, "Key": oneKey} {
		t.Run(name, func(t *testing.T) {
			inGate(t, &retryhttp.Gate{Key: key}, func(t *testing.T, g *gated) {
				check := func(at time.Duration, down bool, closed, forOthers time.Duration) {
					t.Helper()
					g.wait(at)
					if key != nil {
						forOthers = closed
					}
					assert.Equal(t, retryhttp.GateStatus{Down: down, Closed: closed}, g.gate.Status(as(bearer("a"))))
					assert.Equal(t, retryhttp.GateStatus{Down: down, Closed: forOthers}, g.gate.Status(as(bearer("b"))))
					assert.Equal(t, retryhttp.GateStatus{Down: down, Closed: forOthers}, g.gate.Status(as(nil)))
				}
				g.header = bearer("a")
				check(0, false, 0, 0)
				g.at(0, "/429?Retry-After=2", once)
				check(500*ms, false, 1500*ms, 0)
				g.at(600*ms, "/503?Retry-After=1", once)
				check(time.Second, false, time.Second, 600*ms)
				g.at(1900*ms, "/200", once) // which ends the run of the 503
				check(2*time.Second, false, 0, 0)
				g.every(2*time.Second, 10*ms, 8, "/503")
				g.at(2*time.Second+ms, "/429?Retry-After=60", once)
				check(2100*ms-1, false, 59901*ms+1, 0)
				check(2100*ms, true, 59901*ms, 0)
				assert.Equal(t, key != nil, g.gate.Status(requestTo("other")).Down)
				// A scheduler that waits for the host would otherwise wait for ever.
				check(12070*ms-1, true, 49931*ms+1, 0)
				check(12070*ms, false, 49931*ms, 0)
			})
		})
	}
	t.Run("while a retry is held", func(t *testing.T) {
		inGate(t, &retryhttp.Gate{Hold: time.Minute}, func(t *testing.T, g *gated) {
			g.down()
			g.at(150*ms, "/503@1h", once) // under way, so that there is no probe
			g.at(90*ms, "/503,200")
			g.wait(10 * time.Second)
			assert.Equal(t, retryhttp.GateStatus{Down: true, Held: 1}, g.gate.Status(requestTo("host")))
		})
	})
	t.Run("a negative Hold", func(t *testing.T) {
		inGate(t, &retryhttp.Gate{Hold: -1}, func(t *testing.T, g *gated) {
			g.down()
			g.at(0, "/429?Retry-After=2", once)
			g.wait(200 * ms)
			assert.Zero(t, g.gate.Status(requestTo("host")))
		})
	})
}

func TestGateHeldCountsRequestsWithAnyCredentials(t *testing.T) {
	inGate(t, &retryhttp.Gate{HoldFirst: true}, func(t *testing.T, g *gated) {
		check := func(at time.Duration, held int) {
			t.Helper()
			g.wait(at)
			assert.Equal(t, held, g.gate.Status(as(bearer("a"))).Held)
			assert.Equal(t, held, g.gate.Status(as(nil)).Held)
		}
		g.header = bearer("a")
		g.at(0, "/429?Retry-After=2", once)
		for range 3 {
			g.at(0, "/503,200")
		}
		g.header = bearer("b")
		g.at(0, "/429?Retry-After=4", once)
		g.at(0, "/503,200")
		check(300*ms, 4)
		g.header = nil
		g.at(400*ms, "/503?Retry-After=1", once)
		g.at(450*ms, "/200") // a first attempt waits for a 503's, too
		check(700*ms, 5)
		check(4*time.Second+1, 1) // after a closure, requests wait for a random time
		g.ended.Wait()
		check(time.Hour, 0)
	})
}

// gated makes requests through a Transport with a Gate, in a bubble. The path of a request says what its
// attempts meet, one after the other; the last holds for all that follow: "/503,200". "503@1s" comes after
// a second. "broken" is an error, and "cut200" a response whose body breaks off. The query is what a
// response has in its header.
type gated struct {
	t      *testing.T
	start  time.Time
	gate   *retryhttp.Gate
	budget *countingBudget
	policy retryhttp.Policy
	rt     http.RoundTripper
	header http.Header          // of the requests that are made next
	upload io.ReadCloser        // the body of the next request, which is then a PUT
	body   func() io.ReadCloser // of a 503; nil: a short text
	ended  sync.WaitGroup

	mu sync.Mutex // guards what its visits have sent
}

// visit is one request.
type visit struct {
	sent    []time.Duration // its attempts
	outcome retryhttp.Outcome
	status  int
	text    string // of the response, unless it breaks off
	err     error
	done    time.Duration
}

// newGated has retries wait for 200 ms, and as many as the Gate lets through.
func newGated(t *testing.T, gate *retryhttp.Gate) *gated {
	g := &gated{t: t, start: time.Now(), gate: gate, budget: new(countingBudget)}
	g.policy = retryhttp.Policy{
		Gate: gate, Budget: g.budget, Backoff: retryhttp.Constant(200 * ms), MaxAttempts: 2,
	}
	g.rt = retryhttp.New(script.Step(g.answer), g.policy)
	return g
}

type visitKey struct{}

func (g *gated) answer(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	v := req.Context().Value(visitKey{}).(*visit)
	g.mu.Lock()
	v.sent = append(v.sent, time.Since(g.start))
	n := len(v.sent) // a hedge may be sent meanwhile
	g.mu.Unlock()
	answers := strings.Split(strings.Trim(req.URL.Path, "/"), ",")
	answer, latency, _ := strings.Cut(answers[min(n, len(answers))-1], "@")
	if d, err := time.ParseDuration(latency); err == nil {
		if pause.For(req.Context(), d) != nil {
			return nil, req.Context().Err()
		}
	}
	switch answer {
	case "broken":
		return nil, errBroken
	case "permanent":
		return nil, retryhttp.Permanent(errBroken)
	case "panic":
		panic(http.ErrAbortHandler)
	}
	status, cut := strings.CutPrefix(answer, "cut")
	code, err := strconv.Atoi(status)
	require.NoError(g.t, err)
	resp := script.Response(req, code)
	if cut {
		resp.Body, resp.ContentLength = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)), 10
	}
	if code == 503 && g.body != nil {
		resp.Body = g.body()
	}
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
	for _, edit := range edits {
		ctx = retryhttp.WithPolicy(ctx, edit)
	}
	req, v := g.visit(ctx, path)
	g.ended.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				assert.Equal(g.t, http.ErrAbortHandler, p)
				v.done = time.Since(g.start)
			}
		}()
		time.Sleep(at - time.Since(g.start))
		resp, err := g.rt.RoundTrip(req)
		v.done, v.err = time.Since(g.start), err
		if err != nil {
			v.outcome = errorOf(g.t, err).Outcome
			return
		}
		defer resp.Body.Close()
		v.outcome, v.status = retryhttp.OutcomeOf(resp), resp.StatusCode
		if text, err := io.ReadAll(resp.Body); err == nil {
			v.text = string(text)
		}
	})
	return v
}

// visit returns a request that is not made yet.
func (g *gated) visit(ctx context.Context, path string) (*http.Request, *visit) {
	if !strings.HasPrefix(path, "//") {
		path = "//host" + path
	}
	u, err := url.Parse("http:" + path)
	require.NoError(g.t, err)
	v := new(visit)
	req := &http.Request{Method: http.MethodGet, URL: u, Header: g.header}
	if g.upload != nil {
		req.Method, req.Body, req.ContentLength, g.upload = http.MethodPut, g.upload, 1, nil
	}
	return req.WithContext(context.WithValue(ctx, visitKey{}, v)), v
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
	g.every(0, 100*ms/7, 7, "/503")
	g.at(100*ms, "/503", once)
}

// hold makes n requests whose retries are held from 280 ms on, one after the other, if the host is down.
func (g *gated) hold(n int, path string, edits ...func(*retryhttp.Policy)) (held []*visit) {
	for i := range n {
		held = append(held, g.at(80*ms+time.Duration(i)*ms, path, edits...))
	}
	return held
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

// whenHeld is for a Logger, and is called when a request was held.
type whenHeld func()

func (f whenHeld) Enabled(context.Context, slog.Level) bool { return true }
func (f whenHeld) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f whenHeld) WithGroup(string) slog.Handler            { return f }

func (f whenHeld) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "held request" {
		f()
	}
	return nil
}
