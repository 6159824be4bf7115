package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// plain retries know neither a budget nor a Gate. Who sends little should be served as well as by them.
func plain() retryhttp.Policy { return ungated(unlimited)() }

// compare runs b with the default policy, with plain retries and without retries.
func (b Burst) compare(t *testing.T) (by, plainly BurstResult) {
	t.Helper()
	run := func(name string, policy func() retryhttp.Policy) BurstResult {
		b.Policy = policy
		r := b.Run(t)
		t.Logf("%-7s %v", name, r)
		return r
	}
	by, plainly = run("default", defaults), run("plain", plain)
	b.Seeds = 1 // without retries, there is no chance
	run("once", once)
	return by, plainly
}

func TestBurstOfAFreshProcessLosesNoMoreThanPlainRetriesDo(t *testing.T) {
	for _, milliseconds := range []time.Duration{50, 100, 300, 600, 1000} {
		for _, n := range []int{2, 3, 4, 5, 8, 12} {
			down := milliseconds * time.Millisecond
			t.Run(fmt.Sprint(n, " requests, down for ", down), func(t *testing.T) {
				by, plainly := Burst{Service: refusing(down), Requests: n, Seeds: max(1600/(n-1)/fewer, 800)}.compare(t)
				chance := 3 * math.Hypot(by.Lost.Error, plainly.Lost.Error)
				assert.LessOrEqual(t, by.Lost.Mean, plainly.Lost.Mean+0.05+chance)
				// Twelve that fail at one moment have their host down, though it is back after 50 ms: 2.55 times.
				assert.LessOrEqual(t, meanTime(by.Took).Seconds(), 2.65*meanTime(plainly.Took).Seconds())
			})
		}
	}
}

// No process has had a success when its requests meet those of the others.
func TestCronOfFreshProcessesLosesNoMoreThanPlainRetriesDo(t *testing.T) {
	for _, n := range []int{5, 12} {
		t.Run(fmt.Sprint("20 processes of ", n), func(t *testing.T) {
			by, plainly := Burst{
				Service: crowded, Processes: 20, Requests: n, Bursts: 5, Every: time.Minute, Fresh: true,
				Seeds: 8 / fewer,
			}.compare(t)
			assert.LessOrEqual(t, by.Lost.Mean, plainly.Lost.Mean+0.03+3*math.Hypot(by.Lost.Error, plainly.Lost.Error))
		})
	}
}

// The others must not wait for an attempt that tells nothing.
func TestHangInATroubleStrandsNobody(t *testing.T) {
	for _, n := range []int{20, 50} {
		for name, poll := range map[string]time.Duration{"a retry": 0, "a long poll": 100 * time.Millisecond} {
			t.Run(fmt.Sprint(n, " requests, ", name), func(t *testing.T) {
				hangs := int64(n) + 1 // the first retry
				if poll > 0 {
					hangs = 0
				}
				by, plainly := Burst{
					Service: hanging(500*time.Millisecond, hangs), Requests: n, Poll: poll, Seeds: 40 / fewer,
				}.compare(t)
				assert.LessOrEqual(t, by.Lost.Mean, plainly.Lost.Mean+0.05+3*math.Hypot(by.Lost.Error, plainly.Lost.Error))
			})
		}
	}
}

// Nothing can be saved, so nobody should wait. Only the first requests cannot know.
func TestDeadServiceIsGivenUpSoon(t *testing.T) {
	for _, n := range []int{2, 5} {
		for _, every := range []time.Duration{10 * time.Second, time.Minute} {
			t.Run(fmt.Sprint(n, " requests every ", every), func(t *testing.T) {
				by, plainly := Burst{
					Service: refusing(Never), Requests: n, Bursts: 10, Every: every, Seeds: 40 / fewer,
				}.compare(t)
				assert.Equal(t, 1.0, by.Lost.Mean)
				p50 := engine.Quantile(by.Later, 0.5)
				t.Logf("after the first: p50 %v, plain %v", p50, engine.Quantile(plainly.Later, 0.5))
				assert.LessOrEqual(t, p50, 1500*time.Millisecond)
			})
		}
	}
}

// The first attempt after each pause fails. Without a rest, the bucket would be spent after nine requests, for ever.
func TestServiceThatStartsColdEachTimeIsRetriedEachTime(t *testing.T) {
	for _, every := range []time.Duration{30 * time.Second, 10 * time.Minute, time.Hour} {
		b := trialBurst(1, 0, 1)
		b.Service, b.Bursts, b.Every = coldStarting(every/2), 200, every
		assert.Zero(t, b.Run(t).Lost.Mean, every)
	}
}

// With 400 ms, plain retries lose 7 %, and the default 13: retries in vain use up its credit.
func TestServiceThatWakesWhenAskedIsServedAsByPlainRetries(t *testing.T) {
	for _, wakes := range []time.Duration{100, 200, 250} {
		wakes *= time.Millisecond
		t.Run(wakes.String(), func(t *testing.T) {
			b := trialBurst(1, 0, 40)
			b.Service, b.Bursts, b.Every = waking(wakes), 100, time.Minute
			by, plainly := b.compare(t)
			assert.LessOrEqual(t, by.Lost.Mean, plainly.Lost.Mean+0.03)
			assert.LessOrEqual(t, by.Load.Mean, plainly.Load.Mean+0.05)
		})
	}
}

// A request that failed for want of a retry is no success, and without a success no retry was earned: for ever.
func TestOutageDoesNotLoseAServiceThatStartsCold(t *testing.T) {
	for _, outage := range []time.Duration{5 * time.Minute, 30 * time.Minute, 2 * time.Hour} {
		t.Run(outage.String(), func(t *testing.T) {
			b := trialBurst(1, 0, 1)
			b.Service, b.Every = outageBefore(outage, coldStarting(30*time.Second)), time.Minute
			b.Bursts = int(5 * outage / time.Minute)
			lost := b.Run(t).Lost.Mean * float64(b.Bursts)
			assert.LessOrEqual(t, lost, 3*outage.Minutes()) // of which all in the outage
			assert.Greater(t, lost, outage.Minutes()-1)
		})
	}
}
