package retryhttp

import (
	"cmp"
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/field"
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

	tails latency.Tails
}

const (
	defaultShare       = 0.05
	defaultLeastDelay  = time.Millisecond
	defaultHedgeWindow = 30 * time.Second
)

// Delay returns how long after its start an attempt of req would be hedged now, for a gauge. It returns
// false if it would not be, and for a nil req. It looks at the method and the key of req, and neither at
// its body nor at a Gate or a Budget.
func (h *Hedge) Delay(req *http.Request) (time.Duration, bool) {
	if req == nil || h.share() == 0 || !field.SafeMethod(req.Method) {
		return 0, false
	}
	d := h.tails.Delay(keyOf(req, h.Key), h.settings())
	return d, d > 0
}

// tail returns the tail of req's key, or nil if req is not hedged.
func (h *Hedge) tail(req *http.Request) *latency.Tail {
	if h.share() == 0 {
		return nil
	}
	return h.tails.Find(keyOf(req, h.Key), h.settings())
}

// settings returns h's settings with the defaults filled in.
func (h *Hedge) settings() latency.Settings {
	least := max(cmp.Or(h.Min, defaultLeastDelay), 0)
	s := latency.Settings{Share: h.share(), After: max(h.After, 0), Min: least, Window: h.Window}
	if s.Window <= 0 {
		s.Window = defaultHedgeWindow
	}
	return s
}

// share returns the share of requests that may be hedged, or 0 if there are no hedges.
func (h *Hedge) share() float64 {
	share := cmp.Or(h.Share, defaultShare)
	if !(share > 0) {
		return 0
	}
	return min(share, 1)
}
