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

// isStreamError reports whether err itself has streamError's fields. The As method of another
// error may forward to one of several errors that it holds.
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

// streamError has the fields of net/http's own HTTP/2 stream error. That error's As method
// converts it to any struct with these fields, so reading it needs no import of
// golang.org/x/net/http2.
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

// refusedElsewhere recognizes the errors of modules that replace net/http's HTTP/2. It
// compares the names of types and fields, so that users need not depend on these modules. An
// error with other fields does not match: a miss only costs a retry.
func refusedElsewhere(err error) bool {
	switch {
	case isNamed(err, "golang.org/x/net/http2", "StreamError"):
		return hasCode(err, "Code", refusedStream)
	case isNamed(err, "github.com/quic-go/quic-go/http3", "Error"):
		// This type also reports the end of a connection, and errors of this side.
		remote := field(err, "Remote")
		return isNamed(errors.Unwrap(err), "github.com/quic-go/quic-go", "StreamError") &&
			remote.Kind() == reflect.Bool && remote.Bool() && hasCode(err, "ErrorCode", requestRejected)
	}
	return false
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
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
		f = v.FieldByName(name)
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
