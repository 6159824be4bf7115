package retryhttp_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
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

func TestGateSpreadsRetriesAfterAClosure(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.at(0, "/429?Retry-After=2", once)
		var visits []*visit
		for range 200 {
			visits = append(visits, g.at(0, "/503,200"))
		}
		g.wait(500 * ms)
		assert.Equal(t, 200, g.held())
		g.ended.Wait()
		var sent []time.Duration
		for _, v := range visits {
			sent = append(sent, v.sent[1])
		}
		slices.Sort(sent)
		assert.GreaterOrEqual(t, sent[0], 2*time.Second)
		assert.LessOrEqual(t, sent[199], 3*time.Second)
		assert.InDelta(t, 2500*ms, sent[100], float64(200*ms), "over half of what was asked")
	})
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

func TestGateIsClosedForWhatIsHeldAlready(t *testing.T) {
	t.Run("probes", func(t *testing.T) {
		inGate(t, &retryhttp.Gate{Key: ofHost}, func(t *testing.T, g *gated) {
			g.down()
			v := g.at(90*ms, "/503,200")
			g.at(300*ms, "/429?Retry-After=2", once)
			g.ended.Wait()
			assert.Equal(t, 2300*ms, v.sent[1])
		})
	})
	t.Run("releases", func(t *testing.T) {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.down()
			v := g.at(90*ms, "/503,200")
			g.at(295*ms, "/429?Retry-After=2", once)
			g.every(300*ms, 10*ms, 4, "/200")
			g.ended.Wait()
			assert.GreaterOrEqual(t, v.sent[1], 2295*ms)
			assert.LessOrEqual(t, v.sent[1], 3295*ms)
		})
	})
	t.Run("releases, of a host that is closed", func(t *testing.T) {
		inGate(t, &retryhttp.Gate{Key: ofHost}, func(t *testing.T, g *gated) {
			g.down()
			v := g.at(90*ms, "/503,200")
			g.at(295*ms, "/429?Retry-After=2", once)
			g.every(300*ms, 10*ms, 4, "/200")
			g.ended.Wait()
			assert.Equal(t, 2295*ms, v.sent[1])
		})
	})
	t.Run("a turn that is passed on", func(t *testing.T) {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.down()
			ctx, cancel := context.WithCancel(t.Context())
			g.with(ctx, 90*ms, "/503", func(p *retryhttp.Policy) {
				p.Logger = slog.New(onRecord(func(r slog.Record) {
					if r.Message == "held request" { // it was released
						g.gate.Close("host", 2*time.Second)
						cancel()
					}
				}))
			})
			v := g.at(91*ms, "/503,200")
			g.every(300*ms, 10*ms, 4, "/200")
			g.ended.Wait()
			assert.Equal(t, 2330*ms, v.sent[1])
		})
	})
}

func TestGateIsNotClosedForAPolicyThatIgnoresTheHeader(t *testing.T) {
	inGate(t, first(new(retryhttp.Gate)), func(t *testing.T, g *gated) {
		g.at(0, "/429?Retry-After=2", once)
		v := g.at(100*ms, "/503,200", func(p *retryhttp.Policy) { p.MaxRetryAfter = -1 })
		g.ended.Wait()
		assert.Equal(t, inMillis(100, 300), v.sent)
	})
}

// The clock of a bubble begins in the year 2000, when the next one begins.
func TestGateIsNotClosedAfterTheClockWentBack(t *testing.T) {
	gate := first(new(retryhttp.Gate))
	inGate(t, gate, func(t *testing.T, g *gated) {
		g.wait(time.Hour)
		g.at(time.Hour, "/429?Retry-After=2", once)
	})
	inGate(t, gate, func(t *testing.T, g *gated) {
		v := g.at(0, "/503,200")
		g.ended.Wait()
		assert.Equal(t, inMillis(0, 200), v.sent)
	})
}

// A closure is no queue. A retry that waits for its own Retry-After is not held after that wait.
func TestGateDoesNotHoldWhoWasToldToWait(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		v := g.at(0, "/429?Retry-After=2")
		g.ended.Wait()
		assert.Zero(t, v.outcome.Held)
		assert.GreaterOrEqual(t, v.sent[1], 2*time.Second)
		assert.LessOrEqual(t, v.sent[1], 3*time.Second)
	})
}

func TestGateHoldsWhatComesDueWhileItsKeyIsClosedAndThenDown(t *testing.T) {
	inGate(t, &retryhttp.Gate{Hold: 3 * time.Second}, func(t *testing.T, g *gated) {
		g.at(0, "/429?Retry-After=1", once)
		v := g.at(0, "/503,200")
		g.every(0, 20*ms, 300, "/503@30ms")
		g.ended.Wait()
		assert.Equal(t, 3200*ms, v.sent[1], "Hold bounds both together")
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
