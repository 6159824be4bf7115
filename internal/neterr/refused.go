package neterr

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
)

// StreamRefused reports whether err says only that the server refused the stream without
// having processed the request. The codes are REFUSED_STREAM over HTTP/2 and
// H3_REQUEST_REJECTED over HTTP/3. The error of an http.Client proves nothing, as for
// NeverSent. A join proves nothing either.
func StreamRefused(err error) bool {
	if isRefusal(err) {
		return true
	}
	switch e := err.(type) {
	case *url.Error:
		return false
	case interface{ Unwrap() []error }:
		return false
	case interface{ Unwrap() error }:
		return e.Unwrap() != nil && StreamRefused(e.Unwrap())
	}
	return refusedWithoutGetBody(err.Error())
}

const (
	refusedStream   = 7     // REFUSED_STREAM, RFC 9113, section 7
	requestRejected = 0x10b // H3_REQUEST_REJECTED, RFC 9114, section 8.1
)

// isRefusal recognizes the stream errors of net/http, of golang.org/x/net and of quic-go. It compares
// the names of types and fields, so that users need not depend on these modules. An error with other
// fields does not match: a miss only costs a retry.
func isRefusal(err error) bool {
	if isNamed(err, "github.com/quic-go/quic-go/http3", "Error") {
		// This type also reports the end of a connection, and errors of this side.
		remote := field(err, "Remote")
		return isNamed(errors.Unwrap(err), "github.com/quic-go/quic-go", "StreamError") &&
			remote.Kind() == reflect.Bool && remote.Bool() && hasCode(err, "ErrorCode", requestRejected)
	}
	// Several modules have a copy of this HTTP/2, and of its stream error.
	v := reflect.Indirect(reflect.ValueOf(err))
	return v.Kind() == reflect.Struct && v.NumField() == 3 && field(err, "StreamID").Kind() == reflect.Uint32 &&
		field(err, "Cause").Kind() == reflect.Interface && hasCode(err, "Code", refusedStream)
}

// isNamed reports whether err's type, or the type that err points to, is declared as name in
// package pkg.
func isNamed(err error, pkg, name string) bool {
	v := reflect.Indirect(reflect.ValueOf(err))
	return v.IsValid() && v.Type().Name() == name && v.Type().PkgPath() == pkg
}

func hasCode(err error, name string, code uint64) bool {
	f := field(err, name)
	return f.CanUint() && f.Uint() == code
}

// field returns the named field of the struct that err is or points to, if there is one.
func field(err error, name string) (f reflect.Value) {
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() != reflect.Struct {
		return f
	}
	if named, ok := v.Type().FieldByName(name); ok {
		f, _ = v.FieldByIndexErr(named.Index) // which may lead through an embedded nil pointer
	}
	return f
}

// Bare returns the error that the pool of an http.Transport returns for an error of an http.ClientConn.
// The pool takes off what it needs to decide whether to send the request again.
func Bare(err error) error {
	for isNamed(err, "net/http", "nothingWrittenError") || isNamed(err, "net/http", "transportReadFromServerError") {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
	if err.Error() == goneAway {
		return fmt.Errorf("http2: Transport: cannot retry err [%w] after Request.Body was written", err)
	}
	return err
}

// Unprocessed reports whether err says that a request was not processed, and that it would have been
// sent again, whatever its method, if it had been sent through the pool of an http.Transport. An
// http.ClientConn sends nothing again.
func Unprocessed(err error) bool {
	return isNamed(err, "net/http", "nothingWrittenError") || StreamRefused(err) ||
		err.Error() == goneAway || neverSent(err.Error())
}
