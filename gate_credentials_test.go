package retryhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

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

// One of twenty tenants asks for too much, all the time.
func TestGateDelaysNoRetriesOfOtherTenants(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		for i := range 200 {
			g.header = bearer(strconv.Itoa(i % 20))
			if i%20 == 0 {
				g.at(time.Duration(i)*50*ms, "/429?Retry-After=30")
				continue
			}
			v := g.at(time.Duration(i)*50*ms, "/503,200")
			defer func() { assert.Zero(t, v.outcome.Held) }()
		}
		g.ended.Wait()
	})
}

func TestGateIsClosedForTheLongerOfHostAndCredentials(t *testing.T) {
	for host, own := range map[int]int{2: 4, 4: 2} {
		inGate(t, &retryhttp.Gate{HoldFirst: true}, func(t *testing.T, g *gated) {
			g.header = bearer("a")
			v := g.at(200*ms, "/200")
			g.at(100*ms, fmt.Sprint("/429?Retry-After=", own), once)
			g.header = bearer("b")
			g.at(110*ms, fmt.Sprint("/503?Retry-After=", host), once)
			g.ended.Wait()
			assert.GreaterOrEqual(t, v.sent[0], 4100*ms)
		})
	}
}

func TestGateHoldsFirstAttemptsOfTheSameCredentials(t *testing.T) {
	inGate(t, first(new(retryhttp.Gate)), func(t *testing.T, g *gated) {
		g.header = bearer("a")
		g.at(0, "/429?Retry-After=2", once)
		same := g.at(100*ms, "/200")
		g.header = bearer("b")
		other := g.at(100*ms, "/200")
		g.header = nil
		none := g.at(100*ms, "/200")
		g.ended.Wait()
		assert.GreaterOrEqual(t, same.sent[0], 2*time.Second)
		assert.Equal(t, inMillis(100), other.sent)
		assert.Equal(t, inMillis(100), none.sent)
	})
}

// A host's queue knows only the host's closures. A retry that it releases while the retry's
// credentials are limited gives its turn back.
func TestGateKeepsWhatIsQueuedWhileItsCredentialsAreLimited(t *testing.T) {
	for name, c := range map[string]struct {
		successes int
		at        time.Duration // at which the turn comes
	}{
		"released by successes": {4, 330 * ms},
		"released as a probe":   {0, 350 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
				g.down()
				g.header = bearer("a")
				limited := []*visit{g.at(80*ms, "/503,200"), g.at(81*ms, "/503,200"), g.at(82*ms, "/503,200")}
				g.at(295*ms, "/429?Retry-After=2", once) // which postpones the next probe
				g.header = bearer("b")
				next := g.at(90*ms, "/503,200")
				g.every(300*ms, 10*ms, c.successes, "/200")
				g.ended.Wait()
				if c.successes == 0 {
					c.at = 295*ms + 250*ms
				}
				assert.Equal(t, c.at, next.sent[1], "it gets the turn")
				for _, v := range limited {
					assert.GreaterOrEqual(t, v.sent[1], 2295*ms)
					assert.LessOrEqual(t, v.sent[1], 3295*ms)
					assert.Equal(t, v.sent[1]-v.sent[0]-200*ms, v.outcome.Held)
				}
			})
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

// A context that ends without an error must not make the Gate look again and again.
func TestGateOfLimitedCredentialsAndAContextThatEndsWithoutAnError(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		ctx := doneWithoutErr{t.Context(), make(chan struct{})}
		v := g.with(ctx, 90*ms, "/503,200")
		g.at(295*ms, "/429?Retry-After=3", once)
		time.AfterFunc(400*ms, func() { close(ctx.done) })
		g.ended.Wait()
		assert.Equal(t, inMillis(90, 400), v.sent, "the hold ends")
	})
}

func TestGateHoldsNoLongerThanHoldWhileCredentialsAreLimited(t *testing.T) {
	inGate(t, &retryhttp.Gate{Hold: 2 * time.Second}, func(t *testing.T, g *gated) {
		g.down()
		v := g.at(90*ms, "/503,200")
		g.at(295*ms, "/429?Retry-After=50", once)
		g.every(300*ms, 10*ms, 100, "/200")
		g.ended.Wait()
		assert.Equal(t, 2290*ms, v.sent[1])
		assert.Equal(t, 2*time.Second, v.outcome.Held)
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

func TestGateForgetsNoKeyThatIsClosedForCredentials(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.header = bearer("a")
		g.at(0, "/429?Retry-After=30", once)
		g.at(0, "//h/503", once)
		for i := range 4200 {
			g.at(ms, "//h"+strconv.Itoa(i)+"/503", once)
		}
		g.at(20*time.Second, "//new/503", once)
		g.wait(21 * time.Second)
		closed := g.gate.Status(as(bearer("a"))).Closed
		assert.Equal(t, 9*time.Second, closed)
		for i := range 4200 {
			g.at(22*time.Second, "//h"+strconv.Itoa(i)+"/503", once)
		}
		g.at(40*time.Second, "//newest/503", once)
		g.wait(41 * time.Second)
		assert.Equal(t, 1, retryhttp.Keys(g.gate))
	})
}

func TestGateOfCredentialsAfterTheClockWentBack(t *testing.T) {
	gate := first(new(retryhttp.Gate))
	inGate(t, gate, func(t *testing.T, g *gated) {
		g.wait(time.Hour)
		g.header = bearer("a")
		g.at(time.Hour, "/429?Retry-After=2", once)
		g.header = bearer("b")
		g.at(time.Hour, "/429?Retry-After=50", once)
	})
	inGate(t, gate, func(t *testing.T, g *gated) {
		g.header = bearer("b")
		g.at(0, "/429?Retry-After=2", once)
		g.header = bearer("a")
		v := g.at(10*ms, "/503,200")
		g.header = bearer("b")
		same := g.at(10*ms, "/200")
		g.ended.Wait()
		assert.Equal(t, inMillis(10, 210), v.sent)
		assert.GreaterOrEqual(t, same.sent[0], 2*time.Second)
		assert.LessOrEqual(t, same.sent[0], 3*time.Second)
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

func TestHedgeIsNotSentWhileItsCredentialsAreLimited(t *testing.T) {
	for tenant, hedged := range map[string]bool{"a": false, "b": true} {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.header = bearer("a")
			g.at(0, "/429?Retry-After=5", once)
			hedge := func(p *retryhttp.Policy) { p.Hedge = &retryhttp.Hedge{After: 50 * ms} }
			g.header = bearer(tenant)
			v := g.at(100*ms, "/200@1s", hedge)
			g.wait(5 * time.Second) // the attempt that has lost may take a moment
			g.mu.Lock()             // the hedge is sent by another goroutine
			defer g.mu.Unlock()
			assert.Equal(t, hedged, len(v.sent) == 2, tenant)
		})
	}
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
