package retrylab

import "github.com/retryhttp/retryhttp"

// Policy is a retryhttp.Policy with a name. New is called once for each process of each run, inside its
// bubble, because a Budget, a Gate and a Hedge have a state. A New that returns the same Budget each
// time would share it among bubbles, and is no experiment.
type Policy struct {
	Name string
	New  func() retryhttp.Policy
}

// The names of the rows that every Result has.
const (
	TheirPolicy = "policy"                   // the policy that Run was given
	Unbounded   = "retries without a budget" // the default policy without a Budget and a Gate
	NoRetries   = "no retries"
)

// Default is the zero Policy.
func Default() retryhttp.Policy { return retryhttp.Policy{} }

// baselines are what stands beside every policy. They wait for answers as long as the policy does.
func baselines(policy func() retryhttp.Policy) []Policy {
	return []Policy{
		{Unbounded, func() retryhttp.Policy {
			return retryhttp.Policy{
				AttemptTimeout: policy().AttemptTimeout,
				Budget:         retryhttp.Unlimited{},
				Gate:           &retryhttp.Gate{Hold: -1},
			}
		}},
		{NoRetries, func() retryhttp.Policy {
			return retryhttp.Policy{MaxAttempts: 1, AttemptTimeout: policy().AttemptTimeout}
		}},
	}
}
