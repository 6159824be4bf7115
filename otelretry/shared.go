package otelretry

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/retryhttp/retryhttp"
)

// shared is what the requests of a Transport share, and gauges show.
type shared struct {
	bucket bucket           // nil if the Budget does not report its state
	gate   *retryhttp.Gate  // nil if the Gate holds nothing
	hedge  *retryhttp.Hedge // nil if the Policy has none
}

// bucket is implemented by the Budgets of this library. Any other Budget may implement it, too.
type bucket interface {
	Status(*http.Request) retryhttp.BucketStatus
}

// sharedBy returns what the requests of t share: its Budget, its Gate and its Hedge.
func sharedBy(t *retryhttp.Transport) (s shared) {
	p := policyOf(t)
	s.bucket, _ = p.Budget.(bucket)
	if p.Gate.Hold >= 0 {
		s.gate = p.Gate
	}
	s.hedge = p.Hedge
	return s
}

// policyOf returns t's Policy, whose Budget and Gate may be t's own. An edit of the policy
// sees the Policy after the defaults have been filled in. So policyOf makes a request with an
// edit and a context that has already ended.
func policyOf(t *retryhttp.Transport) (policy retryhttp.Policy) {
	ctx, cancel := context.WithCancel(retryhttp.WithPolicy(context.Background(), func(p *retryhttp.Policy) {
		policy = *p
		*p = retryhttp.Policy{} // so that no hook is called
	}))
	cancel()
	_, _ = t.RoundTrip((&http.Request{}).WithContext(ctx)) //nolint:bodyclose // there is none
	return policy
}

// recordShared records the state that requests share, as req has left it.
func (m *metrics) recordShared(req *http.Request, l *labels) {
	if req.URL == nil { // a Key may look at the URL
		return
	}
	ctx := req.Context()
	if m.bucket != nil {
		m.recordBucket(req, l)
	}
	if m.gate != nil {
		m.recordGate(req, l)
	}
	if m.hedge == nil {
		return
	}
	if delay, ok := m.hedge.Delay(req); ok {
		m.hedgeDelay.Record(ctx, delay.Seconds(), l.gauge...)
	}
}

func (m *metrics) recordBucket(req *http.Request, l *labels) {
	ctx, s := req.Context(), m.bucket.Status(req)
	m.tokens.Record(ctx, s.Tokens, l.gauge...)
	l.sparing.record(ctx, m.sparing, l.gauge, func() int { return oneIf(m.bucket.Status(req).Sparing) })
	if !s.Fleet {
		return
	}
	m.decides.Record(ctx, int64(oneIf(s.Shared)), l.gauge...)
	if s.Age > 0 {
		m.viewTime.Record(ctx, unix(time.Now().Add(-s.Age)), l.gauge...)
	}
}

func (m *metrics) recordGate(req *http.Request, l *labels) {
	m.recordHeld(req, l)
	l.inLine.record(req.Context(), m.inLine, l.gauge, func() int { return m.gate.Status(req).InLine })
	if closed := m.gate.Status(req).Closed; closed > 0 {
		m.closedUntil.Record(req.Context(), unix(time.Now().Add(closed)), l.gauge...)
	}
}

// recordHeld records how many requests with req's key are held. Another goroutine may record a
// newer number before an older number. So a number above 0 is read again after it has been
// recorded: the gauge returns to 0 when no request is held.
func (m *metrics) recordHeld(req *http.Request, l *labels) {
	for recorded := -1; recorded != 0; {
		now := m.gate.Status(req).Held
		if now == recorded {
			return
		}
		m.gateHeld.Record(req.Context(), int64(now), l.gauge...)
		recorded = now
	}
}

// record records what read returns, but a 0 only after a greater number, or if nothing has been recorded yet.
// One goroutine at a time reads and records, or an older number might be recorded after a newer one.
func (g *last) record(ctx context.Context, gauge metric.Int64Gauge, opts []metric.RecordOption, read func() int) {
	if g.zero.Load() && read() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// Before read: another goroutine that finds a 0 meanwhile comes after this one.
	shown := g.zero.Swap(false)
	now := read()
	if now != 0 || !shown {
		gauge.Record(ctx, int64(now), opts...)
	}
	g.zero.Store(now == 0)
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// unix returns seconds since 1970.
func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
