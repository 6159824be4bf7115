package sim

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

var (
	trialName  = flag.String("trial", "", "run the trial with this name alone, and print its cost")
	trialSeeds = flag.Int("seeds", 1, "number of runs of a trial")
)

// TestTrial is for an Ablation, which names a trial.
func TestTrial(t *testing.T) {
	if *trialName == "" {
		t.Skip("no trial is named")
	}
	for _, trial := range Trials {
		if *trialName == trial.Name {
			fmt.Printf("cost: %g\n", trial.Cost(t, *trialSeeds))
		}
	}
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
