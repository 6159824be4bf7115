package retryhttp

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/retryhttp/retryhttp/internal/replay"
)

// bodiesOf returns what gives every attempt of req, which has a body, its own body. It is nil if the body
// is sent as it is, and so is each body from GetBody: http.NewRequest made that GetBody, or the
// request can neither be retried nor be ended early. With mustEnd, each attempt has a time limit, or
// awaits more than its header. At most keep bytes of a stream are kept for retries.
func bodiesOf(req *http.Request, mayRetry, mustEnd bool, keep int64) *replay.Body {
	switch {
	case madeByNewRequest(req.GetBody), !mayRetry && (!mustEnd || req.GetBody != nil):
		return nil
	case !mayRetry:
		keep = -1
	}
	return replay.Of(req, keep)
}

// hidesGetBody reports whether GetBody is removed from every attempt of req. net/http would send the
// request again unseen. It decides by GetBody, and by the key, the method or the end of the connection.
func hidesGetBody(req *http.Request, idempotent bool) bool {
	return !idempotent && (req.GetBody == nil || keyedForNetHTTP(req.Header))
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
