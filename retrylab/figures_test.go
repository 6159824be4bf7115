package retrylab_test

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
)

func TestTimesOfAllSeedsAreInOrder(t *testing.T) {
	d := retrylab.DeadBackend{Load: small(), Backends: 2, For: 5 * time.Second}
	r := d.Run(t, func() retryhttp.Policy {
		return retryhttp.Policy{MaxAttempts: 2, Gate: &retryhttp.Gate{Hold: -1}}
	})
	row := r.Policy()
	for name, times := range map[string]retrylab.Times{"success": row.SuccessTimes, "failure": row.FailureTimes} {
		assert.NotEmpty(t, times, name)
		assert.True(t, slices.IsSorted(times), name)
	}
	hit := float64(len(row.SuccessTimes) + len(row.FailureTimes))
	assert.InDelta(t, row.Hit.Mean*2, hit, row.Hit.Mean, "of two seeds")
	assert.Greater(t, row.FailureP99.Mean, row.Failure.Mean)
}

// These experiments take the peak from the time after the trouble, and the goodput from the end of that time.
func TestPeakIsThatOfTheRetriesThatComeTogether(t *testing.T) {
	together := func() retryhttp.Policy { // each retry comes after the trouble
		return retryhttp.Policy{
			MaxAttempts: 2, Backoff: retryhttp.Constant(4 * time.Second), Budget: retryhttp.Unlimited{},
			Gate: &retryhttp.Gate{Hold: -1},
		}
	}
	for _, e := range []retrylab.Experiment{
		retrylab.Layers{Load: small(), Services: 1, For: time.Second, After: 6 * time.Second},
		retrylab.Outage{Load: small(), For: time.Second, Room: -1, After: 6 * time.Second},
		retrylab.Deploy{Load: small(), Backends: 1, Down: time.Second, After: 6 * time.Second},
	} {
		r := e.Run(t, together)
		attempts, from := r.Policy().Attempts, int((r.TroubleFor-r.SeriesFrom)/retrylab.Bin)
		require.Less(t, from, len(attempts))
		assert.Greater(t, r.Policy().Peak.Mean*50, slices.Max(attempts[from:])*0.9, "%s: the mean of two seeds' peaks", e.Name())
		assert.Less(t, r.Row(retrylab.NoRetries).Peak.Mean, r.Policy().Peak.Mean, e.Name())
		assert.InDelta(t, 1, r.Policy().Goodput.Mean, 0.05, "%s: the server is well at the end", e.Name())
	}
	step := retrylab.LatencyStep{Load: small(), For: 2 * time.Second, After: 3 * time.Second}.Run(t, retrylab.Default)
	assert.NotZero(t, step.Policy().Peak.Mean)
	assert.InDelta(t, 1, step.Policy().Goodput.Mean, 0.05)
}

func TestLimitWithoutARetryAfterIsBare(t *testing.T) {
	waits := func(bare bool) float64 {
		return retrylab.RateLimit{Load: small(), Allowed: 10, Workers: 5, Jobs: 40, Bare: bare}.Run(t, func() retryhttp.Policy {
			return retryhttp.Policy{
				Backoff: retryhttp.Constant(time.Millisecond), MaxAttempts: -1, Budget: retryhttp.Unlimited{},
				Gate: &retryhttp.Gate{Hold: -1},
			}
		}).Policy().Load.Mean
	}
	assert.Less(t, waits(false), 5.0, "each waits for a second")
	assert.Greater(t, waits(true), 20.0)
}

// The time in which attempts and requests are counted is the same, whether it lasts to the end or not.
func TestLoadWithoutRetriesIsOne(t *testing.T) {
	for _, e := range retrylab.All(retrylab.Load{Rate: 40, Uptime: 25 * time.Second, Seeds: 1}) {
		r := retrylab.Comparison{
			Experiments: []retrylab.Experiment{e}, Alone: true,
			Policies: []retrylab.Policy{{Name: "none", New: func() retryhttp.Policy { return retryhttp.Policy{MaxAttempts: 1} }}},
		}.Run(t)
		assert.Equal(t, 1.0, r.Results[0].Row("none").Load.Mean, e.Name())
	}
}

