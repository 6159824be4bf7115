package closing

import (
	"io"
	"reflect"
	"slices"
)

// WhileRead reports whether a response's body may be closed while it is read.
// net/http allows it for its own bodies, and nobody else does: a decoder goes back to
// its pool when it is closed, though somebody reads it. A body that wraps another one
// can report it with a method ClosableWhileRead.
//
// net/http's bodies are known by the names of their types, for some types of that
// package wrap what they are given. A type that is renamed costs a connection
// where a response stalls, and a test watches for it.
func WhileRead(body io.ReadCloser) bool {
	if wrapped, ok := body.(interface{ ClosableWhileRead() bool }); ok {
		return wrapped.ClosableWhileRead()
	}
	return isNetHTTPs(body, http1Bodies[:]) || isNetHTTPs(body, http2Bodies[:])
}

var (
	http1Bodies = [...]string{"*http.bodyEOFSignal", "*http.gzipReader"}
	http2Bodies = [...]string{"http.http2transportResponseBody", "*http.http2gzipReader"}
)

// isNetHTTPs compares strings that exist: to take a type's name out of them costs more
// than the rest of a check.
func isNetHTTPs(body io.ReadCloser, names []string) bool {
	t := reflect.TypeOf(body)
	if !slices.Contains(names, t.String()) {
		return false
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == "net/http"
}

// EndsRead reports whether a Close of body ends a Read at once, whatever state the
// connection is in. An HTTP/1 body has a connection of its own, which Close closes.
// Over HTTP/2 a Read may wait until the connection takes a window update.
func EndsRead(body io.ReadCloser) bool { return isNetHTTPs(body, http1Bodies[:]) }
