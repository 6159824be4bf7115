package retryhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// afterClosed returns when a retry is sent that comes due at 200 ms, and for how long it
// was held. At 100 ms, another request with its key has the response that the path asks
// for.
func afterClosed(t *testing.T, gate *retryhttp.Gate, path string, edits ...func(*retryhttp.Policy)) (sent, held time.Duration) {
	t.Helper()
	inGate(t, gate, func(t *testing.T, g *gated) {
		v := g.at(0, "/503,200")
		g.at(100*ms, path, append(edits, once)...)
		g.ended.Wait()
		sent, held = v.sent[1], v.outcome.Held
	})
	return sent, held
}

func TestGateIsClosedByRetryAfter(t *testing.T) {
	for path, closes := range map[string]bool{
		"/429?Retry-After=2":                         true,
		"/429?Retry-After-Ms=2000":                   true,
		"/503?Retry-After=2":                         false, // often one replica of many
		"/429?Retry-After=60":                        true,
		"/429?Retry-After=61":                        true, // above MaxRetryAfter
		"/429?Retry-After=9999999":                   true,
		"/429?Retry-After=0":                         false,
		"/429":                                       false,
		"/500?Retry-After=2":                         false,
		"/500?Retry-After=2&X-RateLimit-Remaining=5": false,
		"/200?Retry-After=2":                         false,
		"/301?Retry-After=2":                         false,
	} {
		t.Run(path, func(t *testing.T) {
			sent, held := afterClosed(t, new(retryhttp.Gate), path)
			switch {
			case !closes:
				assert.Equal(t, 200*ms, sent)
				assert.Zero(t, held)
			case !strings.HasSuffix(path, "=2") && !strings.HasSuffix(path, "=2000"):
				assert.Equal(t, 5200*ms, sent, "Hold bounds it")
			default:
				assert.GreaterOrEqual(t, sent, 2100*ms)
				assert.LessOrEqual(t, sent, 3100*ms)
			}
			assert.Equal(t, sent-200*ms, held)
		})
	}
	t.Run("a negative MaxRetryAfter", func(t *testing.T) {
		sent, _ := afterClosed(t, new(retryhttp.Gate), "/429?Retry-After=2", func(p *retryhttp.Policy) { p.MaxRetryAfter = -1 })
		assert.Equal(t, 200*ms, sent)
	})
	t.Run("a negative Hold", func(t *testing.T) {
		sent, _ := afterClosed(t, &retryhttp.Gate{Hold: -1, HoldFirst: true}, "/429?Retry-After=2")
		assert.Equal(t, 200*ms, sent)
	})
}

// A Gate reads a RateLimit in a quicker way, and finds the same. The conformance vectors have
// every kind of header.
func TestGateFindsTheExhaustedLimitsOfRateLimit(t *testing.T) {
	data, err := os.ReadFile("testdata/conformance/ratelimit.json")
	require.NoError(t, err)
	var vectors struct {
		Cases []struct {
			Name    string
			Clock   time.Time
			Headers [][2]string
		}
	}
	require.NoError(t, json.Unmarshal(data, &vectors))
	require.NotEmpty(t, vectors.Cases)
	for _, c := range vectors.Cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(c.Clock))
				h := make(http.Header)
				for _, line := range c.Headers {
					h.Add(line[0], line[1])
				}
				remaining, reset, ok := retryhttp.RateLimit(h)
				found, exhausted := retryhttp.Exhausted(h)
				assert.Equal(t, ok && remaining == 0, exhausted)
				if exhausted {
					assert.Equal(t, reset, found)
				}
			})
		})
	}
}

