// Package retrylab answers what a retry policy does to a service: at your rate, with your number of
// processes. It runs the real [retryhttp.Transport] in virtual time, so a minute takes a fraction of a
// second and needs no network.
//
// An experiment is a struct whose zero fields mean defaults. In a test, Run compares a policy with
// retries without a budget and with no retries:
//
//	result := retrylab.Outage{For: 3 * time.Second}.Run(t, policy)
//	if lost := result.Policy().Lost.Mean; lost > 0.05 {
//		t.Errorf("an outage of 3 s loses %.0f %%\n%v", 100*lost, result)
//	}
//
// A [Comparison] runs several experiments with several policies. The command cmd/retrylab does the same
// from a shell.
//
// Arrivals and latencies come from seeds. The library's own jitter does not, so figures differ a little
// between runs. Assert ranges, or raise [Load.Seeds].
package retrylab
