package closing

import (
	"io"
	"reflect"
	"slices"
)

// WhileRead reports whether a response body may be closed while it is read. net/http allows this
// for its own bodies, and other packages do not. For example, a closed decoder returns to its
// pool even while it is read.
//
// A body that wraps another body can have a method ClosableAs, which returns the body on which the answer
// depends. It is found by its name. The bodies of otelretry, another module, have ClosableAs: that
// module cannot import this package, and need not know the rule. A release of otelretry relies on the
// name, so ClosableAs is kept as exported API is.
//
// WhileRead recognizes net/http's bodies by the names of their types, because some types of
// net/http wrap a body that they are given. If a type is renamed, a response that stalls costs a
// connection. A test watches for a renamed type.
func WhileRead(body io.ReadCloser) bool {
	switch b := body.(type) {
	case nil:
		return false
	case interface{ ClosableAs() io.ReadCloser }:
		return WhileRead(b.ClosableAs())
	}
	t := reflect.TypeOf(body)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return slices.Contains(netHTTPBodies[:], [2]string{t.PkgPath(), t.Name()})
}

// Each has a package and a name. The HTTP/2 of net/http has a package of its own from Go 1.27 on.
var netHTTPBodies = [...][2]string{
	{"net/http", "noBody"},
	{"net/http", "bodyEOFSignal"}, // HTTP/1
	{"net/http", "gzipReader"},
	{"net/http", "http2transportResponseBody"},
	{"net/http", "http2gzipReader"},
	{"net/http/internal/http2", "transportResponseBody"},
	{"net/http/internal/http2", "gzipReader"},
}
