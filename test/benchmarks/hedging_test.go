package benchmarks

import (
	"context"
	"math"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (r *report) measureHedging(t *testing.T) {
	t.Run("armed", r.hedged.measureArmed(r.rounds, r.sizes))
	t.Run("connections", r.hedged.measureOpened(r.sizes.Hedges))
	t.Run("a step", r.hedged.measureSteps(r.sizes.StepRounds))
	t.Run("probes", r.hedged.probe)
}

func (h *hedged) measureArmed(rounds int, s sizes) func(*testing.T) {
	return func(t *testing.T) {
		var err error
		h.armed, err = armedHedges(s.armed(rounds))
		require.NoError(t, err)
		t.Log("\n" + h.armedTable())
		for _, a := range h.armed[ours : ours+2] {
			assert.Equal(t, "none", a.got.helpers.String(), a.name)
			if !raceDetector && s.Full {
				assert.LessOrEqual(t, a.got.above.allocs, 5.01, a.name)
			}
		}
	}
}

func (h *hedged) measureOpened(n int) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		var err error
		h.opened, err = atOnce(hedgers, func(p peer) (int64, error) { return hedgedConnections(p, n) })
		require.NoError(t, err)
		t.Log("\n" + h.openedTable())
		assert.LessOrEqual(t, h.opened[0].got, int64(10))
	}
}

func (h *hedged) measureSteps(rounds int) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		var err error
		h.steps, err = atOnce(stepped, func(p peer) ([]float64, error) { return step(p, rounds) })
		require.NoError(t, err)
		t.Log("\n" + h.stepTable())
		for _, s := range h.steps[:2] {
			requests := float64(crowd * rounds)
			// A busy machine may have spent the saved hedges before the step.
			hedges := math.Round(requests*mean(s.got) - requests)
			assert.LessOrEqual(t, hedges, 0.05*requests+10, "%s: Share, and 10 that were saved", s.name)
		}
	}
}

func (h *hedged) probe(t *testing.T) {
	t.Parallel()
	var err error
	h.probes, err = atOnce(hedgers, func(p peer) ([]verdict, error) { return runProbes(t, hedgeProbes, p), nil })
	require.NoError(t, err)
	t.Log("\n" + verdictTable(hedgeProbes, h.probes))
	for i, v := range h.probes[0].got {
		name := hedgeProbes[i].name
		assert.Equal(t, name != deafBase, v.yes, name)
	}
}

func runProbes(t *testing.T, probes []probe, p peer) (verdicts []verdict) {
	for _, pr := range probes {
		verdicts = append(verdicts, pr.run(t, p))
	}
	return verdicts
}

// naiveHedger sends two attempts, and returns the first result. end ends their contexts, the
// winner's first.
func naiveHedger(end func(winner, loser context.CancelFunc)) peer {
	type result struct {
		resp *http.Response
		err  error
		i    int
	}
	return peer{name: "naive", build: func(base http.RoundTripper, s settings) doer {
		return &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			results := make(chan result, 2)
			var cancel [2]context.CancelFunc
			for i := range cancel {
				var ctx context.Context
				ctx, cancel[i] = context.WithCancel(req.Context())
				go func() {
					resp, err := base.RoundTrip(req.WithContext(ctx))
					results <- result{resp, err, i}
				}()
				waitFor(s.hedge.after, nil)
			}
			got := <-results
			end(cancel[got.i], cancel[1-got.i])
			return got.resp, got.err
		})}
	}}
}

func TestHedgeProbesSeeThroughNaiveHedgers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end func(winner, loser context.CancelFunc)
		yes []string
	}{
		"ends nothing": {func(winner, loser context.CancelFunc) {}, []string{
			"a stalled first attempt is answered by the hedge",
			"the winner's body is whole",
			deafBase,
		}},
		"ends both": {func(winner, loser context.CancelFunc) { winner(); loser() }, []string{
			"a stalled first attempt is answered by the hedge",
			"the loser's context ends",
			"the winner's context ends",
			deafBase,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var yes []string
			for i, v := range runProbes(t, hedgeProbes, naiveHedger(c.end)) {
				if v.yes {
					yes = append(yes, hedgeProbes[i].name)
				}
			}
			assert.Equal(t, c.yes, yes)
		})
	}
}

func TestAHedgeOfEachRequestIsCounted(t *testing.T) {
	t.Parallel()
	naive := naiveHedger(func(_, loser context.CancelFunc) { loser() })
	attempts, err := step(naive, 1)
	require.NoError(t, err)
	assert.Equal(t, []float64{2}, attempts)
	opened, err := hedgedConnections(naive, 10)
	require.NoError(t, err)
	assert.Greater(t, opened, int64(5), "most of the canceled hedges cost their connection")
}

func TestGoroutinesOfAnAttemptAreCounted(t *testing.T) {
	elsewhere := peer{build: func(base http.RoundTripper, _ settings) doer {
		return &http.Client{Transport: roundTripperFunc(func(req *http.Request) (resp *http.Response, err error) {
			var group sync.WaitGroup
			group.Go(func() { resp, err = base.RoundTrip(req) })
			group.Wait()
			return resp, err
		})}
	}}
	beside := peer{build: func(base http.RoundTripper, _ settings) doer {
		return &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			var group sync.WaitGroup
			group.Go(nothing)
			defer group.Wait()
			return base.RoundTrip(req)
		})}
	}}
	for i, want := range []string{"none", "1 or more", "1 or more"} {
		used, err := helpersOf([]peer{peers[floor], elsewhere, beside}[i])
		require.NoError(t, err)
		assert.Equal(t, want, used.String())
	}
}
