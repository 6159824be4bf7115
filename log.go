package retryhttp

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/redact"
)

func (p *Policy) reportRetry(req *http.Request, a *Attempt) {
	if p.Logger != nil {
		p.Logger.LogAttrs(req.Context(), slog.LevelInfo, "retrying request",
			method(req), location(req), lastFailure(a),
			slog.Int("attempt", a.Number),
			slog.Duration("elapsed", a.Elapsed),
			slog.Duration("wait", a.Wait),
			reasonAttr(a),
			unlessZero("detour", a.Detour),
			unlessZero("offset", a.Offset))
	}
	if p.OnRetry != nil {
		p.OnRetry(*a)
	}
}

// reportHeld reports, at the end of a hold, how long a Gate has held req in total.
func (p *Policy) reportHeld(req *http.Request, held time.Duration) {
	if p.Logger != nil {
		p.Logger.LogAttrs(req.Context(), slog.LevelDebug, "held request",
			method(req), location(req), slog.Duration("held", held))
	}
}

// reportHedge reports that a hedge of req is sent beside an attempt that has run for the time
// late.
func (p *Policy) reportHedge(req *http.Request, number int, late time.Duration) {
	if p.Logger != nil {
		p.Logger.LogAttrs(req.Context(), slog.LevelInfo, "hedging request",
			method(req), location(req), slog.Int("attempt", number), slog.Duration("elapsed", late))
	}
}

func (p *Policy) reportDone(req *http.Request, a *Attempt, o Outcome) {
	if o.Stop != StopFinal && o.Stop != StopCanceled {
		p.warn("gave up on request", req, a, o)
	}
	if p.OnDone != nil {
		p.OnDone(*a, o)
	}
}

// reportBroken reports that the response body of req ends with an error because it is not
// resumed. The caller already has the response, and OnDone was called at its header.
func (p *Policy) reportBroken(req *http.Request, a *Attempt, o Outcome) {
	if o.Stop != StopCanceled {
		p.warn("gave up on response body", req, a, o)
	}
}

func (p *Policy) warn(message string, req *http.Request, a *Attempt, o Outcome) {
	if p.Logger == nil {
		return
	}
	p.Logger.LogAttrs(req.Context(), slog.LevelWarn, message,
		method(req), location(req), lastFailure(a),
		slog.Int("attempts", o.Attempts),
		slog.Duration("elapsed", o.Elapsed),
		slog.Duration("waited", o.Waited),
		slog.Duration("held", o.Held),
		unlessZero("hedges", o.Hedges),
		slog.String("stop", string(o.Stop)),
		slog.Bool("ambiguous", o.Ambiguous),
		reasonAttr(a),
		unlessZero("detour", a.Detour),
		unlessZero("offset", a.Offset))
}

// unlessZero returns an attribute, or an empty one, which handlers ignore, if its value is zero.
func unlessZero[T comparable](name string, value T) slog.Attr {
	var zero T
	if value == zero {
		return slog.Attr{}
	}
	return slog.Any(name, value)
}

// reasonAttr says why a response failed whose status does not say so, such as a stream that begins with
// an error. For other attempts it returns an empty attribute.
func reasonAttr(a *Attempt) slog.Attr {
	if a.Response == nil || classifyStatus(a.Response.StatusCode) != Final {
		return slog.Attr{}
	}
	return slog.String("reason", "Classify did not call it Final")
}

func method(req *http.Request) slog.Attr {
	return slog.String("method", cmp.Or(req.Method, http.MethodGet))
}

func location(req *http.Request) slog.Attr {
	return slog.String("url", redact.URL(req.URL))
}

func lastFailure(a *Attempt) slog.Attr {
	if a.Err != nil {
		return slog.String("error", textOf(a.Err))
	}
	return slog.Int("status", a.Response.StatusCode)
}
