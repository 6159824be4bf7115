package replay

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
)

// For returns the Body of req, which has one. It is nil if the request's own body is sent as it is, and so is
// each body from GetBody: http.NewRequest made that GetBody, or the request can neither be retried nor be
// ended early. With mustEnd, each attempt has a time limit, or awaits more than its header. At most limit
// bytes of a stream are kept for retries.
func For(req *http.Request, mayRetry, mustEnd bool, limit int64) *Body {
	switch {
	case madeByNewRequest(req.GetBody), !mayRetry && (!mustEnd || req.GetBody != nil):
		return nil
	case !mayRetry:
		limit = -1
	}
	return Of(req, limit)
}

// madeByNewRequest reports whether http.NewRequest made getBody for a body in memory. The readers
// that such a GetBody returns have their own positions and never fail. madeByNewRequest compares
// code pointers, because all closures of one function literal have the same code pointer. It is 0 for nil.
func madeByNewRequest(getBody func() (io.ReadCloser, error)) bool {
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
