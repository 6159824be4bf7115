package otelretry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A hedge may begin so late that the first attempt has won. What follows is linked to the winner.
func TestAHedgeThatBeginsAfterTheFirstAttemptHasWonIsNotTheLast(t *testing.T) {
	at := func(n byte) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{n}})
	}
	for _, won := range []bool{false, true} {
		op := new(operation)
		op.spans.add(&attempt{op: op, number: 1}, at(1))
		op.firstWon.Store(won)
		op.spans.add(&attempt{op: op, number: 2, hedge: true}, at(2))
		last := op.spans.add(&attempt{op: op, number: 3}, at(3))
		assert.Equal(t, won, last.Equal(at(1)))
	}
}

// The time in line counts anew when a body is resumed.
func TestAWaitInLineOfAResumptionIsToldWhole(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	_, span := sdk.NewTracerProvider(sdk.WithSyncer(exporter)).Tracer("test").Start(t.Context(), "span")
	var op operation
	op.sayHeld(span, 5*time.Second, 4*time.Second)
	op.sayHeld(span, 8*time.Second, 3*time.Second)
	op.sayHeld(span, 9*time.Second, 3*time.Second)
	span.End()
	events := exporter.GetSpans()[0].Events
	require.Len(t, events, 3)
	for i, want := range [][]attribute.KeyValue{
		{heldKey.Float64(5), inLineKey.Float64(4)},
		{heldKey.Float64(3), inLineKey.Float64(3)},
		{heldKey.Float64(1)},
	} {
		assert.Equal(t, want, events[i].Attributes)
	}
}
