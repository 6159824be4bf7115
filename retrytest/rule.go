package retrytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// Rule says which requests meet a [Step].
type Rule struct {
	step    Step
	applies func(place int) func(arrival) bool // makes what decides, for one Transport or Handler
	err     error
}

// arrival is what a Rule knows of a request.
type arrival struct {
	number int           // 1 for the first
	at     time.Duration // since the first
	req    *http.Request
}

func (s Step) rule(err error, applies func(place int) func(arrival) bool) Rule {
	if s.ending != whole && s.status != 0 && int64(len(s.body)) <= s.after {
		s.mistake("%s: the body has no more than %d bytes", s.String(), len(s.body))
	}
	return Rule{s, applies, errors.Join(s.mistakes, err)}
}

// Always is for every request.
func (s Step) Always() Rule {
	return s.rule(nil, func(int) func(arrival) bool { return func(arrival) bool { return true } })
}

// Nth is for the requests with these numbers, in the order in which they arrive. The first is 1.
func (s Step) Nth(numbers ...int) Rule {
	var err error
	if len(numbers) == 0 || slices.Min(numbers) < 1 {
		err = fmt.Errorf("Nth: the numbers %v are not 1 or more", numbers)
	}
	numbers = slices.Clone(numbers)
	return s.rule(err, func(int) func(arrival) bool {
		return func(a arrival) bool { return slices.Contains(numbers, a.number) }
	})
}

// Share is for a part of the requests, more than 0 and at most 1, at random. With the same seed, and in the
// same place among the rules, it is for the same numbers each time, whatever other rules do.
func (s Step) Share(part float64, seed uint64) Rule {
	var err error
	if !(part > 0 && part <= 1) {
		err = fmt.Errorf("Share: the part %v is not above 0 and at most 1", part)
	}
	return s.rule(err, func(place int) func(arrival) bool {
		dice := rand.New(rand.NewPCG(seed, uint64(place)))
		return func(arrival) bool { return dice.Float64() < part }
	})
}

// During is for the requests that arrive between two times, which count from the first request. A request
// that arrives exactly at from is included, and exactly at to is not.
func (s Step) During(from, to time.Duration) Rule {
	var err error
	if from < 0 || to <= from {
		err = fmt.Errorf("During: there is no time from %v to %v", from, to)
	}
	return s.rule(err, func(int) func(arrival) bool {
		return func(a arrival) bool { return a.at >= from && a.at < to }
	})
}

// Of narrows the Rule to the requests that match. Nth then counts only these, and Share draws only for these. During
// counts its time from the first request of all. match must not read the body. It may look at the records of
// the requests before this one.
func (r Rule) Of(match func(*http.Request) bool) Rule {
	if match == nil {
		r.err = errors.Join(r.err, errors.New("Of: there is no function"))
		return r
	}
	if r.applies == nil {
		return r // it is empty, and named later
	}
	all := r.applies
	r.applies = func(place int) func(arrival) bool {
		applies, matched := all(place), 0
		return func(a arrival) bool {
			if !match(a.req) {
				return false
			}
			matched++
			a.number = matched
			return applies(a)
		}
	}
	return r
}

// script is the Rules of one Transport or Handler, and the records.
type script struct {
	rules   []Rule
	applies []func(arrival) bool

	arriving sync.Mutex // one request at a time is counted, and gets its Step
	began    time.Time

	mu      sync.Mutex // not held while a caller's function runs, which may ask for the records
	records []*record  // grows with arriving held as well
}

// init takes the rules, for a Handler if wire is true, and with a real answer that may have a body if real is
// true. A rule that makes no sense ends the test, or panics without one.
func (s *script) init(tb testing.TB, wire, real bool, rules []Rule) {
	var err error
	for i, r := range rules {
		if r.applies == nil {
			r.err = errors.New("it is empty")
		}
		if f := r.step.fail; wire && f != nil && !f.wire {
			r.err = errors.Join(r.err, fmt.Errorf("no handler can do %q, but a Transport can", f.name))
		}
		if r.err == nil && !real && r.step.status == 0 && r.step.ending != whole {
			r.err = fmt.Errorf("%s: the body is empty, because a nil gives the real answer", r.step.String())
		}
		if r.err != nil {
			err = errors.Join(err, fmt.Errorf("retrytest: rule %d: %w", i+1, r.err))
			continue
		}
		s.rules, s.applies = append(s.rules, r), append(s.applies, r.applies(i))
	}
	if tb == nil {
		if err != nil {
			panic(err)
		}
		return
	}
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("retrytest: what arrived\n%s", s.Table())
		}
	})
}

// choose returns the Step of a request that arrives.
func (s *script) choose(a arrival) Step {
	step, chosen := Real(), false
	for i, applies := range s.applies {
		if applies(a) && !chosen { // each Share draws for each request
			step, chosen = s.rules[i].step, true
		}
	}
	return step
}
