package retrytest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"syscall"

	"github.com/retryhttp/retryhttp/internal/redact"
)

// failure is an error in place of an answer.
type failure struct {
	name   string
	unread bool // the request does not reach the server
	wire   bool // a Handler can do it
	err    func(*http.Request) error
}

// Fail is any error in place of an answer, after the request has been read. It is for a [Transport] alone.
func Fail(err error) Step {
	if err == nil {
		s := Step{fail: &failure{name: "no error"}}
		s.mistake("Fail: the error is nil")
		return s
	}
	name := strings.Join(strings.Fields(redact.Error(err)), " ") // on one line
	return failing(failure{name: name, err: func(*http.Request) error { return err }})
}

// Refused is a connection that nobody accepts (ECONNREFUSED). It is for a [Transport] alone.
func Refused() Step {
	return failing(failure{name: "connection refused", unread: true, err: func(*http.Request) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: address(80), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}})
}

// Reset is a connection that is reset (ECONNRESET) after the request has been read. Over HTTP/2, a [Handler]
// resets the stream.
func Reset() Step {
	return failing(failure{name: "connection reset", wire: true, err: func(*http.Request) error {
		return &net.OpError{
			Op: "read", Net: "tcp", Source: address(49152), Addr: address(80),
			Err: os.NewSyscallError("read", syscall.ECONNRESET),
		}
	}})
}

// NoSuchHost is a host name that does not exist. It is for a [Transport] alone.
func NoSuchHost() Step {
	return failing(failure{name: "no such host", unread: true, err: func(req *http.Request) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
			Err: "no such host", Name: req.URL.Hostname(), IsNotFound: true,
		}}
	}})
}

// BadCertificate is a server whose certificate is signed by nobody who is known. It is for a [Transport]
// alone.
func BadCertificate() Step {
	return failing(failure{name: "bad certificate", unread: true, err: func(*http.Request) error {
		cert := new(x509.Certificate)
		return &tls.CertificateVerificationError{
			UnverifiedCertificates: []*x509.Certificate{cert}, Err: x509.UnknownAuthorityError{Cert: cert},
		}
	}})
}

// Timeout is a connection that could not be made in time. It is for a [Transport] alone, and does not wait:
// see [Step.Slow], and [Hang] for a server that does not answer.
func Timeout() Step {
	return failing(failure{name: "dial timeout", unread: true, err: func(*http.Request) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: address(80), Err: timeoutError{}}
	}})
}

// RefusedStream is an HTTP/2 server that has refused the request, and not processed any of it
// (REFUSED_STREAM, RFC 9113, section 8.7). It is for a [Transport] alone.
func RefusedStream() Step {
	return failing(failure{name: "REFUSED_STREAM", err: func(*http.Request) error {
		return streamError{StreamID: 1, Code: 7, Cause: errors.New("received from peer")}
	}})
}

func failing(f failure) Step { return Step{fail: &f} }

// address is for a client that reads the address of an error. No host has it (RFC 5737).
func address(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: port} }

// timeoutError is like net's own error of a connection that takes too long. That type is not exported.
type timeoutError struct{}

func (timeoutError) Error() string     { return "i/o timeout" }
func (timeoutError) Timeout() bool     { return true }
func (timeoutError) Temporary() bool   { return true }
func (timeoutError) Is(err error) bool { return err == context.DeadlineExceeded }

// streamError is like net/http's own error of a stream. That type is not exported, but converts itself to
// any struct with fields of the same names, whose types its own convert to, and has this text.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string {
	return fmt.Sprintf("stream error: stream ID %d; REFUSED_STREAM; %v", e.StreamID, e.Cause)
}

func (e streamError) As(target any) bool {
	to, from := reflect.ValueOf(target).Elem(), reflect.ValueOf(e)
	if to.Kind() != reflect.Struct || to.NumField() != from.NumField() {
		return false
	}
	for i := range from.NumField() {
		a, b := from.Type().Field(i), to.Type().Field(i)
		if a.Name != b.Name || !a.Type.ConvertibleTo(b.Type) {
			return false
		}
	}
	for i := range from.NumField() {
		to.Field(i).Set(from.Field(i).Convert(to.Field(i).Type()))
	}
	return true
}
