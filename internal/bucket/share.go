package bucket

import "time"

const (
	// Results are weighed by tenths of a second. Each weighs as much as its results, and at most
	// mostOfATenth of shareOf, because streams that die with one connection are one event.
	tenth        = 100 * time.Millisecond
	mostOfATenth = 8
	shareOf      = 64
	// A server is poor when less than half of its results are successes. It is well again only when
	// a little more than half are. Otherwise a server at the edge would change with every tenth.
	poorAbove = 0.5
	wellBelow = 0.45
)

// share is which part of a key's results were failures, as an exponentially weighted mean. The zero
// share belongs to a server that is well.
type share struct {
	failing   float64
	poor      bool
	ups       float64 // the results of the present tenth
	downs     float64
	tenthFrom time.Time
}

// weigh adds the results of the tenth that is over to the mean.
func (s *share) weigh(now time.Time) {
	results := s.ups + s.downs
	if elapsed := now.Sub(s.tenthFrom); results == 0 || elapsed >= 0 && elapsed < tenth {
		return
	}
	s.failing += (s.downs/results - s.failing) * min(results, mostOfATenth) / shareOf
	s.ups, s.downs, s.tenthFrom = 0, 0, now
	switch {
	case s.failing > poorAbove:
		s.poor = true
	case s.failing <= wellBelow:
		s.poor = false
	}
}
