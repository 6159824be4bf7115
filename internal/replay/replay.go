// Package replay provides several attempts with one request body that can be read only once,
// or that has only one read position.
//
// A [Source] owns a body without a GetBody. Every attempt has a [Lease] on the body, and opens
// readers through the lease. Readers never share a position: each reader starts at the first
// byte, whatever the others have read. Any number of readers may be in use at the same time. So
// a new attempt can begin while net/http is still sending the body of the previous attempt,
// which it does whenever a server answers early.
//
// A [Reopener] calls the GetBody of a request, and every attempt has a [Reopening]. The bodies
// may share one position, so the reads of one attempt end before another attempt reads.
package replay

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

var (
	// ErrSpent means that the beginning of the body was not kept.
	ErrSpent = errors.New("the request body cannot be sent again: more of it was sent than is kept")
	// ErrOver is the error of a reader whose attempt is over.
	ErrOver = errors.New("the attempt that read this request body is over")
)

// Bodies gives every attempt of one request its own body.
type Bodies interface {
	// First begins the first attempt. The context bounds how long a reader waits for the body.
	// If atEOF is not nil, it is called once, when a reader of the attempt first meets the end,
	// before that reader's Read returns.
	First(ctx context.Context, atEOF func()) (Reading, error)

	// Repeatable reports whether a further attempt can begin now.
	Repeatable() bool

	// ReadableBeside reports whether two attempts may read the body at once.
	ReadableBeside() bool

	// Seal records that there will be no further attempt. With cut, the attempts are over too.
	Seal(cut bool)
}

// Reading is one attempt's right to read the body.
type Reading interface {
	// SetBody gives the attempt's request its Body, and a GetBody if the body will be there
	// whenever the base asks for it.
	SetBody(req *http.Request) error

	// UsesGetBody reports whether the attempt may read bodies from the request's own GetBody.
	UsesGetBody() bool

	// Next begins the attempt that follows this attempt, which may still be reading. It waits
	// for a Read that is under way, but no longer than patience. The context and atEOF are as
	// in [Bodies.First].
	Next(ctx context.Context, patience time.Duration, atEOF func()) (Reading, error)

	// Beside begins an attempt that runs beside this attempt, and does not affect it.
	Beside(ctx context.Context, atEOF func()) (Reading, error)

	// Cut ends the attempt: its readers return ErrOver.
	Cut()
}

// Of returns the Bodies of req, which has a body. It keeps at most limit bytes of a body that
// can be read only once.
func Of(req *http.Request, limit int64) Bodies {
	a := announced{length: req.ContentLength, late: req.Header.Get("Expect") != ""}
	if req.GetBody != nil {
		r := NewReopener(req.Body, req.GetBody)
		r.announced = a
		return r
	}
	s := New(req.Body, limit)
	s.announced = a
	return s
}

// announced is what the header of every attempt says about the body.
type announced struct {
	// length is as in [net/http.Request.ContentLength]: 0 or less means unknown. A reader that
	// has returned this many bytes is at its end, even if its attempt is over. net/http looks
	// for the end after it has sent these bytes, and an error there costs the connection.
	length int64

	// late means that an attempt may begin to read its first reader after the response has
	// come, as with "Expect: 100-continue".
	late bool
}

// afterwards returns the error of a Read after the attempt is over, when the reader has returned
// so many bytes.
func (a *announced) afterwards(returned int64) error {
	if a.length > 0 && a.length == returned {
		return io.EOF
	}
	return ErrOver
}
