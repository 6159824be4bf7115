package retryhttp

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/detour"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// core is what all exchanges of a Transport share.
type core struct {
	base   http.RoundTripper
	epoch  time.Time // the time that all times of an exchange are measured from
	drains respbody.Drains
	asked  sync.Pool // of *question: see withdraw.go

	// below belongs to the Base below. It is known once an attempt has reached the Base.
	below atomic.Pointer[detour.Dispatcher]
}

// now returns the time since the epoch. Reading only the monotonic clock costs half as much as
// time.Now. The difference is noticeable on the path of a success.
func (c *core) now() time.Duration { return time.Since(c.epoch) }

// learn records the Base that an attempt has reached below other RoundTrippers.
func (c *core) learn(leg *detour.Attempt) {
	if d := leg.Reached(); d != nil && c.below.Load() == nil {
		c.below.Store(d)
	}
}