// A peak is relative to the rate that is usual. A RateLimit has none but what it allows.
func TestPeakOfARateLimitIsRelativeToWhatItAllows(t *testing.T) {
	load := small()
	load.Rate = 1e4
	r := retrylab.RateLimit{Load: load, Allowed: 10, Workers: 10, Jobs: 40, Bare: true}.Run(t, retrylab.Default)
	assert.Greater(t, r.Row(retrylab.NoRetries).Peak.Mean, 1.0)
}

// A request that its caller has given up is given up by all services below.
func TestLayersHaveTheDeadlineOfTheFirst(t *testing.T) {
	load := small()
	load.Latency, load.Deadline = 5*time.Second, time.Second
	r := retrylab.Layers{Load: load, Services: 3, For: 5 * time.Second, After: 10 * time.Second}.Run(t, retrylab.Default)
	assert.InDelta(t, 1.0, r.Policy().FailureP99.Mean, 0.001)
	assert.Less(t, r.Policy().Load.Mean, 1.7, "nothing is retried below for a caller who has gone")
}

func TestRateLimitMayBeSlowerThanADeadline(t *testing.T) {
	load := small()
	load.Deadline = time.Microsecond
	r := retrylab.RateLimit{Load: load, Allowed: 10, Workers: 2, Jobs: 40}.Run(t, retrylab.Default)
	assert.Empty(t, r.Failures)
	assert.Equal(t, 1.0, r.Policy().Lost.Mean)
}

func TestSettingsNameADeadline(t *testing.T) {
	load := small()
	settings := func() string {
		e := retrylab.Outage{Load: load, For: time.Second, After: time.Second}
		return e.Run(t, retrylab.Default).String()
	}
	assert.NotContains(t, settings(), "deadline")
	load.Deadline = 800 * time.Millisecond
	assert.Contains(t, settings(), "deadline 800ms")
}

func TestFailuresOfAReportAreThoseOfItsResults(t *testing.T) {
	a, b, c := retrylab.Failure{Seed: 1}, retrylab.Failure{Seed: 2}, retrylab.Failure{Seed: 3}
	r := retrylab.Report{Results: []retrylab.Result{{Failures: []retrylab.Failure{a, b}}, {}, {Failures: []retrylab.Failure{c}}}}
	assert.Equal(t, []retrylab.Failure{a, b, c}, r.Failures())
}

func TestComparisonNamesBadExperiments(t *testing.T) {
	err := retrylab.Comparison{Experiments: []retrylab.Experiment{
		retrylab.Outage{For: -1}, retrylab.Outage{}, retrylab.Outage{Room: math.Inf(1)},
	}}.Validate()
	assert.ErrorContains(t, err, "For is -1ns")
	assert.ErrorContains(t, err, "Room is +Inf, and must be finite")
}

// limited writes a number of times, and fails then.
type limited struct {
	left int
	err  error
}

func (w *limited) Write(p []byte) (int, error) {
	if w.left == 0 {
		return 0, w.err
	}
	w.left--
	return len(p), nil
}

func TestTableReturnsTheErrorOfItsWriter(t *testing.T) {
	full := errors.New("full")
	result := retrylab.Result{
		Experiment: "e", Reading: "read", Settings: []retrylab.Setting{{Name: "a", Value: "1"}},
		Rows:     []retrylab.Row{{Name: "mine"}, {Name: "other"}},
		Columns:  []retrylab.Column{{Name: "lost", Unit: "%", Of: func(r retrylab.Row) retrylab.Number { return r.Lost }}},
		Failures: []retrylab.Failure{{Experiment: "e", Policy: "mine", Seed: 1, Reason: "oh"}},
	}
	report := retrylab.Report{Results: []retrylab.Result{result, result}}
	writes := 0
	for ; report.WriteTable(&limited{writes, full}) != nil; writes++ {
		assert.ErrorIs(t, report.WriteTable(&limited{writes, full}), full)
	}
	assert.Greater(t, writes, 10, "each of them has failed once")
}

