package retrylab

import (
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// allDead fails every attempt, so every request is retried as long as its policy lets it.
func allDead() Experiment {
	return DeadBackend{Load: Load{Rate: 20, Uptime: time.Second, Seeds: 2}, Backends: 1, Dead: 1, For: time.Second}
}

func compared(t *testing.T, e Experiment, policy func() retryhttp.Policy) Result {
	t.Helper()
	p, err := checked(e)
	require.NoError(t, err)
	return p.compare(t, []Policy{{Name: "broken", New: policy}, {Name: "sound", New: Default}}, false)
}

// hook calls f before each retry.
func hook(f func()) func() retryhttp.Policy {
	return func() retryhttp.Policy {
		return retryhttp.Policy{OnRetry: func(retryhttp.Attempt) { f() }, Gate: &retryhttp.Gate{Hold: -1}}
	}
}

func endless() retryhttp.Policy {
	return retryhttp.Policy{
		MaxAttempts: -1, Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}, Gate: &retryhttp.Gate{Hold: -1},
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			if a.Response != nil && a.Response.StatusCode == http.StatusOK {
				return retryhttp.Final
			}
			return retryhttp.Retryable
		},
	}
}

// A test that fails in the way that it checks would hang.
func TestBrokenPolicyIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		policy func() retryhttp.Policy
		says   string
	}{
		"panics in a hook":          {hook(func() { panic("so what") }), "panic: so what\ngoroutine"},
		"panics when it is made":    {func() retryhttp.Policy { panic("not made") }, "panic: not made\ngoroutine"},
		"retries at once, for ever": {endless, "a request made more than 10000 attempts"},
		"waits for ever":            {hook(func() { select {} }), "requests had not ended 2h0m0s after the last one was made"},
		"waits for hours, for ever": {hook(func() { time.Sleep(1000 * time.Hour) }), "requests had not ended"},
		"has an hour for each retry": {func() retryhttp.Policy {
			p := endless()
			p.Backoff = retryhttp.Constant(time.Hour)
			return p
		}, "requests had not ended"},
	} {
		t.Run(name, func(t *testing.T) {
			r := compared(t, allDead(), c.policy)
			require.GreaterOrEqual(t, len(r.Failures), 2, "for each seed")
			for i, f := range r.Failures[:2] {
				assert.Equal(t, "dead-backend", f.Experiment)
				assert.Equal(t, "broken", f.Policy)
				assert.Equal(t, i+1, f.Seed)
				assert.Contains(t, f.Reason, c.says)
			}
			assert.Nil(t, r.Row("broken").Offered, "no figures of runs that failed")
			assert.Contains(t, r.String(), "FAILED: dead-backend, policy \"broken\", seed 1: ")
			assert.NotEmpty(t, r.Row("sound").Offered, "the rest goes on")
		})
	}
}

func TestPolicyThatIsStuckInRealTimeIsReported(t *testing.T) {
	usual := engine.StuckAfter
	engine.StuckAfter = 2 * time.Second
	t.Cleanup(func() { engine.StuckAfter = usual })
	var locked sync.Mutex
	locked.Lock() // for ever: a bubble that ended after its test would race with package testing
	r := compared(t, allDead(), hook(func() { locked.Lock() }))
	require.Len(t, r.Failures, 2)
	assert.Equal(t, Failure{"dead-backend", "broken", 1, engine.ErrStuck.Error()}, r.Failures[0])
}

func TestExperimentWithAndWithoutHedgeReportsABrokenPolicy(t *testing.T) {
	e := LatencyStep{Load: Load{Rate: 20, Uptime: time.Second, Seeds: 1}, For: time.Second, After: time.Second}
	r := compared(t, e, func() retryhttp.Policy { panic("not made") })
	var policies []string
	for _, f := range r.Failures {
		policies = append(policies, f.Policy)
		assert.Contains(t, f.Reason, "panic: not made")
	}
	assert.Equal(t, []string{"broken", "broken, with a Hedge", Unbounded, NoRetries}, policies)
}

func TestFailureSaysHowManyRequestsHadNotEnded(t *testing.T) {
	var made atomic.Int64
	r := compared(t, allDead(), func() retryhttp.Policy {
		p := hook(func() {
			if made.Add(1) == 3 {
				select {}
			}
		})()
		p.Budget = retryhttp.Unlimited{}
		return p
	})
	require.Len(t, r.Failures, 1, "of one seed")
	assert.Contains(t, r.Failures[0].Reason, "1 requests had not ended")
}

func TestRunsLeaveNoGoroutine(t *testing.T) {
	for name, c := range map[string]struct {
		experiment Experiment
		policy     func() retryhttp.Policy
	}{
		"of a service that works for clients that have gone": {
			Spike{Load: Load{Rate: 40, Seeds: 1}, Times: 10, After: time.Second}, Default,
		},
		"of a policy, which ends within a minute": {allDead(), func() retryhttp.Policy {
			go time.Sleep(50 * time.Second)
			return retryhttp.Policy{}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine() // and one to count them
			require.Empty(t, compared(t, c.experiment, c.policy).Failures)
			assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, time.Millisecond)
		})
	}
}

func TestPolicyMayHaveGoroutinesOfItsOwn(t *testing.T) {
	r := compared(t, allDead(), func() retryhttp.Policy {
		go func() {
			for range time.Tick(time.Minute) { //nolint // as a background job of a Budget does
			}
		}()
		return retryhttp.Policy{}
	})
	assert.Empty(t, r.Failures)
	assert.Zero(t, r.Row("broken").Succeeded.Mean)
}

// TestOfAUser is a test of a user of this package, which fails. See below.
func TestOfAUser(t *testing.T) {
	switch os.Getenv("RETRYLAB_USER") {
	case "panics":
		allDead().Run(t, hook(func() { panic("so what") }))
		t.Log("went on")
	case "bad input":
		Outage{For: -1}.Run(t, Default)
		t.Log("went on")
	case "no policy":
		allDead().Run(t, nil)
		t.Log("went on")
	case "bad comparison":
		Comparison{Experiments: []Experiment{Outage{For: -1}}}.Run(t)
		t.Log("went on")
	case "compares":
		Comparison{Experiments: []Experiment{allDead()}, Policies: []Policy{{Name: "p", New: hook(func() { panic("so what") })}}}.Run(t)
		t.Log("went on")
	}
}

func TestRunFailsTheTestOfItsUser(t *testing.T) {
	for kind, says := range map[string]string{
		"panics":    `retrylab: dead-backend, policy "policy", seed 2: panic: so what`,
		"compares":  `retrylab: dead-backend, policy "p", seed 2: panic: so what`,
		"bad input": `retrylab: outage: For is -1ns, and must be at least 100ms`,
		"no policy": "retrylab: the policy is nil; retrylab.Default is the default policy",

		"bad comparison": `retrylab: outage: For is -1ns, and must be at least 100ms`,
	} {
		t.Run(kind, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestOfAUser$", "-test.v")
			cmd.Env = append(os.Environ(), "RETRYLAB_USER="+kind)
			output, err := cmd.CombinedOutput()
			assert.Error(t, err)
			assert.Contains(t, string(output), says)
			if kind == "bad input" || kind == "bad comparison" || kind == "no policy" {
				assert.NotContains(t, string(output), "went on")
			} else {
				assert.Contains(t, string(output), "went on")
			}
		})
	}
}
