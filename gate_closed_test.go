package retryhttp_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

func TestGateIsNotClosedForAPolicyThatIgnoresTheHeader(t *testing.T) {
	inGate(t, &retryhttp.Gate{HoldFirst: true}, func(t *testing.T, g *gated) {
		g.at(0, "/429?Retry-After=2", once)
		v := g.at(100*ms, "/503,200", ignoreRetryAfter)
		g.ended.Wait()
		assert.Equal(t, inMillis(100, 300), v.sent)
	})
}

func TestGateHoldsFirstAttemptsWhileClosed(t *testing.T) {
	for _, c := range []struct {
		gate *retryhttp.Gate
		held bool
	}{
		{&retryhttp.Gate{}, false},
		{&retryhttp.Gate{HoldFirst: true}, true},
		{&retryhttp.Gate{HoldFirst: true, Hold: 1900 * ms}, true}, // as long as the closure lasts
		{&retryhttp.Gate{HoldFirst: true, Hold: 1899 * ms}, false},
	} {
		inGate(t, c.gate, func(t *testing.T, g *gated) {
			g.at(0, "/429?Retry-After=2", once)
			v := g.at(100*ms, "/200")
			g.wait(101 * ms)
			assert.Equal(t, c.held, g.held() == 1)
			g.ended.Wait()
			if c.held {
				assertSpread(t, v.sent[0], 2*time.Second)
			} else {
				assert.Equal(t, inMillis(100), v.sent)
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
		assert.Equal(t, inMillis(80, 330), held[0].sent)
		assert.Equal(t, inMillis(81, 360), held[1].sent, "the success of the first counts")
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
				check(2*time.Second, false, 0, 0)
				g.every(2*time.Second, 20*ms, 8, "/503")
				g.at(2*time.Second+ms, "/429?Retry-After=60", once)
				check(3*time.Second, true, 59001*ms, 0)
				assert.Equal(t, key != nil, g.gate.Status(requestTo("other")).Down)
				// A scheduler that waits for the host would otherwise wait for ever.
				check(12140*ms-1, true, 49861*ms+1, 0)
				check(12140*ms, false, 49861*ms, 0)
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

// A Gate keeps 1,024 closures for a host. All other tenants wait as their own responses ask. Looking for
// closures that are over takes time, and a host may send any number of 429s, so it looks ten times a second.
func TestGateKeepsABoundedNumberOfClosures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(retryhttp.Gate)
		keeps := func(i int, d time.Duration) bool {
			req := as(bearer(strconv.Itoa(i)))
			retryhttp.CloseFor(g, req, d)
			return g.Status(req).Closed == d
		}
		for i := range 1024 {
			require.True(t, keeps(i, 10*ms))
		}
		assert.False(t, keeps(2000, time.Second), "it looks, and none is over")
		time.Sleep(9 * ms)
		assert.True(t, keeps(0, 200*ms), "which has a closure, and extends it")
		time.Sleep(5 * ms)
		assert.False(t, keeps(2001, time.Second), "it has looked 14 ms ago")
		assert.Equal(t, 1024, retryhttp.LimitedCredentials(g, "host"))
		time.Sleep(86 * ms)
		assert.True(t, keeps(2002, 10*ms))
		assert.Equal(t, 2, retryhttp.LimitedCredentials(g, "host"), "those that are over make room")
		assert.Equal(t, 109*ms, g.Status(as(bearer("0"))).Closed)
		time.Sleep(109 * ms)
		assert.Zero(t, g.Status(as(bearer("0"))).Closed)
		assert.Zero(t, retryhttp.LimitedCredentials(g, "host"), "nothing is closed")
	})
}

func TestGateMakesRoomForClosuresAfterTheClockWentBack(t *testing.T) {
	g := new(retryhttp.Gate)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		for i := range 1025 {
			retryhttp.CloseFor(g, as(bearer(strconv.Itoa(i))), 2*time.Second)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		retryhttp.CloseFor(g, as(bearer("new")), 2*time.Second)
		assert.Equal(t, 2*time.Second, g.Status(as(bearer("new"))).Closed)
	})
}

func TestGateOfManyTenantsAtOnce(t *testing.T) {
	inGate(t, &retryhttp.Gate{HoldFirst: true}, func(t *testing.T, g *gated) {
		paths := []string{"/429,200?Retry-After=1", "/503,200?Retry-After=1", "/200?" + exhausted, "/503,200", "/200"}
		for i := range 500 {
			g.header = bearer(strconv.Itoa(i % 7))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				time.AfterFunc(time.Duration(i+1)*10*ms, cancel)
			}
			g.with(ctx, time.Duration(i/50)*100*ms, paths[i%5])
		}
		g.ended.Wait()
		for i := range 7 {
			assert.Zero(t, g.gate.Status(as(bearer(strconv.Itoa(i)))).Held)
		}
	})
}
