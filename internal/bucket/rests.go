package bucket

import "time"

// What the absence of each of these costs is in docs/simulation.md, "What each mechanism pays for".
const (
	// A rest is worth the burst while retries after rests have lately helped: for each rest after which they were in
	// vain, there must be vainRetries after which they have helped, of which mostCredit count at most. In an
	// overload, retries help less the more of them there are, so that the credit limits them.
	vainRetries = 4
	mostCredit  = 20
	// If nothing is missing except a retry, no success comes without one. So even without credit, a rest is
	// worth the burst when 1<<doubt times the time of a rest has passed since the last success, which is some ten
	// minutes, and then after twice that time. In an outage retries die out, and no bucket is lost for ever.
	doubt = 5
)

// rests are what the rests of a bucket have shown.
type rests struct {
	retried bool      // a retry was granted since the last rest
	helped  bool      // a success has come after it
	whole   bool      // the last rest was worth the burst
	credit  int       // from -vainRetries to mostCredit
	vain    int       // after 1<<vain times the time of a rest, the next one needs no credit
	since   time.Time // the last success, or the last rest that needed no credit
}

// rest returns how many tokens b has at least when it is drawn on now, and what its rests have shown by then. A
// bucket rests while it is not in use.
//
// A process that sends little, and has to retry each time, would use up the burst for ever: a success earns less than
// its retry costs. So a rest is worth a retry if a success has come since the last failure. A request may need several,
// if a service starts when it is asked, or if a proxy has kept connections that are dead. If each rest were worth the
// burst, an overload of a fifth would leave 3,000 processes with a request in 50 s each half of the goodput that
// they have without retries, and not seven tenths. Who sets the Ratio wants it to be the bound.
func (b *bucket) rest(now time.Time) (worth float64, r rests) {
	r = b.rests
	ups := b.folded - b.spent
	if ups > 0 {
		r.since, r.vain = now, doubt
		r.helped = r.retried
	}
	if b.inUse(now) {
		return 0, r
	}
	r.learn()
	if b.drawn.IsZero() || b.settings.HealthyRatio <= b.settings.Ratio { // b is new, or an heir
		return 0, r
	}
	switch burst := b.settings.Burst; {
	case r.credit > 0, ups > 0 && r.credit == 0:
		worth = burst
	case ups > 0:
		worth = min(1, burst)
	case now.Sub(r.since)>>r.vain >= b.settings.IdleAfter:
		worth, r.since = burst, now
		r.vain++
	}
	r.whole = worth == b.settings.Burst
	return worth, r
}

// endRest has the rest of a bucket end that is drawn on. A rest that is worth nothing leaves an overdraft alone.
func (b *bucket) endRest(now time.Time) {
	worth, r := b.rest(now)
	b.rests = r
	if worth > 0 {
		b.tokens = max(b.tokens, worth)
	}
}

// learn changes the credit at the end of a rest by what became of the retries before it.
func (r *rests) learn() {
	switch {
	case r.helped && r.whole:
		r.credit = min(max(r.credit, -1)+1, mostCredit)
	case r.helped:
		r.credit++
	case r.retried:
		r.credit = max(r.credit-vainRetries, -vainRetries)
	}
	r.retried, r.helped = false, false
}
