// Package httperr makes errors as net/http and the packages below it make them.
package httperr

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"reflect"
	"syscall"
)

var (
	// DialRefused is a connection that could not be made because nobody listens.
	DialRefused = Dial(syscall.ECONNREFUSED)

	// SOCKSRefused is a connection that a SOCKS proxy could not make.
	SOCKSRefused = &net.OpError{Op: "socks connect", Net: "tcp", Err: errors.New("host unreachable")}

	// TLSAlert is a handshake that the peer has ended.
	TLSAlert = &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}

	// WrongHost is a certificate of another host.
	WrongHost = x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}
)

// Dial is a connection that could not be made because of err.
func Dial(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// Untrusted is a certificate that was not accepted because of err.
func Untrusted(err error) error { return &tls.CertificateVerificationError{Err: err} }

// HTTP1 is a connection over HTTP/1 that ended with err.
func HTTP1(err error) error {
	return fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
}

// HTTP2 is like net/http's own error of a stream. That type is not exported, but it converts
// itself to any struct with the same fields.
type HTTP2 struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e HTTP2) Error() string {
	return fmt.Sprintf("stream error: stream ID %d; code %d", e.StreamID, e.Code)
}

func (e HTTP2) As(target any) bool {
	dst, src := reflect.ValueOf(target).Elem(), reflect.ValueOf(e)
	if dst.Kind() != reflect.Struct || !src.CanConvert(dst.Type()) {
		return false
	}
	dst.Set(src.Convert(dst.Type()))
	return true
}
