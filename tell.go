package retryhttp

import (
	"cmp"
	"log/slog"
	"net/http"
)

func (c *call) tellRetry(a *Attempt) {
	if l := c.policy.Logger; l != nil {
		l.LogAttrs(c.req.Context(), slog.LevelInfo, "retrying request",
			c.method(), c.url(), result(a),
			slog.Int("attempt", a.Number),
			slog.Duration("elapsed", a.Elapsed),
			slog.Duration("wait", a.Wait))
	}
	if c.policy.OnRetry != nil {
		c.policy.OnRetry(*a)
	}
}

func (c *call) tellDone(a *Attempt, o Outcome) {
	if l := c.policy.Logger; l != nil && o.Stop != StopFinal && o.Stop != StopCanceled {
		l.LogAttrs(c.req.Context(), slog.LevelWarn, "gave up on request",
			c.method(), c.url(), result(a),
			slog.Int("attempts", o.Attempts),
			slog.Duration("elapsed", o.Elapsed),
			slog.Duration("waited", o.Waited),
			slog.String("stop", string(o.Stop)),
			slog.Bool("ambiguous", o.Ambiguous))
	}
	if c.policy.OnDone != nil {
		c.policy.OnDone(*a, o)
	}
}

func (c *call) method() slog.Attr {
	return slog.String("method", cmp.Or(c.req.Method, http.MethodGet))
}

func (c *call) url() slog.Attr {
	return slog.String("url", publicURL(c.req.URL))
}

func result(a *Attempt) slog.Attr {
	if a.Err != nil {
		return slog.String("error", failureText(a.Err))
	}
	return slog.Int("status", a.Response.StatusCode)
}
