package retrylab

import (
	"testing"

	"github.com/retryhttp/retryhttp"
)

// Policy is a retryhttp.Policy with a name.
type Policy struct {
	Name string

	// New is called once for each process of each run, inside its bubble, because a Budget, a Gate and a
	// Hedge have a state.
	New func() retryhttp.Policy

	// Fleet, if not nil, takes the place of New. It is called once for each run, inside its bubble, and
	// returns the New of this run. Set it if the processes of a run share something, such as a Budget. If it
	// starts something, it must end that by t.Cleanup. What it shares must use the bubble's clock: a real
	// server such as Redis hardly sees time pass.
	Fleet func(t *testing.T) func() retryhttp.Policy

	plain bool // in Replicas, its base hides the connections
}

// fleet returns p.Fleet, or what is the same without one.
func (p Policy) fleet() func(*testing.T) func() retryhttp.Policy {
	if p.Fleet != nil {
		return p.Fleet
	}
	return func(*testing.T) func() retryhttp.Policy { return p.New }
}

// edited returns a Policy like p with another name, whose policies are edited.
func (p Policy) edited(name string, edit func(retryhttp.Policy) retryhttp.Policy) Policy {
	fleet := p.fleet()
	return Policy{Name: name, plain: p.plain, Fleet: func(t *testing.T) func() retryhttp.Policy {
		policy := fleet(t)
		return func() retryhttp.Policy { return edit(policy()) }
	}}
}

// The names of the rows that every Result has.
const (
	TheirPolicy = "policy"     // the policy that Run was given
	NoRetries   = "no retries" // one attempt, with the AttemptTimeout of the policy

	// Unbounded is the default policy without a Budget and a Gate, with the AttemptTimeout of the policy.
	Unbounded = "retries without a budget"
)

// Default is the zero Policy.
func Default() retryhttp.Policy { return retryhttp.Policy{} }

// baselines are what stands beside the first of the policies. They wait for answers as long as it does.
func baselines(first Policy) []Policy {
	return []Policy{
		first.edited(Unbounded, func(p retryhttp.Policy) retryhttp.Policy {
			return retryhttp.Policy{
				AttemptTimeout: p.AttemptTimeout,
				Budget:         retryhttp.Unlimited{},
				Gate:           &retryhttp.Gate{Hold: -1},
			}
		}),
		first.edited(NoRetries, func(p retryhttp.Policy) retryhttp.Policy {
			return retryhttp.Policy{MaxAttempts: 1, AttemptTimeout: p.AttemptTimeout}
		}),
	}
}
