package fault

import (
	"context"
	"io"
	"syscall"
)

// maxAttempts is the default of Policy.MaxAttempts.
const maxAttempts = 4

// DownloadEnd is how a Download ends for its caller.
type DownloadEnd struct {
	Shape    DownloadShape
	Version  int // whose bytes the caller has
	Requests int
	Waits    bool // a resumption was asked to come later
}

// DownloadShape is whether the caller has all bytes, and whether there is an error.
type DownloadShape int

const (
	Whole    DownloadShape = iota // all bytes, and no error
	Broken                        // some bytes, or all of them, and an error
	CutShort                      // some bytes, and no error
)

func (s DownloadShape) String() string {
	return [...]string{"whole", "broken", "cut short"}[s]
}

// End returns how the Download must end over this version of HTTP.
func (d Download) End(major int) DownloadEnd {
	first := func(s DownloadShape) DownloadEnd { return DownloadEnd{Shape: s, Version: 1, Requests: 1} }
	switch {
	case d.Cuts == 0 || d.How == Trickle:
		return first(Whole)
	case d.Where == BeforeHeader && d.How == Stall && d.Policy == Plain:
		return first(Broken) // at the caller's deadline
	case d.Where == BeforeHeader:
		return d.retried()
	case d.Where == AfterLastByte && (d.measured() || !d.breaks(major)):
		return first(Whole)
	case d.breaksAttempt() && (d.measured() || d.breaks(major)):
		return d.retried()
	case !d.breaks(major) && !d.measured():
		return first(CutShort)
	case !d.resumable():
		return first(Broken)
	}
	return d.resumed()
}

// GivesUp reports whether a broken body's error says that a Transport has tried to resume it.
func (d Download) GivesUp() bool { return d.resumable() && !d.breaksAttempt() }

// Unresumable reports whether a broken body's error says that the server does not let it be
// resumed.
func (d Download) Unresumable() bool {
	return d.Policy.resumes() && !d.resumable() && !d.breaksAttempt() && d.Where != BeforeHeader
}

// Original returns the error that a broken body's error must match, or nil if no error stands for
// how it was broken.
func (d Download) Original(major int) error {
	switch {
	case d.How == Close, d.Resumed.piece && !d.Replaced && d.resumable():
		return io.ErrUnexpectedEOF
	case d.How == Stall:
		return context.DeadlineExceeded
	case d.How == Drop || major == 1:
		return syscall.ECONNRESET
	}
	return nil
}

// breaks reports whether a client sees that a body was cut. It cannot see it in two cases,
// if the body has no length:
//   - HTTP/1 ends the body with the connection, which is closed and not reset.
//   - A server ends an HTTP/2 or HTTP/3 stream properly, as if that were all.
//
// A gzip stream has an end of its own. net/http takes a gzip stream without a byte for an
// empty body.
func (d Download) breaks(major int) bool {
	switch {
	case d.Framing.hasLength() && d.Where == AfterLastByte:
		return major > 1 && d.How != Close // whose streams have an end, too
	case d.How != Close || d.Framing.hasLength():
		return true
	case d.Framing == Delimited:
		return false
	case major == 1:
		return true
	case d.Framing == Gzip:
		return d.Where != AfterHeader && d.Where != AfterLastByte
	}
	return false
}

// maySeemWhole reports whether the Download may end without an error and without all of its bytes,
// whatever happens to its connections. A body that is longer than the buffer, or than the peek, may
// also be cut in a part that is no longer measured.
func (d Download) maySeemWhole(major int) bool {
	switch {
	case d.measured() && (d.Policy == Buffering || d.resumable()):
		return false
	case major == 1:
		return d.Framing == Delimited
	}
	return d.Cuts > 0 && d.Where >= AfterHeader && !d.breaks(major)
}

// measured reports whether the Transport holds the body against its Content-Length, or its
// Content-Range.
func (d Download) measured() bool {
	return (d.Partial || d.Framing.hasLength()) && (d.resumable() || d.breaksAttempt())
}

// breaksAttempt reports whether a body breaks off while the attempt reads it.
func (d Download) breaksAttempt() bool {
	switch d.Policy {
	case Buffering:
		return true
	case Both: // a length would have kept it from being buffered
		return !d.Framing.hasLength() && d.Where <= AfterFirstByte
	case Peeking, PeekingResuming:
		return d.Where == AfterHeader || d.Where == AfterFirstByte && d.Framing == Gzip // whose header is longer
	}
	return false
}

// resumable reports whether the client knows what to ask for.
func (d Download) resumable() bool {
	if !d.Policy.resumes() || d.Framing == Gzip || !d.Framing.hasLength() && !d.Partial {
		return false
	}
	switch d.Validator {
	case StrongTag, DatedTag, OldDate:
		return true
	}
	return false
}

// retried is a Download that begins again.
func (d Download) retried() DownloadEnd {
	end := DownloadEnd{Whole, 1, d.Cuts + 1, false}
	if d.Replaced {
		end.Version = 2
	}
	if end.Requests > maxAttempts {
		end.Shape, end.Requests = Broken, maxAttempts
	}
	return end
}

// resumed is a Download that goes on, if the server lets it. Only the Honest server cuts
// a resumption.
func (d Download) resumed() DownloadEnd {
	end := DownloadEnd{Broken, 1, d.Resumed.requests + d.Cuts - 1, d.Resumed.waits}
	switch {
	case d.Replaced && (d.Resumed.piece || d.Cuts > 1):
		end.Requests = 2 // the first piece is refused
	case d.Replaced:
	case d.Resumed.piece && d.Where == BeforeLastByte:
		end.Shape, end.Requests = Whole, 2
	case d.Resumed.ignores&ranged != 0 && (d.Validator == OldDate || !d.Framing.hasLength()): // not enough for a 200
	case d.Resumed.whole && end.Requests <= maxAttempts:
		end.Shape = Whole
	}
	end.Requests = min(end.Requests, maxAttempts)
	return end
}
