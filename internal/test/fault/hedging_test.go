package fault_test

import (
	"context"
	"io"
	"log"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

func TestHedgesOverHTTP1(t *testing.T) {
	runHedgings(t, slices.Concat(fault.Answers, fault.WireAnswers), 1)
}

func TestHedgesOverHTTP2(t *testing.T) { runHedgings(t, fault.Answers, 2) }

func runHedgings(t *testing.T, faults []*fault.Fault, major int) {
	t.Helper()
	log.SetOutput(io.Discard) // net/http logs answers that nobody asked for
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	all := fault.Hedgings(faults, major)
	fault.SideBySide(8, all, func(n int, h fault.Hedging) {
		t.Run(h.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runHedging(t, uint64(n), h) })
		})
	})
	t.Logf("%d cases", len(all))
}

// runHedging makes a request that is hedged if it may be. The bubble ends in a panic if a
// goroutine is left.
func runHedging(t *testing.T, n uint64, h fault.Hedging) {
	t.Helper()
	defer time.Sleep(time.Minute) // in which net/http's server lingers on connections
	m := newMemory(h.Major)
	m.base.MaxResponseHeaderBytes = 64 << 10
	defer m.stop()
	ctx, cancel, policy := h.Limited(t.Context())
	defer cancel()
	base := &bodies{RoundTripper: m.base}
	rt := retryhttp.New(m.server.Ledger.Watch(base), h.Policy(policy))
	m.server.Order("request", h.Orders()...)
	r := sendHedged(ctx, cancel, m, n, h, rt)
	assert.NoError(t, h.Judge(r), "%v", r)
	assert.True(t, fault.Eventually(atRest, func() bool {
		m.base.CloseIdleConnections() // again, for one may become idle now
		synctest.Wait()
		return m.network.Conns() == 0
	}), "connections are left open")
	assert.Zero(t, base.open.Load(), "bodies are left open")
	assert.NoError(t, m.server.Ledger.Check("request", r.Succeeded()))
	assert.NoError(t, r.Upload.Closed(h.Major == 2), "%v", r)
}

func sendHedged(
	ctx context.Context, cancel context.CancelFunc, m *memory, n uint64, h fault.Hedging, rt *retryhttp.Transport,
) fault.Result {
	if !h.HangsForEver() {
		return fault.Send(ctx, rt, m.server.Ledger, "http://host", "request", n, h.Method, h.Kind)
	}
	leaving := h.Leaving(ctx, cancel, rt, m.server.Hung(), nil)
	return fault.Send(ctx, leaving, m.server.Ledger, "http://host", "request", n, h.Method, h.Kind)
}
