package detour

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// worse is by how much more of the pool's results than of the detours' must be failures before first attempts
	// leave the pool.
	worse = 0.15
	// doubtful is how much of a detour's results must be failures before another is tried in its place, if
	// dials are saved.
	doubtful = 0.3
	// hopeless is how much of the pool's results must be failures before time pays for more than one dial a
	// minute, and how much of a detour's before it is given up even if no dial is saved.
	hopeless = 0.75

	// Dials are paid for. Without a bound, an overload would cost a connection for each request. A host in
	// trouble has dialsAtFirst. While the pool is hopeless, each of its failures pays for the time since the
	// failure before, and not for more than dialsPerFailure.
	dialsAtFirst    = 3
	dialsPerSecond  = 2
	dialsPerFailure = 0.5
	dialsPerMinute  = 1    // while the pool fails in part, and no detour has served well
	dialsPerSuccess = 0.08 // of a detour
	dialsInReserve  = 6    // must be saved before a detour that fails in part is given up
	mostDials       = 20   // saved
	mostDialing     = 3    // under way

	// While first attempts take detours, one in so many asks the pool, and one a second at the most. The
	// number doubles after each failure of the pool, and halves after each success.
	leastOneIn = 16
	mostOneIn  = 1024
)

// host is a host in trouble.
type host struct {
	transport *http.Transport
	origin    origin
	address   string
	barred    atomic.Bool // has no detours
	closing   atomic.Bool // detours close when they are idle, until a request wants one

	mu      sync.Mutex
	pool    record  // attempts on the pool
	detours record  // attempts on detours that had served well before
	latency latency // of detours
	conns   []*conn
	gone    bool // no longer in trouble: takes no more detours
	dialing int

	savings  float64 // dials that are paid for
	credited time.Time

	since    int // first attempts on detours since one asked the pool
	askOneIn int
	probed   time.Time
	failedAt time.Time // when the newest failure came, or the hedge at the beginning
}

func newHost(t *http.Transport, key origin, address string) *host {
	now := time.Now()
	return &host{
		transport: t, origin: key, address: address,
		savings: dialsAtFirst, credited: now, askOneIn: leastOneIn, failedAt: now,
	}
}

// detour sends req over a detour. It returns false if req takes the pool.
func (h *host) detour(d *Dispatcher, req *http.Request, made *Attempt) (resp *http.Response, err error, sent bool) {
	c := h.reserve(req, made)
	if c == nil {
		return nil, nil, false
	}
	used := false
	defer func() {
		if !used { // the context has ended, or a hook of httptrace has panicked
			h.giveBack(c)
		}
	}()
	if req.Context().Err() != nil {
		return nil, nil, false // an HTTP/1 ClientConn would send req
	}
	begin := time.Now() // a dial takes its time, and the replica may still be quick
	made.note(func(r *Route) { r.take(c) })
	c.traceGotten(req.Context())
	used = true
	resp, err, unsent := c.roundTrip(req)
	v := d.verdict(req, made, resp, err)
	made.note(func(r *Route) { r.end(v, true) })
	h.noteDetour(c, v, time.Since(begin))
	return resp, err, !unsent
}

// giveBack gives back a reserved place in which nothing was sent.
func (h *host) giveBack(c *conn) {
	c.Release()
	c.over()
}

// reserve returns a detour that has a place reserved for req, or nil if req takes the pool.
func (h *host) reserve(req *http.Request, made *Attempt) *conn {
	leaves := made.leaves()
	if h.barred.Load() || !leaves && !h.poolFails() {
		return nil
	}
	proxy, ok := h.proxyOf(req)
	if !ok {
		return nil
	}
	c, dial := h.choose(made, leaves, proxy)
	if dial {
		return h.dial(req, proxy)
	}
	return c
}

// poolFails reports whether a first attempt may take a detour: whether the pool fails more than the detours
// that have served well. If none has, a new one is expected to.
func (h *host) poolFails() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pool.failing > h.detours.failing+worse
}

// choose returns a detour with a place reserved, or whether to dial one. If it returns neither, the
// attempt takes the pool.
func (h *host) choose(made *Attempt, leaves bool, proxy string) (_ *conn, dial bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closing.Store(false)
	best := h.best(made, leaves, proxy)
	switch {
	case best == nil:
		return nil, (leaves || h.firstMayDial()) && h.pay()
	case !leaves && h.asksPool(time.Now()), !best.reserve():
		return nil, false
	}
	return best, false
}

// firstMayDial reports whether a first attempt may dial. If detours have served well, all of them are
// busy.
func (h *host) firstMayDial() bool {
	return h.hasServed(nil) || h.trying() < mostDialing && h.pool.failing >= 0.5
}

// trying returns how many dials are under way, and how many detours are on trial.
func (h *host) trying() int {
	trying := h.dialing
	for _, c := range h.conns {
		if c.onTrial() {
			trying++
		}
	}
	return trying
}

