package zoo

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// Only these methods are hedged.
var safeMethods = []method{
	{"GET", "", true},
	{"QUERY", "", true},
}

// hedging is when the attempts of one request are hedged, and how often they were.
type hedging struct {
	after     time.Duration
	sent, won atomic.Int32
}

func (h *hedging) join(p *retryhttp.Policy) {
	p.Hedge = &retryhttp.Hedge{Share: 1, After: h.after, Min: -1}
	p.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) {
		h.sent.Add(int32(o.Hedges))
		if o.HedgeWon {
			h.won.Add(1)
		}
	}
}

// A hedge must make nothing worse either. It is sent at once, or later beside a first
// attempt whose response is buffered.
func TestZooWithHedges(t *testing.T) {
	var all []scene
	for _, after := range []time.Duration{1, 20 * time.Millisecond} {
		for _, s := range scenes(safeMethods) {
			s.hedging = &hedging{after: after}
			s.bodies = after > 1 && s.sentBeside() // else a response that stalls ends only with StallTimeout
			all = append(all, s)
		}
	}
	all = slices.DeleteFunc(all, func(s scene) bool { return !s.mayBeHedged() })
	visit(t, all)
	t.Run("hedges are sent and some win", func(t *testing.T) { checkHedges(t, all) })
}

func checkHedges(t *testing.T, all []scene) {
	t.Helper()
	var possible, sent, won int
	for _, s := range all {
		if s.sentBeside() && s.hedging.after == 1 {
			possible++
			sent += int(min(s.hedging.sent.Load(), 1))
			won += int(min(s.hedging.won.Load(), 1))
		}
	}
	t.Logf("requests that can be hedged at once: %d, hedged: %d, answered by the hedge: %d", possible, sent, won)
	assert.Greater(t, sent, possible/2)
	assert.Positive(t, won)
	assert.Less(t, won, sent)
}

// mayBeHedged reports whether a hedge can do anything here, good or bad.
func (s scene) mayBeHedged() bool {
	switch {
	// A RoundTripper that changes the request it is given belongs above a Transport. Below,
	// it sets a header while the hedge's copy of the header is made.
	case s.animal.name == "sets a header":
		return false
	case s.method.name == http.MethodGet != (s.kind.size == 0):
		return false
	}
	return s.kind.beside || s.kind.again != nil
}

// sentBeside reports whether two attempts can always be under way at once.
func (s scene) sentBeside() bool {
	return s.kind.beside && (s.kind.size == 0 || !s.animal.above)
}
