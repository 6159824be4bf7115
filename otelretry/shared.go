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
	budget balance          // nil if the Budget does not report its tokens
	thrift thrift           // nil if the Budget does not report what a success earns
	fleet  fleet            // nil if the Budget is not shared by processes
	gate   *retryhttp.Gate  // nil if the Gate holds nothing
	hedge  *retryhttp.Hedge // nil if the Policy has none
}

// balance, thrift and fleet are implemented by the Budgets of this library. Any other Budget may
// implement them, too.
type (
	balance interface{ Tokens(*http.Request) float64 }
	thrift  interface{ Sparing(*http.Request) bool }
	fleet   interface {
		Shared(*http.Request) (age time.Duration, shared bool)
	}
)

// sharedBy returns what the requests of t share: its Budget, its Gate and its Hedge.
func sharedBy(t *retryhttp.Transport) (s shared) {
	p := policyOf(t)
	s.budget, _ = p.Budget.(balance)
	s.thrift, _ = p.Budget.(thrift)
	s.fleet, _ = p.Budget.(fleet)
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
	if m.budget != nil {
		m.tokens.Record(ctx, m.budget.Tokens(req), l.gauge...)
	}
	if m.thrift != nil {
		l.sparing.record(ctx, m.sparing, l.gauge, func() int { return oneIf(m.thrift.Sparing(req)) })
	}
	if m.fleet != nil {
		m.recordFleet(req, l)
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

func (m *metrics) recordFleet(req *http.Request, l *labels) {
	age, decides := m.fleet.Shared(req)
	m.decides.Record(req.Context(), int64(oneIf(decides)), l.gauge...)
	if age > 0 {
		m.viewTime.Record(req.Context(), unix(time.Now().Add(-age)), l.gauge...)
	}
}

func (m *metrics) recordGate(req *http.Request, l *labels) {
	m.recordHeld(req, l)
	l.inLine.record(req.Context(), m.inLine, l.gauge, func() int { return m.gate.InLine(req) })
	if _, closed := m.gate.Status(req); closed > 0 {
		m.closedUntil.Record(req.Context(), unix(time.Now().Add(closed)), l.gauge...)
	}
}

// recordHeld records how many requests with req's key are held. Another goroutine may record a
// newer number before an older number. So a number above 0 is read again after it has been
// recorded: the gauge returns to 0 when no request is held.
func (m *metrics) recordHeld(req *http.Request, l *labels) {
	for recorded := -1; recorded != 0; {
		now := m.gate.Held(req)
		if now == recorded {
			return
		}
		m.gateHeld.Record(req.Context(), int64(now), l.gauge...)
		recorded = now
	}
}

// record does for a gauge what recordHeld does. But it records a 0 only after a greater number, or
// if nothing has been recorded yet.
func (g *last) record(ctx context.Context, gauge metric.Int64Gauge, opts []metric.RecordOption, read func() int) {
	for recorded := -1; recorded != 0; {
		now := read()
		known := recorded < 0 && now == 0 && g.recorded.Load() && !g.aboveZero.Load()
		if now == recorded || known {
			return
		}
		g.aboveZero.Store(now > 0)
		g.recorded.Store(true)
		gauge.Record(ctx, int64(now), opts...)
		recorded = now
	}
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// unix returns seconds since 1970.
func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
