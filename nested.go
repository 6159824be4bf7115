package retryhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/retryhttp/retryhttp/internal/replay"
)

// This file has what a Transport learns of a Transport below it.

// innerOutcome returns the Outcome that a nested Transport recorded in a's error, or on resp, which may have
// broken off. It returns nil if there is no nested Transport, or if the nested Transport neither retried
// nor gave up.
func innerOutcome(a *Attempt, resp *http.Response) *Outcome {
	err := a.Err
	if e, ok := errors.AsType[*Error](err); ok && fromElsewhere(e, a) {
		err = nil
	}
	return outcomeBelow(resp, err)
}

// outcomeBelow is innerOutcome for an error that is about this request.
func outcomeBelow(resp *http.Response, err error) *Outcome {
	if e, ok := errors.AsType[*Error](err); ok {
		return &e.Outcome
	}
	if resp == nil {
		return nil
	}
	return recordOf(resp)
}

// passOutcome records on own, which may be a copy of resp, the Outcome that a nested Transport recorded
// on resp. The record of resp stays as it is, because a hook of the nested Transport may be looking at it.
func passOutcome(resp, own *http.Response) {
	if o := recordOf(resp); o != nil && own != resp {
		attachOutcome(own, resp.Request, *o)
	}
}

// fromElsewhere reports whether an Error in a's error belongs to another request. The failure of
// the other request has ended the context of a's request, or the body of a's request is read from
// the other request.
func fromElsewhere(e *Error, a *Attempt) bool {
	return errors.Is(context.Cause(a.Request.Context()), e) ||
		is[*replay.ReadError](a.Err) || is[*replay.BodyError](a.Err)
}

// including returns o combined with the Outcome that a nested Transport recorded.
func (o Outcome) including(inner *Outcome) Outcome {
	if inner != nil {
		// inner.Attempts is 0 if the inner request's context had ended.
		o.Attempts += max(inner.Attempts, 1) - 1
		o.Waited += inner.Waited
		o.Held += inner.Held
		o.Hedges += inner.Hedges
		o.HedgeWon = o.HedgeWon || inner.HedgeWon
		o.HedgeRefused = o.HedgeRefused || inner.HedgeRefused
		o.Ambiguous = o.Ambiguous || inner.Ambiguous
	}
	return o
}
