package retryhttp

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
)

// neverSent reports whether err proves that no byte of the request was written:
// it came from resolving a host, or from making a connection to it or its proxy.
//
// It is the outermost error that counts, and all of a join: a read or a write
// may fail because of a dial further down, as where one connection is carried by
// another. The error of an http.Client, a *url.Error, proves nothing, since the
// client may have followed a redirect.
func neverSent(err error) bool {
	if isNamed(err, "github.com/quic-go/quic-go/internal/qerr", "HandshakeTimeoutError") {
		return true
	}
	switch e := err.(type) {
	case *url.Error:
		return false
	case *net.DNSError:
		return true
	case *net.OpError:
		return e.Op == "dial" || e.Op == "proxyconnect" || e.Op == "socks connect"
	case interface{ Unwrap() error }:
		return e.Unwrap() != nil && neverSent(e.Unwrap())
	case interface{ Unwrap() []error }:
		return len(e.Unwrap()) > 0 && !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return err == nil || !neverSent(err) })
	}
	return err.Error() == tlsHandshakeTimeout
}

// resendable reports whether net/http may have sent req before, by itself: it
// goes by the key, and returns the last error only. Where it goes by the method,
// nothing depends on it, for those methods are safe.
func resendable(req *http.Request) bool {
	return req != nil && !safeMethod(req.Method) && keyedForNetHTTP(req.Header)
}

// streamRefused reports whether err says that the server refused the stream
// without having processed the request, and nothing else. As above, an
// http.Client may have followed a redirect.
func streamRefused(err error) bool {
	if refusedElsewhere(err) {
		return true
	}
	switch e := err.(type) {
	case *url.Error:
		return false
	case interface{ Unwrap() []error }:
		return false
	case interface{ Unwrap() error }:
		return e.Unwrap() != nil && streamRefused(e.Unwrap())
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
// errors.As convert it to any struct of the same fields, so that nobody needs
// to import golang.org/x/net/http2 to read it.
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
// of net/http's HTTP/2. They can't be imported here, since whoever does not use
// them should not have to have them, so they are told by the names of their types
// and fields. Of one that is not as it is expected nothing is believed.
func refusedElsewhere(err error) bool {
	switch {
	case isNamed(err, "golang.org/x/net/http2", "StreamError"):
		return hasCode(err, "Code", refusedStream)
	case isNamed(err, "github.com/quic-go/quic-go/http3", "Error"):
		// It is used for the end of a connection too, and for what this side says.
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

// field is a field of the struct that err is, or points to, if there is one.
func field(err error, name string) (f reflect.Value) {
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
		f = v.FieldByName(name)
	}
	return f
}

// keyedForNetHTTP goes by the entry's presence alone, as net/http does.
func keyedForNetHTTP(h http.Header) bool {
	_, key := h["Idempotency-Key"]
	_, xKey := h["X-Idempotency-Key"]
	return key || xKey
}