func TestGateIsClosedByRateLimit(t *testing.T) {
	for path, closes := range map[string]bool{
		"/200?RateLimit=%22p%22%3Br%3D0%3Bt%3D2":                               true,
		"/404?RateLimit=%22p%22%3Br%3D0%3Bt%3D2":                               true,
		"/500?RateLimit=%22p%22%3Br%3D0%3Bt%3D2":                               true,
		"/200?RateLimit=%22p%22%3Br%3D1%3Bt%3D2":                               false,
		"/200?RateLimit=%22p%22%3Br%3D0":                                       false,
		"/200?RateLimit=%22p%22%3Br%3D0%3Bt%3D61":                              false, // above MaxRetryAfter
		"/200?RateLimit=%22p%22%3Br%3D0%3Bt%3D2&Age=1":                         false,
		"/200?X-RateLimit-Remaining=0&X-RateLimit-Reset=2":                     true,
		"/200?X-RateLimit-Remaining=1&X-RateLimit-Reset=2":                     false,
		"/200?RateLimit=malformed&X-RateLimit-Remaining=0&X-RateLimit-Reset=2": true,
		// A Retry-After wins, on any response.
		"/429?RateLimit=%22p%22%3Br%3D0%3Bt%3D50&Retry-After=2": true,
		"/403?RateLimit=%22p%22%3Br%3D0%3Bt%3D50&Retry-After=2": true,
	} {
		t.Run(path, func(t *testing.T) {
			sent, held := afterClosed(t, new(retryhttp.Gate), path)
			if closes {
				assert.GreaterOrEqual(t, sent, 2100*ms)
				assert.LessOrEqual(t, sent, 3100*ms)
			} else {
				assert.Equal(t, 200*ms, sent)
			}
			assert.Equal(t, sent-200*ms, held)
		})
	}
	t.Run("a negative MaxRetryAfter", func(t *testing.T) {
		path := "/200?X-RateLimit-Remaining=0&X-RateLimit-Reset=2"
		sent, _ := afterClosed(t, new(retryhttp.Gate), path, func(p *retryhttp.Policy) { p.MaxRetryAfter = -1 })
		assert.Equal(t, 200*ms, sent)
	})
}

// The server is away for longer than MaxRetryAfter. Others come back after that time.
func TestGateIsClosedForMaxRetryAfterAtMost(t *testing.T) {
	for _, path := range []string{
		"/429?Retry-After=3600", "/503?Retry-After=3600",
		"/200?RateLimit=%22p%22%3Br%3D0%3Bt%3D2&Retry-After=3600", // it wins, and is no longer than allowed
	} {
		inGate(t, &retryhttp.Gate{Hold: time.Minute}, func(t *testing.T, g *gated) {
			v := g.at(0, "/503,200")
			g.at(100*ms, path, once, func(p *retryhttp.Policy) { p.MaxRetryAfter = 2 * time.Second })
			g.wait(100 * ms)
			closed := g.gate.Status(requestTo("host")).Closed
			assert.Equal(t, 2*time.Second, closed, path)
			g.ended.Wait()
			if strings.HasPrefix(path, "/503") {
				assert.Equal(t, 200*ms, v.sent[1], "a 503 closes its host for first attempts alone")
				return
			}
			assert.GreaterOrEqual(t, v.sent[1], 2100*ms, path)
			assert.LessOrEqual(t, v.sent[1], 3100*ms, path)
		})
	}
}

func TestGateIsClosedForAsLongAsTheLongestAsks(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		v := g.at(0, "/503,200")
		g.at(50*ms, "/429?Retry-After=3", once)
		g.at(100*ms, "/429?Retry-After=1", once)
		g.every(150*ms, 10*ms, 50, "/200") // which do not end it
		g.ended.Wait()
		assert.GreaterOrEqual(t, v.sent[1], 3050*ms)
	})
	for later, until := range map[string]time.Duration{"/429?Retry-After=1": 1500 * ms, "/429?Retry-After=3": 3500 * ms} {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			v := g.at(0, "/503,200")
			g.at(50*ms, "/429?Retry-After=1", once)
			g.at(500*ms, later, once) // while the retry is held
			g.ended.Wait()
			assert.GreaterOrEqual(t, v.sent[1], until)
		})
	}
}

