package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// unbounded is the published client: three attempts, no budget, and no Gate.
func unbounded(b retryhttp.Backoff) func() retryhttp.Policy {
	return ungated(func() retryhttp.Policy {
		return retryhttp.Policy{MaxAttempts: 3, Backoff: b, Budget: retryhttp.Unlimited{}}
	})
}

func TestServiceRecoversFromSpikeWithoutRetries(t *testing.T) {
	once := func() retryhttp.Policy { return retryhttp.Policy{MaxAttempts: 1} }
	c := Collapse{
		Policy: once, Processes: 1, Spike: 100, SpikeFor: 10 * time.Second,
		Until: 80 * time.Second, Seeds: 8 / fewer,
	}
	r := c.Run(t)
	assert.Equal(t, c.Seeds, r.Recovered(15*time.Second), "%v", r.Recovery)
	assert.Zero(t, engine.Total(r.Goodput[30:35]), "the spike did break it")
}

func TestServiceNeverRecoversFromSpikeWithBackoffAlone(t *testing.T) {
	for name, backoff := range map[string]retryhttp.Backoff{
		"no backoff":              retryhttp.Constant(0),
		"backoff and full jitter": retryhttp.FullJitter(20*time.Second, 40*time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			r := Collapse{
				Policy: unbounded(backoff), Processes: 1, Spike: 100, SpikeFor: 10 * time.Second,
				Until: 140 * time.Second, Seeds: 4 / fewer,
			}.Run(t)
			assert.Zero(t, r.Recovered(Never), "%v", r.Recovery)
			assert.Zero(t, r.Settled.Mean, "successes per second")
			assert.Greater(t, r.Load[len(r.Load)-5], 2.5*CollapseRate, "what keeps it down")
		})
	}
}

func TestServiceRecoversFromSpikeWithDefaultPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		processes, seeds    int
		until, mean, within time.Duration
	}{
		"in one process": {1, 20, 65 * time.Second, 13 * time.Second, 15 * time.Second},
		// One in twenty takes 21 s, one in three hundred 22 s.
		"in 100 processes": {100, 20, 65 * time.Second, 20 * time.Second, 25 * time.Second},
		// It is 25 s between the requests of one process, which has Burst tokens.
		"in 1000 processes": {1000, 4, 180 * time.Second, 2 * time.Minute, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			r := Collapse{
				Policy: defaults, Processes: c.processes, Spike: 100, SpikeFor: 10 * time.Second,
				Until: c.until, Seeds: c.seeds / fewer,
			}.Run(t)
			assert.Equal(t, c.seeds/fewer, r.Recovered(c.within), "%v", r.Recovery)
			assert.LessOrEqual(t, engine.NumberOf(r.Recovery, time.Duration.Seconds).Mean, c.mean.Seconds(), "%v", r.Recovery)
			assert.Zero(t, engine.Total(r.Goodput[30:35]), "the spike did break it")
		})
	}
}

// With more seeds it is 0.5 s of 11, 1.2 s of 18, and 1.7 s of 97.
func TestGateSlowsRecoveryFromSpikeByTwoSecondsOrATwentiethAtMost(t *testing.T) {
	for name, c := range map[string]struct {
		processes, seeds int
		until            time.Duration
	}{
		"in one process":    {1, 32, 65 * time.Second},
		"in 100 processes":  {100, 32, 65 * time.Second},
		"in 1000 processes": {1000, 8, 180 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			spike := Collapse{
				Policy: defaults, Processes: c.processes, Spike: 100, SpikeFor: 10 * time.Second,
				Until: c.until, Seeds: c.seeds / min(fewer, 2),
			}
			mean := func(r CollapseResult) float64 {
				return engine.NumberOf(r.Recovery, time.Duration.Seconds).Mean
			}
			with := spike.Run(t)
			spike.Policy = ungated(defaults)
			without := spike.Run(t)
			most := mean(without) + max(2, mean(without)/20)
			assert.LessOrEqual(t, mean(with), most, "%v and %v", with.Recovery, without.Recovery)
		})
	}
}

func TestGateIsNoSubstituteForABudget(t *testing.T) {
	r := Collapse{
		Policy: unlimited, Processes: 1, Spike: 100, SpikeFor: 10 * time.Second,
		Until: 140 * time.Second, Seeds: 4 / fewer,
	}.Run(t)
	assert.Zero(t, r.Recovered(Never), "%v", r.Recovery)
	assert.Zero(t, r.Settled.Mean, "successes per second")
}

func TestServiceShrugsOffSmallSpikeWithBackoff(t *testing.T) {
	// The spike of the published model, 80 a second for 5 s, from which backoff
	// and jitter do recover.
	jitter := retryhttp.FullJitter(20*time.Second, 40*time.Second)
	c := Collapse{
		Policy: unbounded(jitter), Processes: 1, Spike: 80, SpikeFor: 5 * time.Second,
		Until: 80 * time.Second, Seeds: 12 / fewer,
	}
	r := c.Run(t)
	assert.Equal(t, c.Seeds, r.Recovered(15*time.Second), "%v", r.Recovery)
}

func TestRecoveryIsFromWhereGoodputStays(t *testing.T) {
	series := func(from, to int, v float64) []float64 {
		bins := make([]float64, 60)
		for i := from; i < to; i++ {
			bins[i] = v
		}
		return bins
	}
	offered := series(0, 60, 40)
	assert.Equal(t, time.Duration(0), recovery(offered, offered, 20))
	assert.Equal(t, Never, recovery(offered, series(0, 55, 40), 20), "it ends broken")
	assert.Equal(t, 14*time.Second, recovery(offered, series(35, 60, 40), 20), "a tenth of the first 10 s may be missing")
	relapse := series(0, 60, 40)
	clear(relapse[40:43])
	assert.Equal(t, 22*time.Second, recovery(offered, relapse, 20))
}
