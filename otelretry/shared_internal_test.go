package otelretry

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

type shownGauge struct {
	noop.Int64Gauge
	before func(n int64)

	mu    sync.Mutex
	shown []int64
}

func (g *shownGauge) Record(_ context.Context, n int64, _ ...metric.RecordOption) {
	if g.before != nil {
		g.before(n)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shown = append(g.shown, n)
}

func TestAGaugeShowsZeroOnceUnlessItHasShownMore(t *testing.T) {
	var g last
	gauge := new(shownGauge)
	for _, now := range []int{0, 0, 2, 2, 0, 0, 1, 0} {
		g.record(t.Context(), gauge, nil, func() int { return now })
	}
	assert.Equal(t, []int64{0, 2, 2, 0, 1, 0}, gauge.shown)
}

// One recorder has read a 0, and is overtaken by another that has read a 1. If the 0 could be recorded
// between the other's decision and its Record, the gauge would show 1 for good.
func TestAGaugeReturnsToZeroThoughItsRecordersOvertakeEachOther(t *testing.T) {
	var g last
	inRecord, slow, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	gauge := &shownGauge{before: func(n int64) {
		if n == 1 {
			close(inRecord)
			<-done
		}
	}}
	go func() {
		defer close(done)
		g.record(t.Context(), gauge, nil, func() int {
			close(slow)
			select {
			case <-inRecord:
			case <-time.After(50 * time.Millisecond): // the other one waits
			}
			return 0
		})
	}()
	<-slow
	g.record(t.Context(), gauge, nil, func() int { return 1 })
	for range 2 {
		g.record(t.Context(), gauge, nil, func() int { return 0 })
	}
	assert.Equal(t, []int64{0, 1, 0}, gauge.shown)
}
