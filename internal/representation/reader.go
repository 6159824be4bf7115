package representation

import (
	"io"
	"math"
	"net/http"

	"github.com/retryhttp/retryhttp/internal/respbody"
)

// Reader reads a representation from one body after another: each continues where the previous one broke off.
type Reader struct {
	Unfit   error // why the first body cannot be continued, or nil
	Offset  int64 // of the next byte, in the representation
	Brought int64 // number of bytes that the present body has brought

	whole Representation // its End is negative if the length is unknown
	part  Continuation   // how the present body is read
}

// NewReader returns a Reader that begins with the body of resp, the answer to req.
func NewReader(req *http.Request, resp *http.Response) Reader {
	r := Reader{part: Continuation{Until: math.MaxInt64}}
	if r.whole, r.Unfit = Of(req, resp); r.Unfit != nil {
		r.whole = Representation{End: resp.ContentLength}
	}
	r.Offset = r.whole.Begin
	return r
}

// Read reads the next bytes from body. It drops the bytes before the offset, and returns nothing beyond the
// end of a part. A body that ends too early ends with io.ErrUnexpectedEOF, unless it is unfit.
func (r *Reader) Read(body io.ReadCloser, p []byte) (int, error) {
	for r.part.Skip > 0 {
		n, err := body.Read(p[:min(int64(len(p)), r.part.Skip)])
		r.part.Skip -= int64(max(n, 0)) // somebody's body may return a negative number, for ever
		if err != nil {
			return 0, r.end(body, err)
		}
		if n <= 0 {
			return 0, nil
		}
	}
	left := r.part.Until - r.Offset
	if left == 0 && r.Offset < r.whole.End {
		return 0, io.ErrUnexpectedEOF // the server sent a shorter range
	}
	// After the last byte, one more Read usually meets the end. Without it, the connection could not be reused.
	n, err := body.Read(p[:min(int64(len(p)), max(left, 1))])
	if n > 0 {
		if left == 0 {
			return 0, io.EOF
		}
		r.Offset += int64(n)
		r.Brought += int64(n)
	}
	if err != nil {
		err = r.end(body, err)
	}
	return n, err
}

// end returns what the end of body means. Once all bytes have come, the end of the connection is the end of
// the bytes. Before the last byte, an end is an error.
func (r *Reader) end(body io.ReadCloser, err error) error {
	switch {
	case r.Unfit != nil:
	case r.IsWhole() && respbody.IsConnectionsEnd(body, err):
		return io.EOF
	case r.Offset < r.whole.End && err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// IsWhole reports whether all bytes have come. It is false if the length is unknown.
func (r *Reader) IsWhole() bool { return r.Offset == r.whole.End }

// MayMiss reports whether bytes are missing, or may be, because the length is unknown.
func (r *Reader) MayMiss() bool { return r.Offset < r.whole.End || r.whole.End < 0 }

// Request returns a copy of req that asks for the missing bytes of the same representation.
func (r *Reader) Request(req *http.Request) *http.Request { return r.whole.Request(req, r.Offset) }

// Continue makes the Reader read the body of resp, the answer to a Request, or returns why resp does not
// continue the representation.
func (r *Reader) Continue(resp *http.Response) error {
	part, refusal := r.whole.ContinuedBy(resp, r.Offset)
	if refusal == nil {
		r.part, r.Brought = part, 0
	}
	return refusal
}
