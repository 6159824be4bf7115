package timer

import (
	"context"
	"sync/atomic"
	"time"
)

// Context is the context of an attempt. It has the deadline of the caller's context, which need not be its
// parent. While a limit runs, it has the end of the limit as its deadline, if that is earlier. So a limiter
// below can refuse an attempt that would have no time left, and a server can be given the deadline.
// It has a deadline only: the limit itself ends by a timer elsewhere.
type Context struct {
	context.Context
	Caller context.Context

	limited atomic.Bool // the limit is running
	until   time.Time   // its end; does not change while the context is in use
}

// Limit begins a limit of d. It comes before the first use of the Context.
func (c *Context) Limit(d time.Duration) {
	c.until = time.Now().Add(d)
	c.limited.Store(true)
}

// Unlimit ends the limit. The caller's deadline is the Context's again.
func (c *Context) Unlimit() { c.limited.Store(false) }

func (c *Context) Deadline() (time.Time, bool) {
	deadline, ok := c.Caller.Deadline()
	if c.limited.Load() && (!ok || c.until.Before(deadline)) {
		return c.until, true
	}
	return deadline, ok
}

// String keeps code that prints the context from reading its fields.
func (c *Context) String() string { return "retryhttp.attempt" }
