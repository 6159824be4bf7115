package retryhttp

import (
	"cmp"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/keyed"
	"github.com/retryhttp/retryhttp/internal/latency"
)

// Hedge sends a second attempt, a hedge, beside an attempt that is slow. The first Final
// response wins, and the other attempt is canceled. The zero value is ready to use. Share a
// Hedge among Transports that call the same hosts. It must not be changed or copied after
// first use. See "The Tail at Scale", Dean and Barroso, 2013.
//
// Share bounds how many requests are hedged, and sets the latency quantile at which they are.
// The [Budget] is asked as well. Nothing is hedged while the [Gate] has the host down or closed. Only
// safe methods (RFC 9110, section 9.2.1) are hedged, if two attempts can read the body at once. Response
// bodies are wrapped. A hedge counts for MaxAttempts. Set AttemptTimeout in case both hang. There are at
// most 4,096 keys.
type Hedge struct {
	// Share is the share of requests that may be hedged, at most 1, and so the latency quantile after
	// which they are. 0 means 0.05. Negative or NaN means that nothing is hedged. A larger share helps
	// more requests, and costs the servers as much more work.
	Share float64

	// After is the time after which a request is hedged instead of at the quantile. Share still limits
	// how many requests are. 0 or less means the quantile. Set it if you know the latency to defend.
	After time.Duration

	// Min is the shortest time after which a request is hedged. 0 means 1 ms, and a negative value
	// means no minimum.
	Min time.Duration

	// Window is how far back latencies count. It must hold 5/Share answers, or nothing is hedged without
	// After. 0 or less means 30 s. Raise it for hosts that you call rarely.
	Window time.Duration

	// Key returns the key of a request. Each key has its own latencies, and its own share of hedges. Nil
	// means URL.Host. Set it if the requests to one host differ much in latency, for example by route.
	Key func(*http.Request) string

	tails   keyed.Map[tail]
	crowded atomic.Bool // keys may have been forgotten
}

const (
	defaultShare       = 0.05
	defaultLeastDelay  = time.Millisecond
	defaultHedgeWindow = 30 * time.Second
	// answersBeyond is how many answers must lie beyond a quantile for it to be meaningful.
	answersBeyond = 5
	// The allowance is counted in billionths of a hedge.
	oneHedge      = 1_000_000_000
	mostHedges    = 10 * oneHedge
	refreshEvery  = 64 // number of observations after which the delay is recomputed
	refreshWithin = 32 // the delay is also recomputed after Window/refreshWithin
)

// Delay returns how long after its start an attempt of req would be hedged now, for a gauge. It returns
// false if it would not be, and for a nil req. It looks at the method and the key of req, and neither at
// its body nor at a Gate or a Budget.
func (h *Hedge) Delay(req *http.Request) (time.Duration, bool) {
	if req == nil || h.share() == 0 || !safeMethod(req.Method) {
		return 0, false
	}
	t := h.tails.Find(keyOf(req, h.Key))
	if t == nil {
		t = newTail(h) // it has no answers, and is not kept
	}
	d := t.compute()
	return d, d > 0
}

// share returns the share of requests that may be hedged, or 0 if there are no hedges.
func (h *Hedge) share() float64 {
	share := cmp.Or(h.Share, defaultShare)
	if !(share > 0) {
		return 0
	}
	return min(share, 1)
}

// tail returns the tail of req's key, or nil if req is not hedged.
func (h *Hedge) tail(req *http.Request) *tail {
	if h.share() == 0 {
		return nil
	}
	return h.tails.FindOrAdd(keyOf(req, h.Key), func() *tail { return newTail(h) }, (*tail).idle)
}

// tail holds the recent latencies of one key, and the hedges that its answers have earned.
type tail struct {
	hedge  *Hedge
	epoch  time.Time // the moment from which it measures time
	share  float64
	earns  int64 // what each answer adds to the allowance
	window time.Duration
	recent *latency.Recent

	allowance atomic.Int64
	delay     atomic.Int64 // time until a hedge, as of the newest refresh. 0: no hedge
	observed  atomic.Int64 // observations since the newest refresh
	stale     atomic.Int64 // when the delay is due for a refresh
}

func newTail(h *Hedge) *tail {
	t := &tail{hedge: h, epoch: time.Now(), share: h.share(), window: h.Window}
	if t.window <= 0 {
		t.window = defaultHedgeWindow
	}
	t.earns = int64(math.Round(t.share * oneHedge))
	if !h.crowded.Load() {
		// Otherwise each of many keys would get a hedge whenever the key is added again.
		t.allowance.Store(oneHedge)
	}
	t.recent = latency.New(t.window)
	t.delay.Store(int64(t.compute()))
	return t
}

// compute returns the delay after which an attempt is hedged now, or 0 for no hedge.
func (t *tail) compute() time.Duration {
	delay, now := t.hedge.After, time.Since(t.epoch)
	if delay <= 0 {
		if float64(t.recent.Answers(now)) < answersBeyond/t.share {
			return 0
		}
		delay = t.recent.Quantile(now, 1-t.share)
	}
	return max(delay, cmp.Or(t.hedge.Min, defaultLeastDelay), 1)
}

// observe records the latency of an answer, which earns a part of a hedge, or of an attempt that was given up
// for being slow. It refreshes the delay now and then. A refresh is cheap until there are enough answers.
func (t *tail) observe(latency time.Duration, answer bool) {
	now := time.Since(t.epoch)
	if answer {
		t.allow(t.earns)
	}
	t.recent.Record(now, latency, answer)
	if t.observed.Add(1) < refreshEvery && t.delay.Load() > 0 && now < time.Duration(t.stale.Load()) {
		return
	}
	t.observed.Store(0)
	t.stale.Store(int64(now + t.window/refreshWithin))
	t.delay.Store(int64(t.compute()))
}

func (t *tail) withdraw() bool { return t.allow(-oneHedge) }
func (t *tail) refund()        { t.allow(oneHedge) }

// allow adds to the allowance, up to mostHedges. It adds nothing, and returns false, if too little is left.
func (t *tail) allow(more int64) bool {
	for {
		had := t.allowance.Load()
		has := min(had+more, mostHedges)
		if has < 0 {
			return false
		}
		if has == had || t.allowance.CompareAndSwap(had, has) {
			return true
		}
	}
}

// idle reports whether the key had no answers within its Window.
func (t *tail) idle(now time.Time) bool {
	t.hedge.crowded.Store(true)
	return t.recent.Answers(now.Sub(t.epoch)) == 0
}
