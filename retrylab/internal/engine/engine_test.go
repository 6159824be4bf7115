package engine

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func TestRunsHaveSeedsInOrder(t *testing.T) {
	draw := func(_ *testing.T, rng *rand.Rand) uint64 { return rng.Uint64() }
	first, second := Runs(t, 3, draw), Runs(t, 3, draw)
	assert.Equal(t, first, second)
	assert.Equal(t, []uint64{Seeded(1).Uint64(), Seeded(2).Uint64(), Seeded(3).Uint64()}, first)
}

// TestOfARun is a test that fails. See below.
func TestOfARun(t *testing.T) {
	switch os.Getenv("ENGINE_RUN") {
	case "leaves a goroutine":
		Runs(t, 2, func(*testing.T, *rand.Rand) int { go func() { select {} }(); return 0 })
		t.Log("went on")
	case "fails":
		Runs(t, 2, func(t *testing.T, _ *rand.Rand) int { require.Fail(t, "so it is"); return 0 })
		t.Log("went on")
	}
}

func TestRunThatFailsEndsItsTest(t *testing.T) {
	for kind, says := range map[string]string{
		"leaves a goroutine": "seed 2: deadlock: main bubble goroutine has exited but blocked goroutines remain",
		"fails":              "so it is",
	} {
		t.Run(kind, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestOfARun$", "-test.v")
			cmd.Env = append(os.Environ(), "ENGINE_RUN="+kind)
			output, err := cmd.CombinedOutput()
			assert.Error(t, err)
			assert.Contains(t, string(output), says)
			assert.NotContains(t, string(output), "went on")
		})
	}
}

func TestBubblesLeaveAStuckBubbleAlone(t *testing.T) {
	usual := StuckAfter
	StuckAfter = time.Second
	t.Cleanup(func() { StuckAfter = usual })
	var stuck, slow sync.Mutex
	stuck.Lock() // for ever: a bubble that ended after its test would race with package testing
	slow.Lock()
	time.AfterFunc(3*StuckAfter, slow.Unlock)
	var seen atomic.Int64
	ends := Bubbles(t, 2,
		func(i int) int64 {
			if i == 0 {
				return 0
			}
			return seen.Add(1) / 3 // not each look shows some
		},
		func(_ *testing.T, i int) { []*sync.Mutex{&stuck, &slow}[i].Lock() })
	assert.Equal(t, []any{ErrStuck, nil}, ends, "the other one makes progress")
}

func TestPoissonFollowsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var early, late atomic.Int64
		rate := func(at time.Duration) float64 {
			if at < 50*time.Second {
				return 20
			}
			return 100
		}
		Poisson(Seeded(1), 100*time.Second, 100, rate, func(at time.Duration) {
			if at < 50*time.Second {
				early.Add(1)
			} else {
				late.Add(1)
			}
			time.Sleep(time.Hour)
		})
		assert.InDelta(t, 1000, early.Load(), 150)
		assert.InDelta(t, 5000, late.Load(), 300)
	})
}

func TestSeriesCountsPerSecond(t *testing.T) {
	s := Series{Width: 100 * time.Millisecond}
	s.Add(0, 1)
	s.Add(250*time.Millisecond, 2)
	s.Add(299*time.Millisecond, 1)
	assert.Equal(t, []float64{10, 0, 30}, s.PerSecond())
	assert.Equal(t, []float64{10, 0, 30, 0}, s.UpTo(400*time.Millisecond))
	assert.Equal(t, []float64{10}, s.UpTo(100*time.Millisecond))
	assert.InDelta(t, 15, s.Between(100*time.Millisecond, 300*time.Millisecond), 1e-9)
	assert.InDelta(t, 3, s.Between(200*time.Millisecond, 1200*time.Millisecond), 1e-9, "nothing after the last event")
	assert.InDelta(t, 40, Total(s.PerSecond()), 1e-9)
	assert.Equal(t, []float64{15, 0}, MeanBins([][]float64{{10, 0}, {20, 0}}))
}

func TestNumberOfLeavesOutRunsWithoutTheFigure(t *testing.T) {
	same := func(v float64) float64 { return v }
	n := NumberOf([]float64{1, math.NaN(), 3}, same)
	assert.Equal(t, Number{Mean: 2, Error: 1, Least: 1, Most: 3}, n)
	assert.Equal(t, "2 ± 2", n.String())
	assert.Equal(t, Number{Mean: 4, Least: 4, Most: 4}, NumberOf([]float64{4}, same))
	assert.True(t, math.IsNaN(NumberOf([]float64{math.NaN()}, same).Mean))
}

