package retrylab_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab"
)

func small() retrylab.Load { return retrylab.Load{Rate: 50, Uptime: 2 * time.Second, Seeds: 2} }

// The jitter of the library has no seed, but arrivals and latencies have.
func TestRunsWithASeedHaveTheSameArrivalsAndLatencies(t *testing.T) {
	o := retrylab.Outage{Load: small(), For: time.Second, After: 3 * time.Second}
	first, second := o.Run(t, retrylab.Default), o.Run(t, retrylab.Default)
	assert.Equal(t, first.Policy().Offered, second.Policy().Offered)
	assert.Equal(t, first.Policy().Offered, first.Row(retrylab.NoRetries).Offered, "for every policy")
	assert.Equal(t, fmt.Sprint(first.Row(retrylab.NoRetries)), fmt.Sprint(second.Row(retrylab.NoRetries)))
	assert.NotEqual(t, first.Row(retrylab.NoRetries).Hit.Least, first.Row(retrylab.NoRetries).Hit.Most, "seeds differ")
}

func TestSeriesBeginWithTheLeadAndEndWithTheRun(t *testing.T) {
	o := retrylab.Outage{Load: small(), For: time.Second, After: 3 * time.Second}
	o.Rate = 1000
	r := o.Run(t, retrylab.Default)
	assert.Equal(t, -time.Second, r.SeriesFrom)
	assert.Equal(t, time.Second, r.TroubleFor)
	none := r.Row(retrylab.NoRetries)
	for _, series := range [][]float64{none.Offered, none.Attempts, none.Successes} {
		require.Len(t, series, 50)
	}
	assert.Equal(t, none.Offered, none.Attempts)
	assert.InDelta(t, 1000, none.Successes[5], 300, "before")
	for _, v := range none.Successes[11:20] {
		assert.Zero(t, v, "in the outage")
	}
	assert.InDelta(t, 1000, none.Successes[30], 300, "after")
}

func TestTableHasALineForEachPolicy(t *testing.T) {
	var progress strings.Builder
	report := retrylab.Comparison{
		Experiments: []retrylab.Experiment{
			retrylab.Outage{Load: small(), For: time.Second, After: time.Second},
			retrylab.DeadBackend{Load: small(), For: time.Second},
		},
		Policies: []retrylab.Policy{{Name: "mine", New: retrylab.Default}, fixedTenth},
		Progress: &progress,
	}.Run(t)
	assert.Equal(t, "1 of 2: outage\n2 of 2: dead-backend\n", progress.String())
	tables := strings.Split(report.String(), "\n\n")
	require.Len(t, tables, 6, "two headings, each with a table, and with what to change")
	assert.True(t, strings.HasPrefix(tables[0], "OUTAGE\nfor 1s, part 1, silent no, room 1.3, "), tables[0])
	lines := strings.Split(tables[1], "\n")
	require.Len(t, lines, 5)
	assert.Regexp(t, `^ +hit +lost +lost later +attempts +peak +success p50 +success p99 +failure p50 +failure p99$`, lines[0])
	for i, name := range []string{"mine", "a fixed tenth", "retries without a budget", "no retries"} {
		assert.True(t, strings.HasPrefix(lines[i+1], name+"  "), lines[i+1])
	}
	assert.Regexp(t, `^no retries +[0-9.]+ ± [0-9.]+ +100\.0 % +[0-9.]+( ± [0-9.]+)? % +1\.00 +[0-9.]+( ± [0-9.]+)? +– +– +0 ms +0 ms$`, lines[4])
	assert.True(t, strings.HasPrefix(tables[2], "What to change: nothing that was tried makes lost better by 2 points"), tables[2])
	assert.True(t, strings.HasPrefix(tables[3], "DEAD-BACKEND\n"), tables[3])
	assert.Contains(t, tables[3], "\nmine: the defaults\na fixed tenth: Budget TokenBucket{Ratio 0.1}, Gate Gate{Hold -1ns}\n")
}

func TestEachExperimentHasAReadingAndColumnsWithAMeaning(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range retrylab.All(retrylab.Load{Rate: 5, Uptime: time.Second, Seeds: 1}) {
		r := e.Run(t, retrylab.Default)
		assert.Equal(t, e.Name(), r.Experiment)
		assert.NotEmpty(t, r.Reading)
		assert.False(t, seen[r.Reading])
		seen[r.Reading] = true
		for _, c := range r.Columns {
			assert.NotEmpty(t, c.Meaning, c.Name)
		}
	}
}

// In a trouble that lasts to the end, retries of its requests are counted after the last request, too.
func TestLoadHasRetriesThatComeLater(t *testing.T) {
	d := retrylab.DeadBackend{Load: small(), Backends: 1, For: time.Second}
	r := d.Run(t, func() retryhttp.Policy {
		return retryhttp.Policy{
			MaxAttempts: 2, Backoff: retryhttp.Constant(5 * time.Second),
			Budget: retryhttp.Unlimited{}, Gate: &retryhttp.Gate{Hold: -1},
		}
	})
	assert.Equal(t, 2.0, r.Policy().Load.Mean)
}

// lastWord ends the goroutine that writes to it.
type lastWord struct{ said string }

func (w *lastWord) Write(p []byte) (int, error) {
	w.said = string(p)
	runtime.Goexit()
	return len(p), nil
}

func TestComparisonOfNothingIsOfAllExperiments(t *testing.T) {
	var progress lastWord
	var run sync.WaitGroup
	run.Go(func() { retrylab.Comparison{Progress: &progress}.Run(t) })
	run.Wait()
	assert.Equal(t, "1 of 16: outage\n", progress.said)
}

func TestComparisonOfPoliciesAloneHasNoOthers(t *testing.T) {
	experiments := []retrylab.Experiment{
		retrylab.LatencyStep{Load: small(), For: time.Second, After: time.Second},
		retrylab.Outage{Load: small(), For: time.Second, After: time.Second},
	}
	for _, r := range (retrylab.Comparison{Experiments: experiments, Alone: true}).Run(t).Results {
		assert.Len(t, r.Rows, 1, r.Experiment)
	}
}

func TestFleetSharesABudgetInARun(t *testing.T) {
	run := func(policy retrylab.Policy) retrylab.Row {
		report := retrylab.Comparison{
			Experiments: []retrylab.Experiment{retrylab.DeadBackend{
				Load: retrylab.Load{Rate: 20, Processes: 20, Uptime: time.Second, Seeds: 2}, Backends: 1, For: 10 * time.Second,
			}},
			Policies: []retrylab.Policy{policy}, Alone: true,
		}.Run(t)
		require.Len(t, report.Results[0].Rows, 1, "alone")
		return report.Results[0].Rows[0]
	}
	with := func(b retryhttp.Budget) retryhttp.Policy {
		return retryhttp.Policy{Budget: b, Gate: &retryhttp.Gate{Hold: -1}}
	}
	each := run(retrylab.Policy{Name: "each", New: func() retryhttp.Policy {
		return with(&retryhttp.TokenBucket{Ratio: -1})
	}})
	shared := run(retrylab.Policy{Name: "shared", Fleet: func(*testing.T) func() retryhttp.Policy {
		budget := &retryhttp.TokenBucket{Ratio: -1}
		return func() retryhttp.Policy { return with(budget) }
	}})
	retries := func(r retrylab.Row) float64 { return (r.Load.Mean - 1) * r.Hit.Mean }
	assert.InDelta(t, 5, retries(shared), 0.01, "a Burst for all, in each run")
	assert.InDelta(t, 100, retries(each), 10, "a Burst for each")
}
