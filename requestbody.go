package retryhttp

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/replay"
)

// bodies gives every attempt of one request its own body. It is nil for a request whose body is
// sent as it is. Such a request has no body, has a GetBody that http.NewRequest made, or can neither be
// retried nor be ended early.
type bodies struct {
	replayed *replay.Body // nil if the body is sent as it is, but without a GetBody
	hidden   bool         // GetBody is removed from every attempt
}

// bodiesOf decides how the attempts of req, which has a body, send it. idempotent is the answer of
// Policy.Idempotent. With mustEnd, each attempt has a time limit, or awaits more than its header. At most
// keep bytes of a stream are kept for retries.
func bodiesOf(req *http.Request, idempotent, mayRetry, mustEnd bool, keep int64) *bodies {
	inMemory := madeByNewRequest(req.GetBody)
	// Without a GetBody, a key makes no difference.
	keyed := req.GetBody != nil && keyedForNetHTTP(req.Header)
	// net/http would send the request again unseen. It decides by GetBody, and by the key, the
	// method or the end of the connection.
	hidden := !idempotent && (keyed || req.GetBody == nil)
	if inMemory || !mayRetry && (!mustEnd || req.GetBody != nil) {
		if hidden && req.GetBody != nil {
			return &bodies{hidden: true}
		}
		return nil
	}
	if !mayRetry {
		keep = -1
	}
	return &bodies{replay.Of(req, keep), hidden}
}

// asItIs reports whether the caller's body is sent as it is, and so is each body from its GetBody.
func (b *bodies) asItIs() bool { return b == nil || b.replayed == nil }

// repeatable reports whether the body of req, which has one, can be sent again.
func (b *bodies) repeatable(req *http.Request) bool {
	if b.asItIs() {
		return madeByNewRequest(req.GetBody)
	}
	return b.replayed.Repeatable()
}

// release declares that there will be no further attempt. If the last attempt failed, nothing
// reads its body any more.
func (b *bodies) release(failed bool) {
	if !b.asItIs() {
		b.replayed.Seal(failed)
	}
}

// open gives next, a copy of the caller's request req, the body for the attempt that follows
// previous. For the first attempt, previous is nil. open may wait up to patience for
// a Read of the previous attempt.
func (b *bodies) open(
	req, next *http.Request, first bool, previous *replay.Lease, patience time.Duration,
) (opened *replay.Lease, err error) {
	switch {
	case b.asItIs() && first: // next has the caller's body
	case b.asItIs():
		next.Body, err = req.GetBody()
	case first:
		opened = b.replayed.First(next)
	default:
		opened, err = previous.Next(next, patience)
	}
	if b != nil && b.hidden {
		next.GetBody = nil
	}
	return opened, err
}

// readableBeside reports whether two attempts of req, which has a body, may read it at once.
func (b *bodies) readableBeside(req *http.Request) bool {
	if b.asItIs() {
		return req.GetBody != nil
	}
	return b.replayed.ReadableBeside()
}

// openBeside gives next a body for an attempt that runs beside elder's attempt. It calls a
// GetBody that http.NewRequest did not make only if no attempt has a body open.
func (b *bodies) openBeside(req, next *http.Request, elder *replay.Lease) (opened *replay.Lease, err error) {
	if !b.asItIs() {
		return elder.Beside(next)
	}
	if next.Body, err = req.GetBody(); err != nil {
		return nil, err
	}
	// Even such a body is not sent as it is, so that the reading can be cut.
	return replay.Of(next, 0).First(next), nil
}

// madeByNewRequest reports whether http.NewRequest made getBody for a body in memory. The readers
// that such a GetBody returns have their own positions and never fail. madeByNewRequest compares
// code pointers, because all closures of one function literal have the same code pointer.
func madeByNewRequest(getBody func() (io.ReadCloser, error)) bool {
	if getBody == nil {
		return false
	}
	code, made := reflect.ValueOf(getBody).Pointer(), inMemory()
	return code == made[0] || code == made[1] || code == made[2]
}

var inMemory = sync.OnceValue(func() (code [3]uintptr) {
	for i, body := range []io.Reader{bytes.NewBufferString("x"), bytes.NewReader([]byte("x")), strings.NewReader("x")} {
		req, _ := http.NewRequest(http.MethodPut, "", body)
		code[i] = reflect.ValueOf(req.GetBody).Pointer()
	}
	return code
})

func hasBody(req *http.Request) bool {
	return req.Body != nil && req.Body != http.NoBody
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
