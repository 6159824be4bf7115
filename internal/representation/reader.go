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

	end      int64  // where the first body ends; negative if its length is unknown
	complete int64  // the complete length; -1 if it is unknown
	tag      string // strong ETag; "" if the date counts
	date     string // Last-Modified
	encoding string // Content-Encoding

	skip  int64 // number of bytes to skip first in the present body
	until int64 // the position up to which that is read
}

// NewReader returns a Reader that begins with the body of resp, the answer to req.
func NewReader(req *http.Request, resp *http.Response) Reader {
	r, why := recognize(req, resp)
	if why != nil {
		r = Reader{Unfit: why, end: resp.ContentLength}
	}
	r.until = math.MaxInt64
	return r
}

// Read reads the next bytes from body. It drops the bytes before the offset, and returns nothing beyond the
// end of a part. A body that ends too early ends with io.ErrUnexpectedEOF, unless it is unfit.
func (r *Reader) Read(body io.ReadCloser, p []byte) (int, error) {
	for r.skip > 0 {
		n, err := body.Read(p[:min(int64(len(p)), r.skip)])
		r.skip -= int64(max(n, 0)) // somebody's body may return a negative number, for ever
		if err != nil {
			return 0, r.meet(body, err)
		}
		if n <= 0 {
			return 0, nil
		}
	}
	left := r.until - r.Offset
	if left == 0 && r.Offset < r.end {
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
		err = r.meet(body, err)
	}
	return n, err
}

// meet returns what the end of body means. Once all bytes have come, the end of the connection is the end of
// the bytes. Before the last byte, an end is an error.
func (r *Reader) meet(body io.ReadCloser, err error) error {
	switch {
	case r.Unfit != nil:
	case r.IsWhole() && respbody.IsConnectionsEnd(body, err):
		return io.EOF
	case r.Offset < r.end && err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// IsWhole reports whether all bytes have come. It is false if the length is unknown.
func (r *Reader) IsWhole() bool { return r.Offset == r.end }

// MayMiss reports whether bytes are missing, or may be, because the length is unknown.
func (r *Reader) MayMiss() bool { return r.Offset < r.end || r.end < 0 }
