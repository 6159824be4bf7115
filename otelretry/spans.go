package otelretry

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// spans holds the spans of an operation's attempts so far. A hedge runs beside another
// attempt, and waits until that attempt has its span.
type spans struct {
	mu          sync.Mutex // never held while users' code runs
	first, last trace.SpanContext
	lead        trace.SpanContext // the last span that is not a hedge's
	described   int               // the number of the newest attempt whose span is known
	awaited     chan struct{}     // closed when the next span is known; nil if no hedge waits
}

// surround returns the context in which otelhttp makes a's span. If there is no span around
// the request, this is a context within the first attempt's span.
func (op *operation) surround(ctx context.Context, a *attempt) context.Context {
	if a.hedge {
		op.spans.await(ctx, a.number-1)
	}
	if op.around.IsValid() {
		return ctx
	}
	op.spans.mu.Lock()
	defer op.spans.mu.Unlock()
	if !op.spans.first.IsValid() {
		return ctx
	}
	parent := op.spans.first
	if a.hedge {
		// A hedge overlaps the attempt that would be its parent, and may end after it. It has a link
		// to that attempt. The trace is the same, for which the trace's ID is enough.
		parent = trace.NewSpanContext(trace.SpanContextConfig{TraceID: parent.TraceID(), TraceFlags: parent.TraceFlags()})
	}
	return trace.ContextWithSpanContext(ctx, parent)
}

// withFirst returns ctx with the first span, if that is sampled.
func (s *spans) withFirst(ctx context.Context) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.first.IsSampled() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, s.first)
}

// add records the span of an attempt, if it has one, and returns the previous span.
func (s *spans) add(a *attempt, at trace.SpanContext) (previous trace.SpanContext) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.described = a.number
	if s.awaited != nil {
		close(s.awaited)
		s.awaited = nil
	}
	previous = s.last
	if !at.IsValid() {
		return previous
	}
	if !s.first.IsValid() {
		s.first = at
	}
	if !a.hedge {
		s.lead = at
	}
	if !a.hedge || !a.op.firstWon.Load() {
		s.last = at
	}
	return previous
}

// await waits for the span of the attempt with this number, which is under way.
func (s *spans) await(ctx context.Context, number int) {
	s.mu.Lock()
	if s.described >= number {
		s.mu.Unlock()
		return
	}
	awaited := make(chan struct{})
	s.awaited = awaited
	s.mu.Unlock()
	select {
	case <-awaited:
	case <-ctx.Done():
	}
}

// end returns the first span, and the span of the attempt that had the response.
func (s *spans) end(hedgeWon bool) (first, last trace.SpanContext) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !hedgeWon && s.lead.IsValid() {
		s.last = s.lead
	}
	return s.first, s.last
}
