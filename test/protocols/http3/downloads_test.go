package http3_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// stall is how long a Read of a body that stalls may take. A busy machine may take as long for an
// answer.
const stall = 8 * fault.Patience

// download makes a Download, and compares its result with its End.
func download(t *testing.T, d fault.Download) {
	t.Helper()
	s := newStage(t, fault.Ample)
	o := fault.NewObject(d, 1)
	o.Pause = 10 * time.Millisecond
	s.handler.Offer("object", o)
	policy, limit := retryhttp.Policy{Backoff: retryhttp.Constant(0)}, fault.Ample
	d.Policy.Set(&policy, fault.Ample)
	switch {
	case d.How == fault.Stall && d.Policy == fault.Plain:
		limit = stall
	case d.How == fault.Stall && d.Where == fault.BeforeHeader:
		policy.AttemptTimeout = stall
	case d.How == fault.Stall && policy.PeekBytes > 0: // StallTimeout begins after the first bytes
		policy.StallTimeout, policy.AttemptTimeout = stall, stall
	case d.How == fault.Stall:
		policy.StallTimeout = stall
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	got := o.Fetch(ctx, retryhttp.New(s.base, policy), s.handler.Ledger, s.url, "object")
	s.close()

	assert.NoError(t, o.Compare(got, 3), "%v", got)
	assert.NoError(t, s.handler.Ledger.Check("object", got.Whole))
}

// someDownloads are the Downloads that differ from each other over HTTP/3. A reset may
// overtake what was sent before it, the header included. How a download ends is then known
// only if it succeeds all the same.
func someDownloads() (some []fault.Download) {
	for _, d := range fault.Downloads(3) {
		reset := d.How == fault.Reset || d.How == fault.Drop
		switch {
		case reset && (d.Where == fault.AfterLastByte || d.End(3).Shape != fault.Whole):
		case d.Partial && d.Framing != fault.Chunked:
		case d.Cuts > 1 && (d.Where != fault.InTheMiddle || d.How == fault.Stall):
		case d.Resumed == fault.Honest && !d.Replaced:
			some = append(some, d)
		case d.Policy == fault.Resuming && d.Where == fault.InTheMiddle && d.How == fault.Close && d.Framing == fault.Length:
			some = append(some, d)
		}
	}
	return some
}

func TestDownloadsOverHTTP3(t *testing.T) {
	leavesNothing(t)
	all := someDownloads()
	fault.SideBySide(64, all, func(_ int, d fault.Download) {
		t.Run(d.String(), func(t *testing.T) { download(t, d) })
	})
	t.Logf("%d downloads", len(all))
}
