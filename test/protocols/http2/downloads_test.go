package http2_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// download makes a Download, and compares its result with its End.
func download(t *testing.T, d fault.Download, b base) {
	t.Helper()
	s := newStage(t, &frameFault{window: window}, b)
	o := fault.NewObject(d, 1)
	o.Pause = 10 * time.Millisecond
	s.handler.Offer("object", o)
	policy := retryhttp.Policy{Backoff: retryhttp.Constant(0)}
	d.Policy.Set(&policy, fault.Ample)
	if d.How == fault.Stall {
		policy.StallTimeout = 3 * fault.Patience
	}
	got := o.Fetch(t.Context(), retryhttp.New(s.base, policy), s.handler.Ledger, s.url, "object")
	s.close(t)

	assert.NoError(t, o.Compare(got, 2), "%v", got)
	assert.NoError(t, s.handler.Ledger.Check("object", got.Whole))
}

// someDownloads are the Downloads that may differ between the bases, by how a stream ends.
func someDownloads() (some []fault.Download) {
	for _, d := range fault.Downloads(2) {
		switch {
		case d.How == fault.Drop || d.Resumed != fault.Honest || d.Replaced || d.Cuts > 2:
		case d.Validator == fault.OldDate: // the server sends no Date to compare it with
		case d.How == fault.Stall && (d.Policy == fault.Plain || d.Where != fault.InTheMiddle || d.Cuts > 1): // it takes long
		default:
			some = append(some, d)
		}
	}
	return some
}

func TestDownloadsFromEitherBase(t *testing.T) {
	newStage(t, frameFaults[0], bases[0]).close(t) // what the process opens for its first socket stays open
	before := fault.TakeInventory()
	all := someDownloads()
	fault.SideBySide(64, all, func(_ int, d fault.Download) {
		for _, b := range bases {
			t.Run(b.name+"/"+d.String(), func(t *testing.T) { download(t, d, b) })
		}
	})
	assert.NoError(t, before.Leaked(atRest))
	t.Logf("%d downloads", len(all))
}
