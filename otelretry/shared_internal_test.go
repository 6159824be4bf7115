package otelretry

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// overtaken is a gauge that calls another recorder before it shows a number above 0.
type overtaken struct {
	noop.Int64Gauge
	other func()
	shown []int64
}

func (o *overtaken) Record(_ context.Context, n int64, _ ...metric.RecordOption) {
	if other := o.other; other != nil && n > 0 {
		o.other = nil
		other()
	}
	o.shown = append(o.shown, n)
}

func TestAGaugeReturnsToZeroThoughItsRecordersOvertakeEachOther(t *testing.T) {
	var g last
	gauge, now := new(overtaken), 0
	record := func() { g.record(t.Context(), gauge, nil, func() int { return now }) }
	record()
	record()
	assert.Equal(t, []int64{0}, gauge.shown, "0 is recorded once")
	now = 2
	gauge.other = func() {
		now = 0
		record()
	}
	record()
	assert.Equal(t, []int64{0, 0, 2, 0}, gauge.shown)
}
