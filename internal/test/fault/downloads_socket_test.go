package fault_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// A reset and an end look otherwise at a socket than in memory. Nothing hangs here.
func TestDownloadsOverSockets(t *testing.T) {
	newStage(t, &fault.Fault{}, false).close() // what the process opens for its first socket stays open
	before := fault.TakeInventory()
	for major := 1; major <= 2; major++ {
		some := slices.DeleteFunc(fault.Downloads(major), func(d fault.Download) bool {
			return d.How > fault.Close || d.Resumed != fault.Honest || d.Replaced || d.Validator != fault.StrongTag
		})
		fault.SideBySide(8, some, func(n int, d fault.Download) {
			t.Run(d.String(), func(t *testing.T) { downloadOverSocket(t, uint64(n), d, major) })
		})
		t.Logf("%d downloads over HTTP/%d", len(some), major)
	}
	assert.NoError(t, before.Leaked(atRest))
}

func downloadOverSocket(t *testing.T, n uint64, d fault.Download, major int) {
	t.Helper()
	s := newStage(t, &fault.Fault{}, major == 2)
	o := fault.NewObject(d, n)
	s.server.Offer("object", o)
	policy := retryhttp.Policy{Backoff: retryhttp.Constant(0)}
	d.Policy.Set(&policy, fault.Ample)
	got := o.Fetch(t.Context(), retryhttp.New(s.base, policy), s.server.Ledger, s.url, "object")
	s.rest(t)
	s.close()
	checkDownload(t, o, got, s.server.Ledger, major)
}

// The server is well, and the network is not. Over HTTP/2 the base must notice a connection that
// stalls.
func TestDownloadIsResumedIfAConnectionBreaks(t *testing.T) {
	for major := 1; major <= 2; major++ {
		for n, f := range fault.Links {
			if f.Effect == fault.Spoils || f.Effect == fault.SpoilHangs && major == 1 {
				t.Run(f.Name, func(t *testing.T) { downloadOverLink(t, uint64(n), f, major) })
			}
		}
	}
}

func downloadOverLink(t *testing.T, n uint64, f *fault.Fault, major int) {
	t.Helper()
	s := newStage(t, f, major == 2)
	o := fault.NewObject(fault.Download{Policy: fault.Resuming, Resumed: fault.Honest}, n)
	s.server.Offer("object", o)
	policy := retryhttp.Policy{Backoff: retryhttp.Constant(0)}
	o.Download.Policy.Set(&policy, fault.Patience)
	got := o.Fetch(t.Context(), retryhttp.New(s.base, policy), s.server.Ledger, s.url, "object")
	s.rest(t)
	s.close()
	assert.True(t, got.Whole, "%v", got)
	assert.NoError(t, o.CheckAsked(got))
	assert.Len(t, o.Asked(), 2)
}
