package simulation

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

// mechanisms writes what the absence of each mechanism costs.
func (r *report) mechanisms() {
	r.add(`
The default policy has many rules and constants. Each is switched off here, in a copy of the code, and pays for itself by an
experiment that is worse without it. A mechanism that no experiment missed was deleted. Two rules are promises to the caller,
and have no row: a key without new results is not down for more than 10 s, and a retry is held for half of the time left at
most. Connections have [a table of their own](design.md#the-law-of-detours).`)
	var rows [][]string
	if r.full { // the table alone would differ
		a := newAblation(r.t)
		for _, m := range sim.Mechanisms {
			with, without := a.compare(r.t, m, 10)
			rows = append(rows, []string{m.What, a.trials[m.Trial].About, cost(with), cost(without)})
		}
	}
	r.pictured("What a figure becomes without a mechanism", 2, 3)
	r.bars.ByRow = true
	r.excerpt([]int{0, 1, 9, 30, 31, 32, 34, 46, 56}, []string{"mechanism", "experiment", "with it", "without"}, rows)
}

// cost has three digits, or fewer.
func cost(of float64) string {
	if of < 10 {
		return fmt.Sprintf("%.2f", of)
	}
	return fmt.Sprintf("%.0f", of)
}

// ablation is a sim.Ablation that runs each trial with all mechanisms only once.
type ablation struct {
	sim.Ablation
	trials map[string]sim.Trial
	with   map[string]float64
}

func newAblation(t *testing.T) ablation {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	a := ablation{sim.NewAblation(t, root), map[string]sim.Trial{}, map[string]float64{}}
	for _, trial := range sim.Trials {
		a.trials[trial.Name] = trial
	}
	return a
}

func (a ablation) compare(t *testing.T, m sim.Mechanism, seeds int) (with, without float64) {
	t.Helper()
	require.Contains(t, a.trials, m.Trial)
	with, ok := a.with[m.Trial]
	if !ok {
		with = a.Cost(t, m.Trial, "", seeds)
		a.with[m.Trial] = with
	}
	return with, a.Cost(t, m.Trial, m.Name, seeds)
}

// seedsOf returns how many seeds show in a test what a trial costs. Two do where a mechanism is worth many times as much
// as two seeds differ from two others. With any seeds, a mechanism is worth its Least by three standard deviations.
func seedsOf(trial string) int {
	switch trial {
	case "seldom":
		return 32
	case "long flapping":
		return 48
	case "overload of POSTs":
		return 24
	case "partly broken", "spike", "wait of half dead":
		return 16
	case "longer outage of a large fleet":
		return 8
	case "lasting outage of a fleet":
		return 4
	}
	return 2
}

// Every mechanism pays for itself.
func TestAblation(t *testing.T) {
	a := newAblation(t)
	for _, m := range sim.Mechanisms {
		t.Run(m.Name, func(t *testing.T) {
			seeds := seedsOf(m.Trial)
			if seeds > 8 && testing.Short() {
				t.Skip("takes long; make nightly runs it")
			}
			with, without := a.compare(t, m, seeds)
			t.Logf("%s: %.2f, and %.2f without it", a.trials[m.Trial].About, with, without)
			assert.GreaterOrEqual(t, without, with+m.Least)
		})
	}
}
