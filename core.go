package retryhttp

import (
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/pooled"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// core is what all exchanges of a Transport share.
type core struct {
	base   http.RoundTripper
	epoch  time.Time // the time that all times of an exchange are measured from
	drains respbody.Drains
}

// now returns the time since the epoch. Reading only the monotonic clock costs half as much as
// time.Now. The difference is noticeable on the path of a success.
func (c *core) now() time.Duration { return time.Since(c.epoch) }

// pool returns the base, or the second pool of connections of a nil base. No other base has a
// second pool.
func (c *core) pool(second bool) http.RoundTripper {
	if second {
		if pools, ok := c.base.(*pooled.Pools); ok {
			return pools.Second
		}
	}
	return c.base
}
