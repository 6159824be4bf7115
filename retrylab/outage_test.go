package retrylab_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// busy is a process with many requests, so that chance weighs little in few runs.
func busy() retrylab.Load { return retrylab.Load{Rate: 1000, Seeds: 1} }

func timeout(d time.Duration) func() retryhttp.Policy {
	return func() retryhttp.Policy { return retryhttp.Policy{AttemptTimeout: d} }
}

func TestOutageOfASecondLosesNothingByDefault(t *testing.T) {
	r := retrylab.Outage{Load: busy(), For: time.Second}.Run(t, retrylab.Default)
	assert.InDelta(t, 1000, r.Policy().Hit.Mean, 100)
	assert.LessOrEqual(t, r.Policy().Lost.Mean, 0.02)
	assert.LessOrEqual(t, r.Policy().LostLater.Mean, 0.002)
	assert.LessOrEqual(t, r.Policy().Load.Mean, 1.06)
	assert.LessOrEqual(t, r.Policy().Peak.Most, 2.0)
	assert.InDelta(t, 2.2, r.Policy().Success.Mean, 0.5)
	assert.LessOrEqual(t, r.Policy().SuccessP99.Mean, 5.0)

	unbounded := r.Row(retrylab.Unbounded)
	assert.InDelta(t, 0.52, unbounded.Lost.Mean, 0.08)
	assert.InDelta(t, 2.71, unbounded.Load.Mean, 0.15)
	assert.GreaterOrEqual(t, unbounded.Peak.Mean, 3.0)

	none := r.Row(retrylab.NoRetries)
	assert.Equal(t, 1.0, none.Lost.Mean)
	assert.Equal(t, 1.0, none.Load.Mean)
	assert.Zero(t, none.FailureP99.Mean, "a 503 comes at once")
}

func TestOutageAfterAShortUptime(t *testing.T) {
	for _, c := range []struct {
		processes int
		lost      float64
	}{{1, 0.04}, {100, 0.08}} {
		t.Run(fmt.Sprint(c.processes, " processes"), func(t *testing.T) {
			o := retrylab.Outage{Load: busy(), For: time.Second}
			o.Processes, o.Uptime = c.processes, time.Second
			r := o.Run(t, retrylab.Default, retrylab.Policy{Name: "a tenth, no Gate", New: func() retryhttp.Policy {
				return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Ratio: 0.1}, Gate: &retryhttp.Gate{Hold: -1}}
			}})
			assert.LessOrEqual(t, r.Policy().Lost.Mean, c.lost)
			assert.GreaterOrEqual(t, r.Row("a tenth, no Gate").Lost.Mean, 0.85)
		})
	}
}

func TestOutageInSilenceEndsWithAttemptTimeout(t *testing.T) {
	r := retrylab.Outage{Load: busy(), For: time.Second, Silent: true}.Run(t, timeout(500*time.Millisecond))
	assert.LessOrEqual(t, r.Policy().Lost.Mean, 0.01)
	assert.LessOrEqual(t, r.Policy().Load.Mean, 1.05)
	assert.GreaterOrEqual(t, r.Row(retrylab.Unbounded).Peak.Mean, 3.0)
	assert.InDelta(t, 0.5, r.Row(retrylab.NoRetries).FailureP99.Mean, 0.001)
}

func TestOutageInSilenceWithoutAttemptTimeoutLastsAsLongAsTheSystemWaits(t *testing.T) {
	o := retrylab.Outage{Load: retrylab.Load{Rate: 10, Seeds: 1}, For: time.Second, Silent: true}
	r := o.Run(t, retrylab.Default)
	assert.InDelta(t, 900, r.Row(retrylab.Unbounded).Success.Mean, 10)
	o.Deadline = 2 * time.Second
	r = o.Run(t, retrylab.Default)
	assert.Equal(t, 1.0, r.Policy().Lost.Mean)
	assert.InDelta(t, 2, r.Policy().Failure.Mean, 0.001)
}

func TestOutageOfAPartOfTheAttempts(t *testing.T) {
	o := retrylab.Outage{Load: busy(), For: 10 * time.Second, Part: 0.1}
	r := o.Run(t, retrylab.Default)
	assert.InDelta(t, 1000, r.Policy().Hit.Mean, 150)
	assert.LessOrEqual(t, r.Policy().Lost.Mean, 0.01)
	assert.InDelta(t, 1.111, r.Policy().Load.Mean, 0.02)
}

func TestOutageOfAServiceThatComesBackSlowly(t *testing.T) {
	o := retrylab.Outage{Load: busy(), For: time.Second, Slowly: 5 * time.Second, After: 20 * time.Second}
	r := o.Run(t, retrylab.Default)
	assert.LessOrEqual(t, r.Policy().Lost.Mean, 0.05)
	assert.GreaterOrEqual(t, r.Row(retrylab.Unbounded).Lost.Mean, 0.65)
	later := r.Row(retrylab.NoRetries).LostLater.Mean
	assert.Greater(t, later, 0.01, "the service has too little room at first")
	assert.Less(t, r.Policy().LostLater.Mean, r.Row(retrylab.Unbounded).LostLater.Mean)
}

func TestServiceHasAllRoomBeforeItsOutage(t *testing.T) {
	o := retrylab.Outage{Load: busy(), For: time.Second, Room: 0.3, After: time.Second}
	none := o.Run(t, retrylab.Default).Row(retrylab.NoRetries)
	before := int(time.Second / retrylab.Bin)
	assert.InEpsilon(t, engine.Total(none.Attempts[:before]), engine.Total(none.Successes[:before]), 0.1)
}

func TestOutageWithAnyRoomTakesAllRetries(t *testing.T) {
	o := retrylab.Outage{Load: busy(), For: time.Second, Room: -1}
	assert.Zero(t, o.Run(t, retrylab.Default).Row(retrylab.NoRetries).LostLater.Mean)
}
