package retrylab

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Load says what the clients do in an experiment. Requests are GETs that arrive at random times.
type Load struct {
	// Rate is the number of requests per second, of all processes together. 0 means 100.
	Rate float64

	// Processes share the requests at random. Each has a Transport and a Policy of its own. 0 means 1.
	Processes int

	// Latency is the mean time that a healthy service takes to answer. Latencies are distributed
	// exponentially, if the experiment does not say otherwise. 0 means 10 ms.
	Latency time.Duration

	// Deadline ends each request through its context. 0 means that requests have no deadline.
	Deadline time.Duration

	// Uptime is how long the processes have been up and well when the trouble begins. Their budgets
	// have then earned what successes earn in this time. 0 means a minute.
	Uptime time.Duration

	// Seeds is the number of runs with each policy. 0 means 3.
	Seeds int
}

func (l Load) withDefaults() Load {
	setDefault(&l.Rate, 100)
	setDefault(&l.Processes, 1)
	setDefault(&l.Latency, 10*time.Millisecond)
	setDefault(&l.Uptime, time.Minute)
	setDefault(&l.Seeds, 3)
	return l
}

// check returns what is wrong with l, whose defaults are filled in.
func (l Load) check() error {
	return errors.Join(
		positive("Rate", l.Rate, 1e6),
		atLeast("Processes", l.Processes, 1),
		atLeast("Latency", l.Latency, 1),
		atLeast("Deadline", l.Deadline, 0),
		atLeast("Uptime", l.Uptime, 1),
		atLeast("Seeds", l.Seeds, 1),
	)
}

// settings returns the fields of l by name, except unused ones.
func (l Load) settings(unused []string) []Setting {
	s := []Setting{
		{"Rate", fmt.Sprintf("%g/s", l.Rate)},
		{"Processes", fmt.Sprint(l.Processes)},
		{"Latency", fmt.Sprint(l.Latency)},
		{"Uptime", fmt.Sprint(l.Uptime)},
		{"Seeds", fmt.Sprint(l.Seeds)},
	}
	if l.Deadline > 0 {
		s = append(s, Setting{"Deadline", fmt.Sprint(l.Deadline)})
	}
	return slices.DeleteFunc(s, func(s Setting) bool { return slices.Contains(unused, s.Name) })
}

func setDefault[V comparable](field *V, value V) {
	var zero V
	if *field == zero {
		*field = value
	}
}

// positive reports a value that is not above 0, or is above most. Below least, a run would take for ever.
func positive(field string, value, most float64) error {
	const least = 1e-5
	if value > 0 && value <= most { // which NaN is not
		return within(field, value, least, most)
	}
	return fmt.Errorf("%s is %v, and must be above 0 and at most %v", field, value, most)
}

// within reports a value that is not between two others.
func within(field string, value, least, most float64) error {
	if value >= least && value <= most {
		return nil
	}
	return fmt.Errorf("%s is %v, and must be from %v to %v", field, value, least, most)
}

// longest is the longest time that an experiment plays. A day takes half a minute.
const longest = 24 * time.Hour

// atLeast reports a value that is below least, or a time above longest.
func atLeast[V int | time.Duration](field string, value, least V) error {
	d, isTime := any(value).(time.Duration)
	switch {
	case isTime && d > longest:
		return fmt.Errorf("%s is %v, and must be at most %v", field, value, longest)
	case value >= least:
		return nil
	}
	if least == 1 {
		return fmt.Errorf("%s is %v, and must be above 0", field, value)
	}
	return fmt.Errorf("%s is %v, and must be at least %v", field, value, least)
}

func finite(field string, value float64) error {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return fmt.Errorf("%s is %v, and must be finite", field, value)
	}
	return nil
}