// A host that refuses a few requests in a hundred closes its key all the time.
func TestGateIsNotClosedForGoodByAFewRefusals(t *testing.T) {
	for path, gate := range map[string]*retryhttp.Gate{"/503,200": new(retryhttp.Gate), "/200": first(new(retryhttp.Gate))} {
		inGate(t, gate, func(t *testing.T, g *gated) {
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
	inGate(t, first(new(retryhttp.Gate)), func(t *testing.T, g *gated) {
		g.at(0, "/429?Retry-After=2", once)
		v := g.at(100*ms, "/503,200", func(p *retryhttp.Policy) { p.MaxRetryAfter = -1 })
		g.ended.Wait()
		assert.Equal(t, inMillis(100, 300), v.sent)
	})
}

func first(g *retryhttp.Gate) *retryhttp.Gate {
	g.HoldFirst = true
	return g
}

func TestGateHoldsFirstAttemptsWhileClosed(t *testing.T) {
	for _, c := range []struct {
		name    string
		gate    *retryhttp.Gate
		path    string
		timeout time.Duration
		held    bool
	}{
		{"with HoldFirst", first(new(retryhttp.Gate)), "/429?Retry-After=2", 0, true},
		{"without", new(retryhttp.Gate), "/429?Retry-After=2", 0, false},
		{"of a host that is only down", first(new(retryhttp.Gate)), "/503", 0, false},
		{"longer than Hold", first(&retryhttp.Gate{Hold: 1899 * ms}), "/429?Retry-After=2", 0, false},
		{"as long as Hold", first(&retryhttp.Gate{Hold: 1900 * ms}), "/429?Retry-After=2", 0, true},
		{"longer than half of what the deadline leaves", first(new(retryhttp.Gate)), "/429?Retry-After=2", 3800 * ms, false},
		{"no longer than that", first(new(retryhttp.Gate)), "/429?Retry-After=2", 3801 * ms, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inGate(t, c.gate, func(t *testing.T, g *gated) {
				g.at(0, c.path, once)
				ctx := t.Context()
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout+100*ms)
					defer cancel()
				}
				v := g.with(ctx, 100*ms, "/200")
				g.wait(101 * ms)
				if c.held {
					assert.Equal(t, 1, g.held())
				}
				g.ended.Wait()
				if !c.held {
					assert.Equal(t, inMillis(100), v.sent)
					assert.Zero(t, v.outcome.Held)
					return
				}
				assert.GreaterOrEqual(t, v.sent[0], 2*time.Second)
				assert.LessOrEqual(t, v.sent[0], 3*time.Second)
				held := v.sent[0] - 100*ms
				assert.Equal(t, retryhttp.Outcome{
					Attempts: 1, Elapsed: held, Waited: held, Held: held, Stop: retryhttp.StopFinal,
				}, v.outcome)
				assert.Zero(t, g.budget.withdrawn, "it draws no token")
			})
		})
	}
}

