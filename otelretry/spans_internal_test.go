package otelretry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	span.End()
	events := exporter.GetSpans()[0].Events
	require.Len(t, events, 2)
	for i, held := range []float64{5, 3} {
		assert.Equal(t, heldKey.Float64(held), events[i].Attributes[0])
	}
	for i, lined := range []float64{4, 3} {
		assert.Equal(t, inLineKey.Float64(lined), events[i].Attributes[1])
	}
}