func TestQuantileOfNothingIsZero(t *testing.T) {
	assert.Zero(t, Quantile(nil, 0.5))
	assert.Equal(t, time.Duration(3), Quantile([]time.Duration{1, 2, 3, 4, 5}, 0.5))
	assert.Equal(t, time.Duration(5), Quantile([]time.Duration{1, 2, 3, 4, 5}, 1))
}

// taken is how many of the attempts are taken that come each hundredth of a second.
func taken(w *Workload, capacity float64, perStep int) (n int) {
	for step := range 1000 {
		for range perStep {
			if w.Take(time.Duration(step)*10*time.Millisecond, capacity) {
				n++
			}
		}
	}
	return n
}

func TestWorkloadServesLessTheMoreItRejects(t *testing.T) {
	assert.InDelta(t, 1000, taken(new(Workload), 100, 2), 20, "10 s at 100 a second")
	assert.InDelta(t, 1000, taken(new(Workload), 1000, 1), 2, "all")
	// With x of 200 a second served, and half a success for each rejection, x + (200-x)/2 = 125.
	assert.InDelta(t, 500, taken(&Workload{Cost: 0.5}, 125, 2), 40)
	assert.InDelta(t, 20, taken(new(Workload), 2, 1), 2, "a capacity below ten")
}

func TestWindowAllowsItsNumberInEachSecond(t *testing.T) {
	w := Window{Allowed: 2}
	var took []bool
	for _, at := range []time.Duration{0, 1, 2, 999 * time.Millisecond, time.Second, 2 * time.Second} {
		took = append(took, w.Take(at))
	}
	assert.Equal(t, []bool{true, true, false, false, true, true}, took)
}

func TestCongestedWorksForClientsThatHaveGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Congested{Dice: NewDice(Seeded(1)), Work: time.Second, Slope: time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service.test/", nil)
		require.NoError(t, err)
		start := time.Now()
		_, err = s.RoundTrip(req)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		resp, err := s.RoundTrip(req.WithContext(t.Context()))
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, 3100*time.Millisecond, time.Since(start), "two requests are worked on")
		s.Wait()
	})
}

func TestCongestedNeedsTheNetworkBothWays(t *testing.T) {
	const n, way = 2000, 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		s := &Congested{Dice: NewDice(Seeded(1)), Network: way}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://service.test/", nil)
		require.NoError(t, err)
		start := time.Now()
		for range n {
			_, err = s.RoundTrip(req)
			require.NoError(t, err)
		}
		assert.InDelta(t, float64(2*way), float64(time.Since(start)/n), float64(way)/10)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.RoundTrip(req.WithContext(gone))
		require.ErrorIs(t, err, context.Canceled)
		s.Wait()
		assert.Zero(t, s.working.Load(), "the work for a client that has gone is done")
	})
}

func TestHealthyProcessesHaveEarnedTheirTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://service.test/", nil)
		require.NoError(t, err)
		var budgets []*retryhttp.TokenBucket
		start := time.Now()
		Healthy(2, http.DefaultTransport, func() retryhttp.Policy {
			budgets = append(budgets, new(retryhttp.TokenBucket))
			return retryhttp.Policy{Budget: budgets[len(budgets)-1]}
		}, time.Minute, 200, func() *http.Request { return req })
		assert.Equal(t, time.Minute, time.Since(start))
		for _, b := range budgets {
			assert.InDelta(t, 0.1*100*20, b.Status(req).Tokens, 20, "a tenth of a hundred a second, for 20 s")
		}
	})
}

func TestHealthyProcessesHaveABudgetOfTheirOwnInPlaceOfNone(t *testing.T) {
	for name, none := range map[string]retryhttp.Budget{"nil": nil, "a nil TokenBucket": (*retryhttp.TokenBucket)(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://service.test/", nil)
				require.NoError(t, err)
				base := Server(func(req *http.Request) (*http.Response, error) { return Answer(req, http.StatusServiceUnavailable) })
				policy := func() retryhttp.Policy { return retryhttp.Policy{Budget: none, Backoff: retryhttp.Constant(0)} }
				for _, client := range Healthy(2, base, policy, time.Minute, 200, func() *http.Request { return req }) {
					resp, err := client.RoundTrip(req)
					require.NoError(t, err)
					assert.Equal(t, 4, retryhttp.OutcomeOf(resp).Attempts)
				}
			})
		})
	}
}