// onceFailing fails once, after a number of writes.
type onceFailing struct{ limited }

func (w *onceFailing) Write(p []byte) (int, error) {
	w.left--
	if w.left == -1 {
		return 0, w.err
	}
	return len(p), nil
}

func TestTableReturnsTheErrorOfEachWrite(t *testing.T) {
	full := errors.New("full")
	failure := retrylab.Failure{Experiment: "e", Policy: "mine", Seed: 1, Reason: "oh"}
	result := retrylab.Result{Experiment: "e", Rows: []retrylab.Row{{Name: "mine"}}, Failures: []retrylab.Failure{failure, failure}}
	report := retrylab.Report{Results: []retrylab.Result{result, result}}
	assert.Equal(t, 4, strings.Count(report.String(), "FAILED: "))
	all := &onceFailing{limited{-1, full}}
	require.NoError(t, report.WriteTable(all))
	for i := range -1 - all.left {
		assert.ErrorIs(t, report.WriteTable(&onceFailing{limited{i, full}}), full, "write %d", i)
	}
}

func TestTextOfATableIsAtMostAHundredColumnsWide(t *testing.T) {
	reading := strings.Repeat("seven letters ", 40)
	text := retrylab.Result{Experiment: "e", Reading: reading}.String()
	assert.Equal(t, strings.Fields("E "+reading), strings.Fields(text), "no word is lost")
	lines := strings.Split(text, "\n")
	assert.Greater(t, len(lines), 5)
	for _, line := range lines {
		assert.LessOrEqual(t, len(line), 100)
		assert.Equal(t, strings.TrimSpace(line), line)
	}
	assert.Greater(t, len(lines[2]), 85, "a line has as many words as it can have")
}

func TestTextOfAFigureHasItsUnit(t *testing.T) {
	text := func(unit string, mean, deviation float64) string {
		c := retrylab.Column{Unit: unit, Of: func(retrylab.Row) retrylab.Number {
			return retrylab.Number{Mean: mean, Error: deviation}
		}}
		return c.Text(retrylab.Row{})
	}
	assert.Equal(t, "50 ms", text("s", 0.05, 1))
	assert.Equal(t, "2.5 s", text("s", 2.5, 1))
	assert.Equal(t, "0.05", text("", 0.05, 0))
	assert.Equal(t, "5.0 ± 2.0 %", text("%", 0.05, 0.01))
	assert.Equal(t, "150 ± 4", text("", 150, 2))
	assert.Equal(t, "–", text("s", math.NaN(), 0))
}

// history counts the deposits until the first retry.
type history struct {
	deposits atomic.Int64
	first    sync.Once
	before   int64
}

func (h *history) Deposit(*http.Request)         { h.deposits.Add(1) }
func (h *history) Refund(*http.Request, float64) {}
func (h *history) Withdraw(retryhttp.Retry) (cost float64, ok bool) {
	h.first.Do(func() { h.before = h.deposits.Load() })
	return 0, false
}

func TestBudgetHasTheDepositsOfTheUptime(t *testing.T) {
	load := retrylab.Load{Rate: 200, Uptime: time.Minute, Seeds: 1}
	for _, e := range []retrylab.Experiment{
		retrylab.Spike{Load: load, Times: 10, After: time.Second}, retrylab.Outage{Load: load, For: time.Second, After: time.Second},
	} {
		var h history
		retrylab.Comparison{
			Experiments: []retrylab.Experiment{e}, Alone: true,
			Policies: []retrylab.Policy{{Name: "mine", New: func() retryhttp.Policy {
				return retryhttp.Policy{Budget: &h, Gate: &retryhttp.Gate{Hold: -1}}
			}}},
		}.Run(t)
		assert.InEpsilon(t, 60*200, h.before, 0.05, e.Name())
	}
}
