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
	t := reflect.TypeOf(body)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == "net/http" && slices.Contains(netHTTPBodies[:], t.Name())
}

var netHTTPBodies = [...]string{
	"bodyEOFSignal", // HTTP/1
	"gzipReader",
	"http2transportResponseBody",
	"http2gzipReader",
}
