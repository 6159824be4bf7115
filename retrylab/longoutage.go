package retrylab

import (
	"errors"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
)

// LongOutage is an Outage that outlasts the usual Hold. Each policy is run as it is, and with a Hold that outlasts the
// outage, for work that can wait.
type LongOutage struct {
	Load

	For  time.Duration // the length of the outage. 0: 30 s
	Hold time.Duration // Gate.Hold of the further rows. 0: twice For
}

// Name returns "long-outage".
func (l LongOutage) Name() string { return "long-outage" }

// Validate implements Experiment.
func (l LongOutage) Validate() error { return validate(l) }

// Run implements Experiment.
func (l LongOutage) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, l, policy, others)
}

func (l LongOutage) plan() (plan, error) {
	setDefault(&l.For, 30*time.Second)
	setDefault(&l.Hold, 2*l.For)
	p, err := Outage{Load: l.Load, For: l.For, After: l.For}.plan()
	p.reading = "Hold, and not MaxAttempts, decides what an outage of this length loses: a retry that leaves the Gate too soon is sent " +
		"into the outage. Compare lost with the row that has another Hold, and success p99 with what your callers wait for."
	p.more = []Setting{{"For", l.For.String()}, {"Hold", l.Hold.String()}}
	p.changes = nil
	longer := hold(l.Hold)
	p.variants = func(_ *testing.T, policies []Policy) (all []Policy) {
		for _, policy := range policies {
			all = append(all, policy, policy.edited(policy.Name+", "+longer.says, longer.edit))
		}
		return all
	}
	return p, errors.Join(err, atLeast("Hold", l.Hold, 1))
}