func TestGateOfAFirstAttemptThatIsCanceled(t *testing.T) {
	inGate(t, first(new(retryhttp.Gate)), func(t *testing.T, g *gated) {
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
	inGate(t, first(new(retryhttp.Gate)), func(t *testing.T, g *gated) {
		g.at(0, "/429?Retry-After=1", once)
		v := g.at(100*ms, "/503,200", func(p *retryhttp.Policy) { p.MaxElapsed = 2 * time.Second; p.Backoff = retryhttp.Constant(1100 * ms) })
		g.ended.Wait()
		assert.Len(t, v.sent, 1)
		assert.Equal(t, retryhttp.StopDeadline, v.outcome.Stop)
	})
}

const exhausted = "RateLimit=%22p%22%3Br%3D0%3Bt%3D2"

func bearer(tenant string) http.Header { return http.Header{"Authorization": {"Bearer " + tenant}} }

func as(header http.Header) *http.Request {
	req := requestTo("host")
	req.Header = header
	return req
}

func ofHost(req *http.Request) string { return req.URL.Host }

func TestGateIsClosedByA429ForTheSameCredentials(t *testing.T) {
	type header = http.Header
	for _, c := range []struct {
		name   string
		closes bool
		a, b   header
	}{
		{"the same", true, bearer("a"), bearer("a")},
		{"others", false, bearer("a"), bearer("b")},
		{"another scheme", false, header{"Authorization": {"Basic a"}}, bearer("a")},
		{"none at all", true, nil, header{}},
		{"none, and some", false, nil, bearer("a")},
		{"some, and none", false, bearer("a"), nil},
		{"empty slices", true, header{"Authorization": {}, "X-Api-Key": nil}, nil},
		{"other fields", true, header{"Cookie": {"a"}, "X-Tenant": {"a"}}, header{"Cookie": {"b"}}},
		{"X-Api-Key", true, header{"X-Api-Key": {"a"}}, header{"X-Api-Key": {"a"}, "Accept": {"b"}}},
		{"X-Api-Key of others", false, header{"X-Api-Key": {"a"}}, header{"X-Api-Key": {"b"}}},
		{"Api-Key of others", false, header{"Api-Key": {"a"}}, header{"Api-Key": {"b"}}},
		{"X-Goog-Api-Key of others", false, header{"X-Goog-Api-Key": {"a"}}, header{"X-Goog-Api-Key": {"b"}}},
		{"the same value in another field", false, header{"X-Api-Key": {"a"}}, header{"Api-Key": {"a"}}},
		{"one more field", false, bearer("a"), header{"Authorization": {"Bearer a"}, "X-Api-Key": {"b"}}},
		{"several lines", true, header{"Authorization": {"a", "b"}}, header{"Authorization": {"a", "b"}}},
		{"one of several lines", false, header{"Authorization": {"a", "b"}}, header{"Authorization": {"a"}}},
		{"several lines in another order", false, header{"Authorization": {"a", "b"}}, header{"Authorization": {"b", "a"}}},
		{"lines that are split differently", false, header{"Authorization": {"a", "bc"}}, header{"Authorization": {"ab", "c"}}},
		{"lines in one", false, header{"Api-Key": {"a", "b"}}, header{"Api-Key": {"aApi-Keyb"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for path, busy := range map[string]bool{
				"/429?Retry-After=2": false, "/429?" + exhausted: false, "/200?" + exhausted: false, "/500?" + exhausted: false,
				"/403?Retry-After=2&" + exhausted: false,
				"/503?Retry-After=2":              true, "/503?" + exhausted: true,
			} {
				for name, key := range map[string]func(*http.Request) string{
					"no Key": nil, "Key": ofHost,
				} {
					inGate(t, &retryhttp.Gate{Key: key}, func(t *testing.T, g *gated) {
						g.header = c.b
						v := g.at(0, "/503,200")
						g.header = c.a
						g.at(100*ms, path, once)
						g.ended.Wait()
						if !busy && (c.closes || key != nil) {
							assert.GreaterOrEqual(t, v.sent[1], 2100*ms, "%s, %s", path, name)
							assert.LessOrEqual(t, v.sent[1], 3100*ms, "%s, %s", path, name)
						} else {
							assert.Equal(t, 200*ms, v.sent[1], "%s, %s", path, name)
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
		ignoring := func(p *retryhttp.Policy) { p.MaxRetryAfter = -1 }
		g.down()
		first, second := g.at(80*ms, "/503,200", ignoring), g.at(81*ms, "/503,200", ignoring)
		g.at(295*ms, "/429?Retry-After=2", once) // which postpones the next probe
		g.every(300*ms, 10*ms, 8, "/200")
		g.ended.Wait()
		assert.Equal(t, inMillis(80, 330), first.sent)
		assert.Equal(t, inMillis(81, 360), second.sent, "the success of the first counts")
	})
}

func TestGateStatus(t *testing.T) {
	for name, key := range map[string]func(*http.Request) string{"a nil Key": nil, "Key": func(*http.Request) string { return "all" }} {
		t.Run(name, func(t *testing.T) {
			inGate(t, &retryhttp.Gate{Key: key}, func(t *testing.T, g *gated) {
				status := func(req *http.Request) string {
					s := g.gate.Status(req)
					return fmt.Sprint(s.Down, " ", s.Closed)
				}
				ask := func() (a, b, none string) { return status(as(bearer("a"))), status(as(bearer("b"))), status(as(nil)) }
				a, b, none := ask()
				assert.Equal(t, []string{"false 0s", "false 0s", "false 0s"}, []string{a, b, none}, "nothing was sent")
				g.header = bearer("a")
				g.at(0, "/429?Retry-After=2", once)
				g.wait(500 * ms)
				a, b, none = ask()
				if key == nil {
					assert.Equal(t, []string{"false 1.5s", "false 0s", "false 0s"}, []string{a, b, none})
				} else {
					assert.Equal(t, []string{"false 1.5s", "false 1.5s", "false 1.5s"}, []string{a, b, none})
				}
				g.at(600*ms, "/503?Retry-After=1", once)
				g.wait(1000 * ms)
				a, b, none = ask()
				if key == nil {
					assert.Equal(t, []string{"false 1s", "false 600ms", "false 600ms"}, []string{a, b, none})
				}
				g.wait(2 * time.Second)
				a, b, none = ask()
				assert.Equal(t, []string{"false 0s", "false 0s", "false 0s"}, []string{a, b, none}, "all is over")
				g.every(2*time.Second, 20*ms, 8, "/503")
				g.at(2*time.Second+ms, "/429?Retry-After=60", once)
				g.wait(3 * time.Second)
				a, b, _ = ask()
				assert.Equal(t, "true 59.001s", a)
				if key == nil {
					assert.Equal(t, "true 0s", b)
				}
				assert.Equal(t, key == nil, status(requestTo("other")) == "false 0s")
				assert.Equal(t, "false 0s", status(&http.Request{}))
				g.wait(2*time.Second + 140*ms + 10*time.Second - 1)
				a, _, _ = ask()
				assert.Contains(t, a, "true")
				g.wait(2*time.Second + 140*ms + 10*time.Second)
				a, _, _ = ask()
				assert.Contains(t, a, "false", "a scheduler that waits for the host would wait for ever")
				g.at(20*time.Second, "/200")
				g.wait(20 * time.Second)
				_, b, _ = ask()
				assert.Equal(t, key == nil, b == "false 0s")
			})
		})
	}
	t.Run("while a retry is held", func(t *testing.T) {
		inGate(t, &retryhttp.Gate{Hold: time.Minute}, func(t *testing.T, g *gated) {
			g.down()
			g.at(150*ms, "/503@1h", once) // under way, so that there is no probe
			g.at(90*ms, "/503,200")
			g.wait(10 * time.Second)
			down := g.gate.Status(requestTo("host")).Down
			assert.True(t, down)
			assert.Equal(t, 1, g.held())
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

func TestGateHeldCountsTheClosureOfTheRequestsCredentials(t *testing.T) {
	inGate(t, &retryhttp.Gate{HoldFirst: true}, func(t *testing.T, g *gated) {
		held := func() []int {
			return []int{g.gate.Status(as(bearer("a"))).Held, g.gate.Status(as(bearer("b"))).Held, g.gate.Status(as(nil)).Held}
		}
		g.header = bearer("a")
		g.at(0, "/429?Retry-After=2", once)
		for range 3 {
			g.at(0, "/503,200")
		}
		g.header = bearer("b")
		g.at(0, "/429?Retry-After=4", once)
		g.at(0, "/503,200")
		g.wait(300 * ms)
		assert.Equal(t, []int{3, 1, 0}, held())
		g.header = nil
		g.at(400*ms, "/503?Retry-After=3", once)
		g.at(450*ms, "/200")
		g.wait(700 * ms)
		assert.Equal(t, []int{4, 2, 1}, held(), "a first attempt waits for a 503's, too")
		g.ended.Wait()
		assert.Equal(t, []int{0, 0, 0}, held())
	})
}

// After a closure, requests wait for a random time.
func TestGateHeldCountsWhatWaitsAfterAClosureOfCredentials(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.header = bearer("a")
		g.at(0, "/429?Retry-After=2", once)
		for range 20 {
			g.at(0, "/503,200")
		}
		g.wait(2*time.Second + 1)
		closed := g.gate.Status(as(bearer("a"))).Closed
		assert.Zero(t, closed)
		assert.Positive(t, g.gate.Status(as(bearer("a"))).Held)
	})
}

// A Gate keeps 1,024 closures for a host. All other tenants wait as their own responses ask.
func TestGateKeepsABoundedNumberOfClosures(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		limit := func(i int, at time.Duration) {
			g.header = bearer(strconv.Itoa(i))
			g.at(at, "/429?Retry-After=2", once)
		}
		for i := range 1024 {
			limit(i, time.Duration(i)*time.Microsecond)
		}
		for i := range 9000 {
			limit(2000+i, 10*ms)
		}
		closed := func(i int) time.Duration {
			return g.gate.Status(as(bearer(strconv.Itoa(i)))).Closed
		}
		g.wait(20 * ms)
		assert.Equal(t, 1024, retryhttp.LimitedCredentials(g.gate, "host"))
		for _, i := range []int{0, 500, 1023} {
			assert.Positive(t, closed(i))
		}
		for _, i := range []int{2000, 10999} {
			assert.Zero(t, closed(i))
		}
		limit(0, 1500*ms) // which has a closure, and extends it
		limit(5000, 2*time.Second+512*time.Microsecond)
		g.wait(2100 * ms)
		assert.Equal(t, 1024-512+1, retryhttp.LimitedCredentials(g.gate, "host"), "those that are over make room")
		assert.Positive(t, closed(0))
		assert.Positive(t, closed(5000))
		g.wait(5 * time.Second)
		assert.Zero(t, closed(0))
		assert.Zero(t, retryhttp.LimitedCredentials(g.gate, "host"), "nothing is closed")
	})
}

// Looking for closures that are over takes time, and a host may send any number of 429s.
func TestGateLooksForClosuresThatAreOverTenTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(retryhttp.Gate)
		keeps := func(i int) bool {
			req := as(bearer(strconv.Itoa(i)))
			retryhttp.CloseFor(g, req, 10*ms)
			return g.Status(req).Closed > 0
		}
		for i := range 1024 {
			assert.True(t, keeps(i))
		}
		assert.False(t, keeps(2000), "it has looked now")
		time.Sleep(9 * ms)
		assert.True(t, keeps(0), "the longest is not over")
		time.Sleep(5 * ms)
		assert.False(t, keeps(2001))
		time.Sleep(86 * ms)
		assert.True(t, keeps(2002))
		assert.Equal(t, 1, retryhttp.LimitedCredentials(g, "host"))
	})
}

func TestGateMakesRoomForClosuresAfterTheClockWentBack(t *testing.T) {
	gate := new(retryhttp.Gate)
	inGate(t, gate, func(t *testing.T, g *gated) {
		for i := range 1025 {
			g.header = bearer(strconv.Itoa(i))
			g.at(time.Hour, "/429?Retry-After=2", once)
		}
	})
	inGate(t, gate, func(t *testing.T, g *gated) {
		g.header = bearer("new")
		g.at(0, "/429?Retry-After=2", once)
		g.wait(0)
		closed := g.gate.Status(as(bearer("new"))).Closed
		assert.Equal(t, 2*time.Second, closed)
	})
}

func TestGateOfManyTenantsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, first(new(retryhttp.Gate)))
		for i := range 500 {
			g.header = bearer(strconv.Itoa(i % 7))
			path := []string{"/429,200?Retry-After=1", "/503,200?Retry-After=1", "/200?" + exhausted, "/503,200", "/200"}[i%5]
			ctx := context.Background()
			if i%3 == 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*10*ms)
				defer cancel()
			}
			g.with(ctx, time.Duration(i/50)*100*ms, path)
		}
		g.ended.Wait()
		assert.Zero(t, retryhttp.InTrouble(g.gate, "host"))
		for i := range 7 {
			assert.Zero(t, g.gate.Status(as(bearer(strconv.Itoa(i)))).Held)
		}
	})
}
