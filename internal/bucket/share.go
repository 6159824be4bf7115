package bucket

import "time"

// What the absence of each of these costs is in docs/simulation.md, "What each mechanism pays for".
const (
	// Results are weighed by tenths of a second. Each weighs as much as its results, and at most
	// mostOfATenth of shareOf, because streams that die with one connection are one event.
	tenth        = 100 * time.Millisecond
	mostOfATenth = 8
	shareOf      = 64
	// A server is poor when less than half of its results are successes. It is well again only when
	// three in five are. Otherwise a server at the edge would change with every tenth.
	poorAbove = 0.5
	wellBelow = 0.4
	// A server that has become well is on trial. Retries alone can keep a server poor that pays for
	// what it rejects: it is well while they are few, and fails as soon as there are more. Such a server
	// is given relief. A server that is hardly better at the end of the relief is partly broken, however
	// few the retries are, and is not on trial again. A short outage is no reason for a trial: until
	// detours reach a replica that is well, all attempts may fail.
	//
	// A fleet of small processes needs such long times. A process with five results a second learns of a
	// change in 15 s, and relief helps if most processes give it at once.
	trial       = time.Minute
	longOutage  = 300 * time.Millisecond
	relief      = 20 * time.Second
	betterBelow = 0.3
)

// share is which part of a key's results were failures, as an exponentially weighted mean. The zero
// share belongs to a server that is well.
type share struct {
	failing   float64
	poor      bool
	poorUntil time.Time // of a server that has failed its trial; otherwise zero
	trialEnds time.Time
	ups       float64 // the results of the present tenth
	downs     float64
	tenthFrom time.Time

	outage     time.Time // the newest failure of an outage
	outageFrom time.Time // the first
}

// weigh adds the results of the tenth that is over to the mean, and decides by it whether the server is poor.
func (s *share) weigh(now time.Time) {
	results := s.ups + s.downs
	if results == 0 || now.Sub(s.tenthFrom) < tenth {
		return
	}
	s.failing += (s.downs/results - s.failing) * min(results, mostOfATenth) / shareOf
	s.ups, s.downs, s.tenthFrom = 0, 0, now
	switch {
	case s.poor && s.failing <= wellBelow && !now.Before(s.poorUntil):
		s.poor = false
		if relieved := !s.poorUntil.IsZero(); !relieved || s.failing <= betterBelow {
			s.trialEnds = now.Add(trial)
		}
	case !s.poor:
		onTrial := now.Before(s.trialEnds)
		s.poor = s.failing > poorAbove || onTrial && s.failing > wellBelow
		s.poorUntil = time.Time{}
		if onTrial && s.poor {
			s.poorUntil, s.trialEnds = now.Add(relief), time.Time{}
		}
	}
}

// sufferOutage records that all attempts fail. An outage is no overload, so it does not make a server
// poor that is well between outages. But an overload can look like an outage while it is worst, so a
// server is on trial after an outage that has lasted for a while.
func (s *share) sufferOutage(now time.Time) {
	if now.Sub(s.outage) >= longOutage {
		s.outageFrom = now
	}
	s.outage = now
	if !s.poor && now.Sub(s.outageFrom) >= longOutage {
		s.trialEnds = now.Add(trial)
	}
}
