package retrylab

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Number is a figure over the runs of an experiment, one for each seed. It may gain fields.
type Number struct {
	Mean        float64 // NaN if no run has the figure
	Error       float64 // the standard error of the mean. 0: a single run
	Least, Most float64 // of the runs
}

// String returns the mean and the half width of its 95 % confidence interval.
func (n Number) String() string { return engine.Number(n).String() }

// Times are the times that some requests took, of all runs together, in order.
type Times []time.Duration

// Quantile returns how long a part of the requests took at most, or 0 if there were none. The part is
// from 0 to 1.
func (t Times) Quantile(part float64) time.Duration { return engine.Quantile(t, part) }

// Row is what a policy came to in an experiment. Figures that no run has are NaN.
type Row struct {
	Name string // of the policy

	Succeeded Number // the part of the requests that succeeded, of the whole run
	Hit       Number // requests made in the trouble whose first attempt failed, in a run
	Lost      Number // the part of them that failed in the end
	Later     Number // requests made after the trouble, in a run
	LostLater Number // the part of them that failed in the end

	Load    Number // attempts at the service per request, in the trouble
	Hedges  Number // hedges per request, from the trouble's beginning on
	Detours Number // attempts per request that took a connection beside the pool, from then on
	Goodput Number // successes per request made, in the settled part of the run

	// Peak is the fullest 100 ms after the trouble, as a multiple of the mean. In a trouble that lasts to
	// the end, and in LatencyStep, it is the fullest of the trouble.
	Peak Number

	// Seconds that requests of Hit took until they succeeded or failed, which are the median and the 99th
	// percentile of each run.
	Success, SuccessP99, Failure, FailureP99 Number

	UsualP99 Number // seconds that requests made before the trouble took until they succeeded
	Took     Number // seconds from the trouble's beginning until the last request ended

	SuccessTimes, FailureTimes, UsualTimes Times // the same times, of all runs together

	// Offered, Attempts and Successes are per second, in bins of Bin, as means over the runs. The first bin
	// begins at Result.SeriesFrom. Attempts are counted at the service, and successes when they came.
	Offered, Attempts, Successes []float64
}

// Bin is the width of the bins of a Row's series.
const Bin = 100 * time.Millisecond

// Setting is a field of an experiment with its value.
type Setting struct{ Name, Value string }

// capitals are where the name of a field has a new word.
var capitals = regexp.MustCompile(`([a-z])([A-Z])`)

// Words returns the setting as a reader has it: "retry after 1s", and not "RetryAfter 1s".
func (s Setting) Words() string {
	name := s.Name
	if strings.ToUpper(name) != name { // else it is HTTP2
		name = strings.ToLower(capitals.ReplaceAllString(name, "$1 $2"))
	}
	switch s.Value {
	case "true":
		return name + " yes"
	case "false":
		return name + " no"
	}
	return name + " " + s.Value
}

// Failure is a run that did not come to its end, because the policy panicked or a request never ended.
// Its figures are left out.
type Failure struct {
	Experiment, Policy string
	Seed               int
	Reason             string // with a stack, if something panicked
}

func (f Failure) isOf(p Policy) bool { return f.Policy == p.Name }

func (f Failure) String() string {
	return fmt.Sprintf("%s, policy %q, seed %d: %s", f.Experiment, f.Policy, f.Seed, f.Reason)
}

// Result is what all policies came to in an experiment.
type Result struct {
	Experiment string    // its name
	Reading    string    // what to read from it, in a sentence or two
	Advice     string    // what to change, if something was tried
	Settings   []Setting // with the defaults filled in
	Policies   []Setting // what each given policy has beside the defaults, by its name
	Rows       []Row     // the given policies in their order, then Unbounded and NoRetries
	Failures   []Failure
	Columns    []Column // the figures that matter in this experiment

	SeriesFrom time.Duration // the beginning of the series; it is 0 or negative
	TroubleFor time.Duration // the length of the trouble, which begins at 0
}

// Policy returns the row of the policy that Run was given.
func (r Result) Policy() Row { return r.Rows[0] }

// Row returns the row of the policy with a name. It panics if there is none.
func (r Result) Row(name string) Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Name == name })
	if i < 0 {
		names := make([]string, len(r.Rows))
		for i, row := range r.Rows {
			names[i] = row.Name
		}
		panic(fmt.Sprintf("retrylab: no policy is named %q; there are %s", name, strings.Join(names, ", ")))
	}
	return r.Rows[i]
}
