package neterr

import (
	"errors"
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
	case *url.Error, interface{ Unwrap() []error }:
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
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() != reflect.Struct {
		return false
	}
	if isNamed(err, "github.com/quic-go/quic-go/http3", "Error") {
		// This type also reports the end of a connection, and errors of this side.
		remote := v.FieldByName("Remote")
		return isNamed(errors.Unwrap(err), "github.com/quic-go/quic-go", "StreamError") &&
			remote.Kind() == reflect.Bool && remote.Bool() && isCode(v.FieldByName("ErrorCode"), requestRejected)
	}
	// Several modules have a copy of this HTTP/2, and of its stream error.
	t := v.Type()
	return t.NumField() == 3 && t.Field(0).Name == "StreamID" && t.Field(1).Name == "Code" && t.Field(2).Name == "Cause" &&
		v.Field(0).Kind() == reflect.Uint32 && v.Field(2).Kind() == reflect.Interface && isCode(v.Field(1), refusedStream)
}

func isCode(v reflect.Value, code uint64) bool { return v.CanUint() && v.Uint() == code }

// isNamed reports whether err's type, or the type that err points to, is declared as name in
// package pkg.
func isNamed(err error, pkg, name string) bool {
	v := reflect.Indirect(reflect.ValueOf(err))
	return v.IsValid() && v.Type().Name() == name && v.Type().PkgPath() == pkg
}

// Bare returns the error that the pool of an http.Transport returns for an error of an http.ClientConn.
// The pool takes off what it needs to decide whether to send the request again.
func Bare(err error) error {
	for isNamed(err, "net/http", "nothingWrittenError") || isNamed(err, "net/http", "transportReadFromServerError") {
		err = errors.Unwrap(err)
	}
	return err
}

// Unprocessed reports whether err says that a request was not processed, and that it would have been
// sent again, whatever its method, if it had been sent through the pool of an http.Transport. An
// http.ClientConn sends nothing again.
func Unprocessed(err error) bool {
	return isNamed(err, "net/http", "nothingWrittenError") || StreamRefused(err) || neverSent(err.Error())
}
