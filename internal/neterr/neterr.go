// Package neterr interprets the errors of net/http, of the packages below it, and of modules
// that replace net/http. It serves a client that may send a request again.
package neterr

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
)

// NeverSent reports whether err proves that no byte of the request was written, because the
// host was not resolved, no connection to the host or its proxy was made, or the host's
// certificate was not accepted.
//
// The outermost *net.OpError decides: a read or a write may fail because of a nested dial, if
// one connection is carried by another. Every part of a join must be such an error. A
// *url.Error, the error of an http.Client, proves nothing, since the client may have followed
// a redirect.
func NeverSent(err error) bool {
	if isNamed(err, "github.com/quic-go/quic-go/internal/qerr", "HandshakeTimeoutError") {
		return true
	}
	switch e := err.(type) {
	case *url.Error:
		return false
	case *net.DNSError, *tls.CertificateVerificationError:
		return true
	case *net.OpError:
		return e.Op == "dial" || e.Op == "proxyconnect" || e.Op == "socks connect"
	case interface{ Unwrap() error }:
		return e.Unwrap() != nil && NeverSent(e.Unwrap())
	case interface{ Unwrap() []error }:
		sent := func(err error) bool { return err == nil || !NeverSent(err) }
		return len(e.Unwrap()) > 0 && !slices.ContainsFunc(e.Unwrap(), sent)
	}
	return err.Error() == tlsHandshakeTimeout
}

// HostNotFound reports whether the host does not exist.
func HostNotFound(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// Untrusted reports whether one side refused the other's identity or terms in
// the TLS handshake.
func Untrusted(err error) bool {
	return is[*tls.CertificateVerificationError](err) ||
		refusedByAlert(err) ||
		is[*tls.ECHRejectionError](err) ||
		is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) ||
		is[x509.CertificateInvalidError](err) ||
		is[x509.ConstraintViolationError](err) ||
		is[x509.InsecureAlgorithmError](err) ||
		is[x509.UnhandledCriticalExtension](err) ||
		is[x509.SystemRootsError](err)
}

// refusedByAlert reports whether the server or a proxy sent a TLS alert that refuses this side. Some
// alerts refuse nothing, because they say that the bytes of the connection made no sense.
func refusedByAlert(err error) bool {
	if alert, ok := errors.AsType[tls.AlertError](err); ok { // over QUIC
		return !aboutConnection(alert)
	}
	for op, ok := errors.AsType[*net.OpError](err); ok; op, ok = errors.AsType[*net.OpError](op.Err) {
		if op.Op == "remote error" { // over TCP
			// crypto/tls does not export the type, which is a uint8.
			alert := reflect.ValueOf(op.Err)
			return alert.Kind() != reflect.Uint8 || !aboutConnection(tls.AlertError(alert.Uint()))
		}
	}
	return false
}

// aboutConnection reports whether the alert says that the connection broke (RFC 8446, section 6, and
// RFC 5246, section 7.2). An example is a bit that flipped on the way. Another connection is
// likely to work.
func aboutConnection(alert tls.AlertError) bool {
	switch alert {
	case 10, // unexpected_message
		20, // bad_record_mac
		21, // decryption_failed
		22, // record_overflow
		50, // decode_error
		80, // internal_error
		90: // user_canceled
		return true
	}
	return false
}

// WrongProtocol reports whether the server answered in a protocol other than the requested one. The
// answer of a server that does not speak HTTP at all cannot be distinguished from the rest of an earlier answer.
func WrongProtocol(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || is[tls.RecordHeaderError](err) || notHTTP(err.Error())
}

// Named returns err as an http.Client names it. If a server has answered a TLS handshake in HTTP,
// the error is http.ErrSchemeMismatch. A client sees only a bare tls.RecordHeaderError as such,
// and so finds none in the error of a RoundTripper that wraps it.
func Named(err error) error {
	if record, ok := err.(tls.RecordHeaderError); ok && string(record.RecordHeader[:]) == "HTTP/" {
		return schemeMismatch{record}
	}
	return err
}

// schemeMismatch is http.ErrSchemeMismatch, and still the error of crypto/tls.
type schemeMismatch struct{ record tls.RecordHeaderError }

func (schemeMismatch) Error() string { return http.ErrSchemeMismatch.Error() }

func (e schemeMismatch) Unwrap() []error { return []error{http.ErrSchemeMismatch, e.record} }

// InvalidRequest reports whether the request itself cannot be sent. The reason is its URL, a
// header, its address, or a body that does not match its ContentLength.
func InvalidRequest(err error) bool {
	return is[*net.AddrError](err) || is[*net.ParseError](err) || is[net.UnknownNetworkError](err) ||
		is[url.EscapeError](err) || is[url.InvalidHostError](err) || notARequest(err.Error())
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
