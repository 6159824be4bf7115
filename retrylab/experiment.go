package retrylab

import (
	"fmt"
	"slices"
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

// compare runs the plan with each policy, and with the baselines and the changes unless the policies are alone, for each
// seed.
func (p plan) compare(t *testing.T, given []Policy, alone bool) Result {
	t.Helper()
	shown, changed := given, []Policy(nil)
	if !alone {
		shown, changed = p.besides(t, given)
	}
	trials, failures := p.runAll(t, slices.Concat(shown, changed))
	result := Result{
		Experiment: p.name, Reading: p.reading, Settings: append(p.more, p.settings(p.unused)...), Columns: p.columns,
		SeriesFrom: -p.trouble.from, TroubleFor: min(p.trouble.to, p.end) - p.trouble.from,
	}
	for _, f := range failures {
		if slices.ContainsFunc(shown, f.isOf) {
			result.Failures = append(result.Failures, f)
		}
	}
	hedged := false
	for i, policy := range shown {
		result.Rows = append(result.Rows, p.row(policy.Name, trials[i]))
		if len(trials[i]) == 0 {
			continue
		}
		hedged = hedged || trials[i][0].hedged
		if slices.ContainsFunc(given, func(g Policy) bool { return g.Name == policy.Name }) {
			result.Policies = append(result.Policies, Setting{policy.Name, trials[i][0].says})
		}
	}
	if hedged {
		result.Columns = append(slices.Clip(result.Columns), colHedges)
	}
	if len(changed) > 0 && len(trials[0]) > 1 { // one run may be chance
		var tried []triedChange
		for i, policy := range changed {
			// A change that the policy has already, or that its Budget does not allow, says nothing.
			if of := trials[len(shown)+i]; len(of) > 0 && of[0].says != trials[0][0].says {
				tried = append(tried, triedChange{p.changes[i].says, p.row(policy.Name, of)})
			}
		}
		result.Advice = p.better.advice(result.Rows[0], tried)
	}
	return result
}

// besides returns the policies that have a row, and the changes to the first, which have none. A Fleet may share what a
// change would take from it.
func (p plan) besides(t *testing.T, given []Policy) (shown, changed []Policy) {
	t.Helper()
	first := given[0]
	shown = given
	if p.variants != nil {
		shown = p.variants(t, given)
	}
	shown = append(slices.Clip(shown), baselines(first)...)
	if first.Fleet == nil {
		for _, c := range p.changes {
			changed = append(changed, first.edited(first.Name+", "+c.says, c.edit))
		}
	}
	return shown, changed
}

// runAll runs the plan with each policy for each seed. It returns the trials of each policy that came to their end.
func (p plan) runAll(t *testing.T, policies []Policy) (good [][]*trial, failures []Failure) {
	t.Helper()
	trials := make([]*trial, len(policies)*p.Seeds)
	for i := range trials {
		trials[i] = newTrial(p, policies[i/p.Seeds])
	}
	ends := engine.Bubbles(t, len(trials),
		func(i int) int64 { return trials[i].progress.Load() },
		func(t *testing.T, i int) { trials[i].run(t, engine.Seeded(i%p.Seeds+1)) },
	)
	good = make([][]*trial, len(policies))
	for i, trial := range trials {
		of, seed := i/p.Seeds, i%p.Seeds+1
		if reason := reasonOf(trial, ends[i]); reason != "" {
			failures = append(failures, Failure{p.name, policies[of].Name, seed, reason})
			continue
		}
		trial.sort()
		good[of] = append(good[of], trial)
	}
	return good, failures
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
