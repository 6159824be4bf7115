package detour

import "time"

// memory is how many results a record remembers: it is an exponentially weighted mean.
const memory = 8

// record is the share of recent results that were failures.
type record struct{ failing float64 }

func (r *record) add(bad bool) {
	v := 0.0
	if bad {
		v = 1
	}
	r.failing += (v - r.failing) / memory
}

// latency is an exponentially weighted mean of the times to the response header of successes.
type latency struct{ mean time.Duration }

func (l *latency) add(took time.Duration) {
	if l.mean == 0 {
		l.mean = took
	}
	l.mean += (took - l.mean) / memory
}

// exceeded reports whether an answer after the time took is slow. Without answers, none is slow.
func (l *latency) exceeded(took time.Duration) bool {
	return l.mean > 0 && took > 4*l.mean+10*time.Millisecond
}
