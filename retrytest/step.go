package retrytest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Step is what becomes of one request. The zero Step is [Real]. The methods that return a Step change a
// copy.
type Step struct {
	fail   *failure // the request gets no answer; nil: it gets one
	hang   bool
	status int // 0: the real answer
	header http.Header
	body   string
	events []string // the parts of body that are sent by themselves; nil: all of it at once
	event  bool     // the body is an error event

	slow    time.Duration
	early   bool
	ending  ending
	after   int64 // bytes, before the ending
	unsized bool

	mistakes error // for NewTransport and NewHandler
}

// ending is how a response body ends.
type ending int

const (
	whole ending = iota
	cut
	stall
)

// Real is the real answer. It is what a request gets that meets no Rule, and is of use with [Step.Cut],
// [Step.Stall], [Step.Unsized] and [Step.Slow].
func Real() Step { return Step{} }

// Status is an answer with a status from 200 to 999, and a header that alternates names and values. It has
// the Content-Length of its body: see [Step.Body] and [Step.Unsized]. The request is read first.
func Status(code int, header ...string) Step {
	s := Step{status: code, header: make(http.Header)}
	if code < 200 || code > 999 {
		s.status = http.StatusInternalServerError
		s.mistake("Status: %d is not between 200 and 999", code)
	}
	if len(header)%2 != 0 {
		s.mistake("Status: the header %q has no value", header[len(header)-1])
		header = header[:len(header)-1]
	}
	for i := 0; i < len(header); i += 2 {
		s.header.Add(header[i], header[i+1])
	}
	return s
}

// RetryAfter is an answer with a status and a Retry-After of a number of seconds. A part of a second is
// rounded up, because the field has none.
func RetryAfter(code int, wait time.Duration) Step {
	seconds := wait / time.Second
	if wait%time.Second > 0 {
		seconds++
	}
	s := Status(code, "Retry-After", fmt.Sprint(int64(seconds)))
	if wait < 0 {
		s.mistake("RetryAfter: the wait %v is negative", wait)
	}
	return s
}

// ErrorEvent is an answer of server-sent events with status 200, whose only event is an error with these
// data: "event: error", and a line "data: " for each line of them. A language model that notices its overload
// after it has sent the header fails like this.
func ErrorEvent(data string) Step {
	event := "event: error\n"
	for line := range strings.SplitSeq(data, "\n") {
		event += "data: " + line + "\n"
	}
	s := Status(http.StatusOK, "Content-Type", "text/event-stream").Body(event + "\n").Unsized()
	s.event = true
	return s
}

// Hang reads the request, and does not answer. It ends with the request's context: in a Handler this is when
// the client has gone, or when the test has ended.
func Hang() Step { return Step{hang: true} }

// Body sets the body of an answer that [Status], [RetryAfter] or [ErrorEvent] has made.
func (s Step) Body(body string) Step {
	if s.status == 0 {
		s.mistake("Body: %s has a body of its own, or none", s.String())
	}
	s.body, s.events, s.event = body, nil, false
	return s
}

// Events sets the body of an answer, as [Step.Body] does, and sends it event by event. Each Read of a
// Transport's answer brings bytes of one event. A [Handler] flushes each, and over a network a Read may bring
// several. An event is the text as it is sent, such as "data: 1\n\n" or a line of JSON. The Content-Type is for
// [Status] to give, such as text/event-stream. For pauses between events, use [Serve] with a handler that flushes.
func (s Step) Events(events ...string) Step {
	s = s.Body(strings.Join(events, ""))
	if slices.Contains(events, "") {
		s.mistake("Events: an event has no bytes")
	}
	s.events = slices.Clone(events)
	return s
}

// Cut breaks the answer's body off after n bytes, as a lost connection does: the client reads
// io.ErrUnexpectedEOF over HTTP/1, and a stream error over HTTP/2. A real answer of n bytes or less comes
// whole. An answer that [Status] has made needs a longer body. Over HTTP/1, a body with a Content-Length, or
// in chunks, is known to be cut. An upgrade comes whole.
func (s Step) Cut(n int64) Step { return s.endAfter(n, cut, "Cut") }

// Stall sends n bytes of the answer's body, and then nothing more, until the client has gone. A body of n
// bytes or less comes whole, as with [Step.Cut].
func (s Step) Stall(n int64) Step { return s.endAfter(n, stall, "Stall") }

func (s Step) endAfter(n int64, end ending, name string) Step {
	switch {
	case n < 0:
		s.mistake("%s: %d bytes are less than none", name, n)
	case s.ending != whole:
		s.mistake("%s: the body already ends otherwise", name)
	case !s.answers():
		s.mistake("%s: %s has no answer", name, s.String())
	}
	s.ending, s.after = end, n
	return s
}

// Unsized leaves the Content-Length out. Over HTTP/1 the body is then sent in chunks.
func (s Step) Unsized() Step {
	if !s.answers() {
		s.mistake("Unsized: %s has no answer", s.String())
	}
	s.unsized = true
	return s
}

// Slow waits before the Step, or until the request's context ends. In a Handler, the request is read before
// the wait, except for an answer that is [Step.Early]. Over HTTP/1, such an answer waits on when the client has
// gone during an upload.
func (s Step) Slow(wait time.Duration) Step {
	if wait < 0 {
		s.mistake("Slow: the wait %v is negative", wait)
	}
	s.slow = wait
	return s
}

// Early answers before the request body has been read, and does not read it. It is for an answer that
// [Status], [RetryAfter] or [ErrorEvent] has made. Over HTTP/1, a Handler closes the connection after it.
func (s Step) Early() Step {
	if s.status == 0 {
		s.mistake("Early: %s is not an answer of its own", s.String())
	}
	s.early = true
	return s
}

func (s Step) answers() bool { return s.fail == nil && !s.hang }

func (s *Step) mistake(format string, args ...any) {
	s.mistakes = errors.Join(s.mistakes, fmt.Errorf(format, args...))
}

// String describes the step in the words of the table that a failed test gets.
func (s Step) String() string {
	var text string
	switch {
	case s.fail != nil:
		text = s.fail.name
	case s.hang:
		text = "hang"
	case s.status == 0:
		text = "real answer"
	default:
		text = fmt.Sprint(s.status)
		if wait := s.header.Get("Retry-After"); wait != "" {
			text += ", Retry-After: " + wait
		}
	}
	if s.event {
		text += ", error event"
	}
	if len(s.events) > 0 {
		text += fmt.Sprintf(", events: %d", len(s.events))
	}
	switch s.ending {
	case cut:
		text += fmt.Sprintf(", cut after %d bytes", s.after)
	case stall:
		text += fmt.Sprintf(", stalls after %d bytes", s.after)
	}
	if s.unsized {
		text += ", unsized"
	}
	if s.early {
		text += ", early"
	}
	if s.slow > 0 {
		text += fmt.Sprintf(", after %v", s.slow)
	}
	return text
}
