package redisbudget

import "time"

// This file has the arithmetic with which a retryhttp.TokenBucket distinguishes a server that is
// partly broken from an overload. The code is a copy, because the other module's internal packages
// are its own.

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
	// what it rejects: it is well while they are few, and fails as soon as there are more. Such a
	// server is given relief. A server that is hardly better at the end of the relief is partly broken,
	// however few the retries are, and is not on trial again. A short outage is no reason for a trial.
	// A fleet of small processes needs such long times: each sees few results.
	trial       = time.Minute
	longOutage  = 300 * time.Millisecond
	relief      = 20 * time.Second
	betterBelow = 0.3
)

// health is which part of this process's results were failures, as an exponentially weighted mean.
// The zero health belongs to a server that is well.
type health struct {
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
func (h *health) weigh(now time.Time) {
	results := h.ups + h.downs
	if results == 0 || now.Sub(h.tenthFrom) < tenth {
		return
	}
	h.failing += (h.downs/results - h.failing) * min(results, mostOfATenth) / shareOf
	h.ups, h.downs, h.tenthFrom = 0, 0, now
	switch {
	case h.poor && h.failing <= wellBelow && !now.Before(h.poorUntil):
		h.poor = false
		if relieved := !h.poorUntil.IsZero(); !relieved || h.failing <= betterBelow {
			h.trialEnds = now.Add(trial)
		}
	case !h.poor:
		onTrial := now.Before(h.trialEnds)
		h.poor = h.failing > poorAbove || onTrial && h.failing > wellBelow
		h.poorUntil = time.Time{}
		if onTrial && h.poor {
			h.poorUntil, h.trialEnds = now.Add(relief), time.Time{}
		}
	}
}

// sufferOutage records that all attempts fail. An outage is no overload, so it does not make a server
// poor that is well between outages. But an overload can look like an outage while it is worst, so a
// server is on trial after an outage that has lasted for a while.
func (h *health) sufferOutage(now time.Time) {
	if now.Sub(h.outage) >= longOutage {
		h.outageFrom = now
	}
	h.outage = now
	if !h.poor && now.Sub(h.outageFrom) >= longOutage {
		h.trialEnds = now.Add(trial)
	}
}
