package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// compare runs i with the default policy, with plain retries and without retries.
func (i Invited) compare(t *testing.T) (by BusyResult) {
	t.Helper()
	run := func(name string, policy func() retryhttp.Policy) BusyResult {
		i.Policy = policy
		r := i.Run(t)
		t.Logf("%-7s %v", name, r)
		return r
	}
	by = run("default", defaults)
	i.Seeds = 2 / min(fewer, 2)
	run("plain", plain)
	assert.Equal(t, 1.0, run("once", once).LostOfHit.Mean)
	return by
}

// A header that some replies have must not make an outage worse.
func TestOutageInWhichSome503sNameAWait(t *testing.T) {
	r := Invited{
		Rate: 1000, WarmUp: steady, For: 3 * time.Second, After: 10 * time.Second, Naming: 0.1, Capacity: 1300,
		Seeds: 4 / min(fewer, 2),
	}.compare(t)
	assert.LessOrEqual(t, r.LostOfHit.Mean, 0.11)
}

// All come back when they were told to, and to a service with a third to spare.
func TestOutageInWhichAll503sNameAWait(t *testing.T) {
	r := Invited{
		Rate: 1000, WarmUp: steady, For: time.Second, After: 10 * time.Second, Naming: 1, Capacity: 1300,
		Seeds: 4 / min(fewer, 2),
	}.compare(t)
	assert.LessOrEqual(t, r.LostOfHit.Mean, 0.01)
	assert.LessOrEqual(t, r.Peak, 2.2)
}

// One replica of many is busy. Its header says nothing about the others.
func TestReplicaWhose503sNameAWaitHoldsUpNobodyElse(t *testing.T) {
	r := Invited{
		Rate: 1000, WarmUp: steady, For: 20 * time.Second, After: time.Second, Part: 0.03, Naming: 1, Capacity: 1300,
		Seeds: 4 / min(fewer, 2),
	}.compare(t)
	assert.LessOrEqual(t, r.LostOfHit.Mean, 0.01)
	assert.LessOrEqual(t, engine.Quantile(r.Took, 0.5), 2*time.Second)
}