// best returns the detour that is expected to succeed soonest. An attempt that leaves takes none that its
// request has taken before. A detour that has not served yet is the last choice.
func (h *host) best(made *Attempt, leaves bool, proxy string) (best *conn) {
	for _, c := range h.conns {
		if c.proxy != proxy || !c.usable() || leaves && made.hasTaken(c) {
			continue
		}
		if best == nil || c.proven && !best.proven || c.proven == best.proven && c.load() < best.load() {
			best = c
		}
	}
	return best
}

// asksPool reports whether a first attempt asks the pool, to learn whether it is well again.
func (h *host) asksPool(now time.Time) bool {
	if h.since++; h.since < h.askOneIn || now.Sub(h.probed) < time.Second {
		return false
	}
	h.since, h.probed = 0, now
	return true
}

// hasServed reports whether a detour has served well, other than besides.
func (h *host) hasServed(besides *conn) bool {
	return slices.ContainsFunc(h.conns, func(c *conn) bool { return c != besides && c.proven })
}

// pay reports whether a dial is paid for, and counts it as under way.
func (h *host) pay() bool {
	if h.savings < 1 || h.dialing >= mostDialing {
		return false
	}
	h.savings--
	h.dialing++
	return true
}

// credit adds what a failure of the pool pays for.
func (h *host) credit(now time.Time) {
	passed := now.Sub(h.credited)
	h.credited = now
	earned := 0.0
	switch {
	case h.pool.failing > hopeless:
		earned = min(passed.Seconds()*dialsPerSecond, dialsPerFailure)
	case h.pool.failing > worse && !h.hasServed(nil):
		earned = passed.Minutes() * dialsPerMinute
	}
	h.savings = min(h.savings+earned, max(h.savings, dialsAtFirst))
}

// notePool records the result of an attempt on the pool.
func (h *host) notePool(v verdict, took time.Duration) {
	if v == nothing {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	bad := v == failed || h.latency.exceeded(took)
	h.pool.add(bad)
	if bad {
		h.failedAt = now
		h.credit(now)
		h.askOneIn = min(2*h.askOneIn, mostOneIn)
	} else {
		h.askOneIn = max(h.askOneIn/2, leastOneIn)
	}
}

// noteDetour records the result of an attempt on c.
func (h *host) noteDetour(c *conn, v verdict, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	bad := v == failed || v == well && h.latency.exceeded(took)
	if v == well {
		h.latency.add(took)
		c.took.add(took)
	}
	if v != nothing {
		c.results.add(bad)
		if c.proven {
			h.detours.add(bad)
		}
	}
	if v == well && !bad {
		c.proven = true
		h.savings = min(h.savings+dialsPerSuccess, mostDials)
	}
	if bad {
		h.failedAt = time.Now()
	}
	if bad && h.givesUp(c, v) || c.lost() {
		h.retire(c)
	}
}

// givesUp reports whether c is given up after a failure or a slow answer. A service may mean some of its
// failures, on every replica. If each of them ended a detour, soon no dial would be left to pay for another.
//
// Slow is what others that serve well are not. Without others, c is only slower than usual. Latencies have
// a long tail, and a dial in the place of c may well meet a broken replica.
func (h *host) givesUp(c *conn, v verdict) bool {
	failing := c.results.failing
	switch {
	case v == well:
		return h.hasServed(c)
	case !c.proven:
		return true
	}
	return failing > hopeless || failing > doubtful && h.savings >= dialsInReserve
}

// retire removes c. No attempt takes it any more.
func (h *host) retire(c *conn) {
	c.retire()
	h.conns = slices.DeleteFunc(h.conns, func(other *conn) bool { return other == c })
	if !h.hasServed(nil) {
		h.latency, h.detours = latency{}, record{}
	}
}

// tick is the time between two looks for idle detours.
func (h *host) tick() time.Duration {
	return max(min(h.idleTimeout(), troubled)/4, 50*time.Millisecond)
}

func (h *host) idleTimeout() time.Duration {
	return cmp.Or(max(h.transport.IdleConnTimeout, 0), 90*time.Second)
}

// isWell reports whether h is no longer in trouble. If so, it takes no more detours.
func (h *host) isWell() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = time.Since(h.failedAt) >= troubled
	return h.gone
}

// closeIdle gives up detours that are idle, if they are idle for too long or all is set. It gives up
// all others too if h is no longer in trouble.
//
// With all, a detour that is in use closes when it is idle, unless another request wants a detour before. Nor does
// a dial under way leave a detour that nobody waits for.
func (h *host) closeIdle(all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all {
		h.closing.Store(true) // before requests is read
	}
	for _, c := range slices.Clone(h.conns) {
		idle := h.closing.Load() && c.requests.Load() == 0 || c.tooIdle()
		if h.gone || idle || c.lost() {
			h.retire(c)
		}
	}
}
