package closing

import (
	"io"
	"reflect"
	"slices"
)

// WhileRead reports whether a response body may be closed while it is read. net/http allows this
// for its own bodies, and other packages do not. For example, a closed decoder returns to its
// pool even while it is read. A body that wraps another body can report this with a method
// ClosableWhileRead.
//
// WhileRead recognizes net/http's bodies by the names of their types, because some types of
// net/http wrap a body that they are given. If a type is renamed, a response that stalls costs a
// connection. A test watches for a renamed type.
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
