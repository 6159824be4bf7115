package neterr

import (
	"errors"
	"net/url"
	"reflect"
)

// StreamRefused reports whether err says that the server refused the stream
// without having processed the request, and nothing else: REFUSED_STREAM over
// HTTP/2, H3_REQUEST_REJECTED over HTTP/3. As for NeverSent, the error of an
// http.Client and a join prove nothing.
func StreamRefused(err error) bool {
	if refusedElsewhere(err) {
		return true
	}
	switch e := err.(type) {
	case *url.Error:
		return false
	case interface{ Unwrap() []error }:
		return false
	case interface{ Unwrap() error }:
		return e.Unwrap() != nil && StreamRefused(e.Unwrap())
	case interface{ As(any) bool }:
		var stream streamError
		return isStreamError(err) && e.As(&stream) && stream.Code == refusedStream
	}
	return refusedWithoutGetBody(err.Error())
}

// isStreamError reports whether err is itself of streamError's shape. An error with
// an As of its own may ask another one that it holds, of which there may be several.
func isStreamError(err error) bool {
	t := reflect.TypeOf(err)
	if t.Kind() != reflect.Struct || t.NumField() != reflect.TypeFor[streamError]().NumField() {
		return false
	}
	for f := range reflect.TypeFor[streamError]().Fields() {
		if own, ok := t.FieldByName(f.Name); !ok || own.Type.Kind() != f.Type.Kind() {
			return false
		}
	}
	return true
}

// streamError has the shape of net/http's own HTTP/2 stream error, which lets
// errors.As convert it to any struct of the same fields. So nobody needs to import
// golang.org/x/net/http2 to read it.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return "http2: stream error" }

const (
	refusedStream   = 7     // REFUSED_STREAM, RFC 9113, section 7
	requestRejected = 0x10b // H3_REQUEST_REJECTED, RFC 9114, section 8.1
)

// refusedElsewhere knows the errors of the modules that people use in the place
// of net/http's HTTP/2. Users need not depend on these modules, so the errors are
// recognized by the names of their types and fields. An error whose fields differ
// is not believed: a miss costs a retry and nothing else.
func refusedElsewhere(err error) bool {
	switch {
	case isNamed(err, "golang.org/x/net/http2", "StreamError"):
		return hasCode(err, "Code", refusedStream)
	case isNamed(err, "github.com/quic-go/quic-go/http3", "Error"):
		// It also reports the end of a connection, and what this side says.
		remote := field(err, "Remote")
		return isNamed(errors.Unwrap(err), "github.com/quic-go/quic-go", "StreamError") &&
			remote.Kind() == reflect.Bool && remote.Bool() && hasCode(err, "ErrorCode", requestRejected)
	}
	return false
}

// isNamed reports whether err is of a type, or a pointer to one, that is declared
// in a package under a name.
func isNamed(err error, pkg, name string) bool {
	v := reflect.Indirect(reflect.ValueOf(err))
	return v.IsValid() && v.Type().Name() == name && v.Type().PkgPath() == pkg
}

func hasCode(err error, name string, code uint64) bool {
	f := field(err, name)
	return f.CanUint() && f.Uint() == code
}

// field returns a field of the struct that err is, or points to, if there is one.
func field(err error, name string) (f reflect.Value) {
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
		f = v.FieldByName(name)
	}
	return f
}
