package sim

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	trialName  = flag.String("trial", "burst", "the trial that TestTrial runs, and whose cost it prints")
	trialSeeds = flag.Int("seeds", 1, "number of runs of the trial")
)

// TestTrial runs one trial. An Ablation names it.
func TestTrial(t *testing.T) {
	i := slices.IndexFunc(Trials, func(trial Trial) bool { return trial.Name == *trialName })
	require.NotEqual(t, -1, i, "there is no such trial")
	cost := Trials[i].Cost(t, *trialSeeds)
	assert.False(t, math.IsNaN(cost) || math.IsInf(cost, 0))
	fmt.Printf("cost: %g\n", cost)
}

func TestEachTrialPaysForAMechanism(t *testing.T) {
	var pay, paid []string
	for _, trial := range Trials {
		pay = append(pay, trial.Name)
	}
	for _, m := range Mechanisms {
		paid = append(paid, m.Trial)
	}
	slices.Sort(paid)
	assert.ElementsMatch(t, pay, slices.Compact(paid))
}
