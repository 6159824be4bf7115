package respbody

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/field"
)

// ErrSealed is the error of a Read by a hook that must not read.
var ErrSealed = errors.New("a Classify or RetryAfter must not read the response body: its bytes are in Attempt.Body or Attempt.Peek")

// mostPeek is the size of the longest peek. A policy may ask for any number of bytes.
const mostPeek = 64 << 10

// Peek waits for the first event of resp's body, or for its first bytes if it does not consist of
// events, and returns the response that counts afterward. Its new body begins with these bytes, of which
// there are at most limit. The Body is nil if the body is left as it is. The error is not nil if the
// body breaks off before that, or ends before its first byte although bytes are owed. A body of a failed
// response is awaited no longer than MaxDrainTime. If the attempt is timed, its time alone counts, and
// not the time in which a Read stalls.
//
// While goOn returns true, Peek waits for one more event. It is not asked about a failed response, or if
// nothing can follow. Nil means one event.
func Peek(
	b *Body, req *http.Request, resp *http.Response, limit int64, failed, timed bool, goOn func(*http.Response) bool,
) (*http.Response, *Body, error) {
	if resp.Body == nil || !mayHaveBody(req, resp) {
		return resp, nil, nil
	}
	switch owes := owesBytes(resp); {
	case IsEmpty(resp.Body) && owes:
		return resp, nil, io.ErrUnexpectedEOF
	case IsEmpty(resp.Body), resp.ContentLength == 0 && !owes:
		return resp, nil, nil // over HTTP/2, a length of 0 need not end the stream
	}
	limit = min(limit, mostPeek)
	b = b.of(resp)
	b.data, b.ends = make([]byte, 0, limit), endOf(resp)
	patience := forEver
	switch {
	case failed:
		patience, b.ends, goOn = MaxDrainTime, anyByte, nil
	case timed:
		defer func(stall time.Duration) { b.stall = stall }(b.stall)
		b.stall = 0
	}
	for {
		resp = b.begin(resp, limit, patience, nil)
		whole := b.show()
		if !whole || goOn == nil || b.atEnd() || !goOn(resp) {
			return resp, b, b.judgePeek(resp, whole)
		}
	}
}

// show shows one more event, or what has come of it. It reports whether the event is whole.
func (b *Body) show() (whole bool) {
	end := b.ends(b.data, b.shown, b.shown)
	if b.shown = end; end == 0 {
		b.shown = len(b.data)
	}
	return end > 0
}

// atEnd reports whether nothing can follow what is shown. After a break, an event should follow, and does not come.
func (b *Body) atEnd() bool {
	return b.shown == len(b.data) && (b.err == io.EOF || b.err == nil && b.shown == cap(b.data))
}

// judgePeek returns the attempt's error. After a whole event, or a clean end, Classify may tell what it is.
// If bytes are owed, an end before the first byte is an error. Without a retry, the caller finds the end that
// the body itself has had.
func (b *Body) judgePeek(resp *http.Response, whole bool) error {
	if b.err == nil || whole {
		return nil
	}
	empty := len(b.data) == 0
	if empty {
		b.judgeEnd(resp)
	}
	if b.err == io.EOF && !(empty && owesBytes(resp)) {
		return nil
	}
	b.BreakOff(b.err)
	if b.err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return b.err
}

// owesBytes reports whether resp promises at least one event. A client that listens to events
// connects again after their end, and 204 asks it not to. Bodies of other types may be empty: a query
// that finds nothing, a log without lines, a call without messages.
func owesBytes(resp *http.Response) bool {
	if resp.StatusCode != http.StatusOK {
		return false
	}
	media := field.MediaType(resp.Header)
	return media == "text/event-stream" || media == "application/vnd.amazon.eventstream"
}

// Missing names what has not come of a body that was read within the attempt.
func (b *Body) Missing() string {
	switch {
	case b.ends == nil:
		return "whole response body"
	case len(b.data) > 0:
		return "whole event of the response body"
	}
	return "first byte of the response body"
}

// First returns the first bytes of resp's body, up to limit, or nil if none have been read. After a Peek,
// they end with its last event. They are empty, and not nil, if the body is known to be empty.
func First(resp *http.Response, limit int64) []byte {
	b, ok := resp.Body.(*Body)
	if !ok || len(b.data) == 0 && b.err != io.EOF {
		return nil
	}
	n := int(min(int64(min(b.shown, len(b.data))), limit))
	return b.data[:n:n]
}

// Seal keeps a hook from resp's body until the seal is taken off: a Read fails, and a Close does
// nothing. Without it, a hook that reads would take bytes away from the caller, unseen. A body that
// was not read within the attempt is left alone.
func Seal(resp *http.Response) *Body {
	if resp == nil {
		return nil
	}
	b, ok := resp.Body.(*Body)
	if !ok || b.data == nil {
		return nil
	}
	b.sealed = true
	return b
}

// Unseal takes the seal off, and makes b the body of resp again: a hook that reads often puts a copy
// in its place, which would be empty here. A nil Body was not sealed.
func (b *Body) Unseal(resp *http.Response) {
	if b != nil {
		b.sealed = false
		resp.Body = b
	}
}
