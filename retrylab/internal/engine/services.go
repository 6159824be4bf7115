package engine

import (
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Workload is the work of a service that can do a limited amount of it per second. The service can
// do at once what it could have done in the last tenth of a second. It falls behind by as much at
// most: it does not even look at attempts beyond that, and they are no work.
type Workload struct {
	Cost float64 // of a rejection, as a part of the work of a success

	mu   sync.Mutex
	room float64
	at   time.Duration // of the last attempt
}

// Rested returns the work of a service that has done nothing for a while.
func Rested(capacity float64) *Workload { return &Workload{room: max(capacity/10, 1)} }

// Take reports whether the service serves an attempt at a time. It can serve capacity attempts per
// second. With a capacity below 10, one attempt is always taken if the service has rested for long
// enough.
func (w *Workload) Take(at time.Duration, capacity float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := max(capacity/10, 1)
	w.room = min(w.room+capacity*(at-w.at).Seconds(), most)
	w.at = at
	if w.room < 1 {
		w.room = max(w.room-w.Cost, -most)
		return false
	}
	w.room--
	return true
}

// Window allows a number of attempts in each second since the start.
type Window struct {
	Allowed int

	mu     sync.Mutex
	second int // since the start
	taken  int // attempts in that second
}

// Take reports whether one more attempt is allowed, at a time since the start.
func (w *Window) Take(at time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if second := int(at / time.Second); second != w.second {
		w.second, w.taken = second, 0
	}
	if w.taken >= w.Allowed {
		return false
	}
	w.taken++
	return true
}

// Congested is a service that needs more time for a request the more it is working on. It does not
// notice when a client has gone.
type Congested struct {
	Dice    *Dice
	Network time.Duration // the mean of each way
	Work    time.Duration // for a request
	Slope   time.Duration // more work for each request that is being worked on

	working atomic.Int64
	work    sync.WaitGroup
}

// Wait returns when the service has done all of its work.
func (s *Congested) Wait() { s.work.Wait() }

// RoundTrip works on req even if its client goes away.
func (s *Congested) RoundTrip(req *http.Request) (*http.Response, error) {
	there, back := s.Dice.Exponential(s.Network), s.Dice.Exponential(s.Network)
	answered := make(chan struct{})
	s.work.Go(func() {
		time.Sleep(there)
		time.Sleep(s.Work + time.Duration(s.working.Add(1))*s.Slope)
		s.working.Add(-1)
		time.Sleep(back)
		close(answered)
	})
	select {
	case <-answered:
		return Answer(req, http.StatusOK)
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// The distribution of a leaf's latencies. A part of the answers takes longer than a given time.
// Between the points below, the logarithm of this part is linear in the logarithm of the time. The
// other 98 % of the answers take 1 to 10 ms.
//
// "The Tail at Scale", Dean and Barroso, 2013, has no distribution, but has three figures of reads
// of 100 leaves: p99.9 is 1,800 ms; with hedges after 10 ms it is 74 ms, for 2 % more load. The
// distribution was fitted to these figures. So it checks how requests are hedged, and does not
// confirm the paper.
const (
	leafSoonest = time.Millisecond

	leafKnee     = 10 * time.Millisecond
	leafSlow     = 0.02 // of the answers take longer
	leafExponent = 0.9553

	leafFarKnee     = 69 * time.Millisecond
	leafVerySlow    = 0.00316
	leafFarExponent = 1.7648
)

// LeafLatency returns the latency that a part of a leaf's answers exceeds. The part is above
// 0 and at most 1.
func LeafLatency(part float64) time.Duration {
	beyond := func(knee time.Duration, at, exponent float64) time.Duration {
		return time.Duration(float64(knee) * math.Pow(at/part, 1/exponent))
	}
	switch {
	case part > leafSlow:
		return leafSoonest + time.Duration(float64(leafKnee-leafSoonest)*(1-part)/(1-leafSlow))
	case part > leafVerySlow:
		return beyond(leafKnee, leafSlow, leafExponent)
	}
	return beyond(leafFarKnee, leafVerySlow, leafFarExponent)
}
