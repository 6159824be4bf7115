package retrylab

import (
	"cmp"
	"slices"
	"time"

	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// row makes a row of the trials with a policy. It leaves out trials that failed.
func (p plan) row(name string, trials []*trial) Row {
	of := func(value func(*trial) float64) Number { return Number(engine.NumberOf(trials, value)) }
	seconds := func(times func(*trial) []time.Duration, part float64) Number {
		return of(func(t *trial) float64 {
			took := times(t)
			if len(took) == 0 {
				return nan
			}
			return engine.Quantile(took, part).Seconds()
		})
	}
	row := Row{
		Name:       name,
		Succeeded:  of((*trial).succeeded),
		Hit:        of(func(t *trial) float64 { return t.hit }),
		Lost:       of(func(t *trial) float64 { return t.lost / cmp.Or(t.hit, nan) }),
		Later:      of(func(t *trial) float64 { return t.later }),
		LostLater:  of(func(t *trial) float64 { return t.lostLater / cmp.Or(t.later, nan) }),
		Load:       of((*trial).load),
		Hedges:     of(func(t *trial) float64 { return ratioOf(t.hedges, t.asked) }),
		Detours:    of(func(t *trial) float64 { return ratioOf(t.detours, t.asked) }),
		Peak:       of((*trial).peak),
		Goodput:    of((*trial).goodput),
		Success:    seconds((*trial).success, 0.5),
		SuccessP99: seconds((*trial).success, 0.99),
		Failure:    seconds((*trial).failure, 0.5),
		FailureP99: seconds((*trial).failure, 0.99),
		UsualP99:   seconds((*trial).usual, 0.99),
		Took:       of(func(t *trial) float64 { return t.ended.Seconds() }),
	}
	var offered, attempts, successes [][]float64
	for _, t := range trials {
		row.SuccessTimes = append(row.SuccessTimes, t.successTimes...)
		row.FailureTimes = append(row.FailureTimes, t.failureTimes...)
		row.UsualTimes = append(row.UsualTimes, t.usualTimes...)
		offered = append(offered, t.offered.UpTo(p.end))
		attempts = append(attempts, t.attempts.UpTo(p.end))
		successes = append(successes, t.successes.UpTo(p.end))
	}
	for _, times := range []Times{row.SuccessTimes, row.FailureTimes, row.UsualTimes} {
		slices.Sort(times)
	}
	if len(trials) > 0 {
		row.Offered, row.Attempts = engine.MeanBins(offered), engine.MeanBins(attempts)
		row.Successes = engine.MeanBins(successes)
	}
	return row
}

// sort puts the times in order.
func (t *trial) sort() {
	for _, times := range [][]time.Duration{t.successTimes, t.failureTimes, t.usualTimes} {
		slices.Sort(times)
	}
}

func (t *trial) success() []time.Duration { return t.successTimes }
func (t *trial) failure() []time.Duration { return t.failureTimes }
func (t *trial) usual() []time.Duration   { return t.usualTimes }
func (t *trial) succeeded() float64       { return ratioOf(t.good, t.made) }

// load is attempts per request. Those of a measured time that lasts to the end include what follows.
func (t *trial) load() float64 {
	if t.measured.to >= t.end {
		return ratioOf(t.attemptsFor, t.asked)
	}
	made := t.offered.Between(t.measured.from, t.measured.to)
	return ratioOf(t.attempts.Between(t.measured.from, t.measured.to), made)
}

func (t *trial) peak() float64 {
	return slices.Max(t.attempts.UpTo(t.peaks.to)[t.peaks.from/Bin:]) / t.Rate
}

func (t *trial) goodput() float64 { return ratioOf(t.settledGood, t.settledMade) }

func ratioOf(a, b float64) float64 {
	if b == 0 {
		return nan
	}
	return a / b
}
