package otelretry

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp"
)

// These attributes of metrics are this package's own.
const (
	stopKey      = attribute.Key("retryhttp.stop") // why there was no further attempt
	ambiguousKey = attribute.Key("retryhttp.ambiguous")
	repeatedKey  = attribute.Key("retryhttp.repeated")
	reasonKey    = attribute.Key("retryhttp.reason") // why a body was given up
	keyKey       = attribute.Key("retryhttp.key")
)

// panicked is the retryhttp.stop and the error.type of a request that panicked.
const panicked = "panic"

type metrics struct {
	instruments
	shared
	labels *labelSets
	key    func(*http.Request) string // nil if gauges have no key
}

func newMetrics(m metric.Meter, key, server func(*http.Request) string) *metrics {
	return &metrics{
		instruments: newInstruments(m),
		labels:      newLabelSets(server),
		key:         key,
	}
}

func (m *metrics) labelsOf(req *http.Request) *labels {
	if m.key == nil || req.URL == nil {
		return m.labels.of(req, "", false)
	}
	return m.labels.of(req, m.key(req), true)
}

// observe returns p with hooks that record before they call p's own hooks.
//
// One of the two hooks follows each attempt. While a host is down, its requests do not end:
// without OnRetry, the gauges of the Gate would not show that they are held.
func (m *metrics) observe(p retryhttp.Policy) retryhttp.Policy {
	onRetry, onDone := p.OnRetry, p.OnDone
	p.OnRetry = func(a retryhttp.Attempt) {
		m.recordRetry(a)
		if onRetry != nil {
			onRetry(a)
		}
	}
	p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
		m.recordEnd(a, o)
		if onDone != nil {
			onDone(a, o)
		}
	}
	return p
}

func (m *metrics) recordRetry(a retryhttp.Attempt) {
	req := a.Request
	if m.gate != nil && req.URL != nil {
		m.recordGate(req, m.labelsOf(req))
	}
	if op := operationOf(req.Context()); op != nil {
		op.waits.begin()
	}
}

// recordResumption records an attempt to continue the body of req's response. The other
// measurements of the request were recorded when the header of that response arrived.
func (m *metrics) recordResumption(req *http.Request) {
	m.resumed.Add(req.Context(), 1, m.labelsOf(req).count...)
}

// recordDetour records that an attempt for req took a detour.
func (m *metrics) recordDetour(req *http.Request) {
	m.detours.Add(req.Context(), 1, m.labelsOf(req).count...)
}

func (m *metrics) recordEnd(a retryhttp.Attempt, o retryhttp.Outcome) {
	req := a.Request
	ctx, l := m.exemplar(req), m.labelsOf(req)
	m.recordShared(req, l)
	m.attempts.Record(ctx, int64(o.Attempts), l.measure...)
	if retries := o.Attempts - 1 - o.Hedges; retries > 0 {
		m.retries.Record(ctx, int64(retries), l.measure...)
		m.delay.Record(ctx, o.Waited.Seconds(), l.measure...)
	}
	if o.Hedges > 0 {
		m.hedges.Add(ctx, int64(o.Hedges), l.count...)
	}
	if o.HedgeWon {
		m.wins.Add(ctx, 1, l.count...)
	}
	if o.HedgeRefused {
		m.refused.Add(ctx, 1, l.count...)
	}
	if o.Held > 0 { // also before a first attempt
		m.held.Record(ctx, o.Held.Seconds(), l.measure...)
	}
	m.stops.Add(ctx, 1, l.ended(a, o)...)
	if op := operationOf(req.Context()); op != nil {
		op.counted.Store(true)
		// It may have been held without another attempt.
		op.sayHeld(trace.SpanFromContext(op.Context), o.Held, 0)
	}
}

// recordPanic records that req ended in a panic, after which no hook is called. A server recovers from
// the panics of its handlers, and without this count no alert would see that all of them fail.
func (m *metrics) recordPanic(req *http.Request) {
	l := m.labelsOf(req)
	m.stops.Add(m.exemplar(req), 1, l.with(stopKey.String(panicked), semconv.ErrorTypeKey.String(panicked))...)
	m.recordShared(req, l) // nothing is held any more
}

// exemplar returns a context in which a measurement names a span. This is the span around the
// request, or else the span of its first attempt.
func (m *metrics) exemplar(req *http.Request) context.Context {
	ctx := req.Context()
	op := operationOf(ctx)
	if op == nil || op.around.IsValid() {
		return ctx
	}
	return op.spans.withFirst(ctx)
}
