package retrylab

import (
	"fmt"
	"testing"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Experiment is one of the experiments of this package. Each is a struct, and a field that is zero has
// the default that its comment names.
type Experiment interface {
	// Name returns the experiment's name, as the command has it.
	Name() string

	// Validate returns an error that names each field with a value that makes no sense.
	Validate() error

	// Run compares a policy with others, with retries without a budget, and with no retries. New Policies
	// are made for each process of each run. It fails the test, and returns at once, if Validate returns an
	// error. It fails the test, and goes on, if a policy panics or a request never ends.
	//
	// Run must not be called in a testing/synctest bubble: it makes its own.
	Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result

	plan() (plan, error)
}

// run is Run of an experiment.
func run(t *testing.T, e Experiment, policy func() retryhttp.Policy, others []Policy) Result {
	t.Helper()
	p, err := checked(e)
	if err != nil {
		t.Fatal(err)
	}
	if policy == nil {
		t.Fatal("retrylab: the policy is nil; retrylab.Default is the default policy")
	}
	result := p.compare(t, append([]Policy{{Name: TheirPolicy, New: policy}}, others...), false)
	for _, f := range result.Failures {
		t.Errorf("retrylab: %v", f)
	}
	return result
}

// checked returns the plan of e, or an error that begins with its name.
func checked(e Experiment) (plan, error) {
	p, err := e.plan()
	if err != nil {
		return plan{}, fmt.Errorf("retrylab: %s: %w", e.Name(), err)
	}
	p.name = e.Name()
	return p, nil
}

func validate(e Experiment) error {
	_, err := checked(e)
	return err
}

// compare runs the plan with each policy, and with the baselines unless the policies are alone, for each
// seed.
func (p plan) compare(t *testing.T, policies []Policy, alone bool) Result {
	t.Helper()
	first := policies[0]
	if p.variants != nil && !alone {
		policies = p.variants(t, policies)
	}
	if !alone {
		policies = append(policies[:len(policies):len(policies)], baselines(first)...)
	}
	trials := make([]*trial, len(policies)*p.Seeds)
	for i := range trials {
		trials[i] = newTrial(p, policies[i/p.Seeds].fleet())
	}
	ends := engine.Bubbles(t, len(trials),
		func(i int) int64 { return trials[i].progress.Load() },
		func(t *testing.T, i int) { trials[i].run(t, engine.Seeded(i%p.Seeds+1)) },
	)
	result := Result{
		Experiment: p.name, Reading: p.reading, Settings: append(p.more, p.settings(p.unused)...), Columns: p.columns,
		SeriesFrom: -p.trouble.from, TroubleFor: min(p.trouble.to, p.end) - p.trouble.from,
	}
	for i, policy := range policies {
		var good []*trial
		for seed := range p.Seeds {
			reason := reasonOf(trials[i*p.Seeds+seed], ends[i*p.Seeds+seed])
			if reason != "" {
				result.Failures = append(result.Failures, Failure{p.name, policy.Name, seed + 1, reason})
				continue
			}
			good = append(good, trials[i*p.Seeds+seed])
		}
		for _, t := range good {
			t.sort()
		}
		result.Rows = append(result.Rows, p.row(policy.Name, good))
	}
	return result
}

// reasonOf returns why a trial failed, or "". A bubble that has ended after its trial may leave
// goroutines that the policy has started for itself: they have changed nothing. A trial that is stuck
// still runs, so nothing of it is read.
func reasonOf(t *trial, end any) string {
	if end == engine.ErrStuck {
		return engine.ErrStuck.Error()
	}
	return t.failed()
}
