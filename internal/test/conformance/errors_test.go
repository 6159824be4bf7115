package conformance_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/replay"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
)

func testClassifyVectors(t *testing.T) {
	type classifyCase struct {
		vector
		Status     *int       `json:"status"`
		Error      string     `json:"error"`
		Method     string     `json:"method"`
		Headers    fieldLines `json:"headers"`
		CallerGone bool       `json:"caller_gone"`
		Expect     string     `json:"expect"`
	}
	for _, c := range vectors[classifyCase](t, "classify.json").Cases {
		t.Run(c.Name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.CallerGone {
				cancel()
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host.example/path", nil)
			require.NoError(t, err)
			req.Method, req.Header = c.Method, c.Headers.toSend()
			a := retryhttp.Attempt{Number: 1, Request: req}
			require.NotEqual(t, c.Status == nil, c.Error == "", "a case has a status or an error")
			if c.Status != nil {
				a.Response = &http.Response{StatusCode: *c.Status}
			} else {
				a.Err = errorOfKind(t, c.Error)
			}
			assert.Equal(t, classOfName(t, c.Expect), retryhttp.Classify(a), "%v; %s", a.Err, c.Because)
		})
	}
}

func classOfName(t *testing.T, name string) retryhttp.Class {
	t.Helper()
	switch name {
	case "final":
		return retryhttp.Final
	case "retryable":
		return retryhttp.Retryable
	case "unprocessed":
		return retryhttp.Unprocessed
	}
	require.Fail(t, "no such class", name)
	return 0
}

func errorOfKind(t *testing.T, kind string) error {
	t.Helper()
	err, ok := errorKinds[kind]
	require.True(t, ok, "no such kind of error: %q", kind)
	return err
}

var errUnknown = errors.New("connection broken")

var connectionReset = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// errorKinds maps each kind of error in the vectors to the error that net/http
// makes.
var errorKinds = map[string]error{
	"request-canceled":          context.Canceled,
	"request-deadline-exceeded": context.DeadlineExceeded,

	"marked-permanent":                    retryhttp.Permanent(errUnknown),
	"marked-permanent-connection-refused": retryhttp.Permanent(httperr.DialRefused),

	"tls-certificate-unknown-authority":            httperr.Untrusted(x509.UnknownAuthorityError{}),
	"tls-certificate-host-mismatch":                httperr.Untrusted(httperr.WrongHost),
	"tls-certificate-expired":                      httperr.Untrusted(x509.CertificateInvalidError{Reason: x509.Expired}),
	"tls-certificate-not-permitted-by-constraints": httperr.Untrusted(x509.ConstraintViolationError{}),
	"tls-certificate-weak-signature":               httperr.Untrusted(x509.InsecureAlgorithmError(x509.MD5WithRSA)),
	"tls-certificate-unknown-critical-extension":   httperr.Untrusted(x509.UnhandledCriticalExtension{}),
	"tls-certificate-rejected-by-verification":     httperr.Untrusted(errUnknown),
	"tls-no-trusted-roots":                         x509.SystemRootsError{},
	"tls-encrypted-client-hello-rejected":          &tls.ECHRejectionError{},

	"tls-alert-received":            httperr.TLSAlert,
	"tls-alert-received-over-quic":  fmt.Errorf("crypto error: %w", tls.AlertError(42)),
	"tls-alert-received-from-proxy": &net.OpError{Op: "proxyconnect", Net: "tcp", Err: httperr.TLSAlert},
	"tls-peer-speaks-no-tls":        tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"},
	"tls-peer-speaks-plain-http":    http.ErrSchemeMismatch,
	"tls-handshake-timeout":         errors.New("net/http: TLS handshake timeout"),
	"tls-record-corrupted":          &net.OpError{Op: "local error", Err: errors.New("tls: bad record MAC")},

	"answer-of-another-protocol": httperr.HTTP1(errors.New(`malformed HTTP response "SSH-2.0-x"`)),
	"http-version-unreadable":    httperr.HTTP1(errors.New(`malformed HTTP version "HTTP/x"`)),
	"status-code-unreadable":     httperr.HTTP1(errors.New(`malformed HTTP status code "abc"`)),
	"http1-answer-to-http2": errors.New("http2: failed reading the frame payload: unexpected EOF, " +
		"note that the frame header looked like an HTTP/1.1 header"),
	"connection-closed-in-status-line":     httperr.HTTP1(errors.New(`malformed HTTP response "HTTP/1"`)),
	"connection-closed-in-response-header": httperr.HTTP1(io.ErrUnexpectedEOF),
	"connection-closed-before-response":    io.EOF,
	"connection-reset":                     connectionReset,
	"connection-broken-while-writing":      &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE},
	"response-header-timeout":              errors.New("net/http: timeout awaiting response headers"),
	"attempt-timeout":                      context.DeadlineExceeded,
	"cancellation-not-the-callers":         context.Canceled,
	"unknown":                              errUnknown,

	"dns-not-found":      httperr.Dial(&net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}),
	"dns-server-failure": httperr.Dial(&net.DNSError{Err: "server misbehaving", Name: "h", IsTemporary: true}),
	"dns-timeout":        httperr.Dial(&net.DNSError{Err: "i/o timeout", Name: "h", IsTimeout: true}),

	"unsupported-scheme":      errors.New(`unsupported protocol scheme "gopher"`),
	"invalid-method":          errors.New(`net/http: invalid method "GE T"`),
	"invalid-header-value":    errors.New(`net/http: invalid header field value for "A"`),
	"no-host":                 errors.New("http: no Host in request URL"),
	"invalid-host":            errors.New("http: invalid Host header"),
	"invalid-port":            httperr.Dial(&net.AddrError{Err: "invalid port", Addr: "h:99999"}),
	"invalid-url-escape":      &url.Error{Op: "parse", Err: url.EscapeError("%zz")},
	"request-body-unreadable": fmt.Errorf("write: %w", &replay.ReadError{Err: errUnknown}),

	"connection-refused":                  httperr.DialRefused,
	"connection-refused-at-every-address": errors.Join(httperr.DialRefused, httperr.Dial(syscall.EHOSTUNREACH)),
	"host-unreachable":                    httperr.Dial(syscall.EHOSTUNREACH),
	"network-unreachable":                 httperr.Dial(syscall.ENETUNREACH),
	"connect-timeout":                     httperr.Dial(os.ErrDeadlineExceeded),
	"proxy-connection-refused":            &net.OpError{Op: "proxyconnect", Net: "tcp", Err: httperr.DialRefused},
	"socks-proxy-refused":                 httperr.SOCKSRefused,

	"connection-refused-after-redirect":          &url.Error{Op: "Get", URL: "http://h/", Err: httperr.DialRefused},
	"connection-reset-then-refused-elsewhere":    errors.Join(connectionReset, httperr.DialRefused),
	"connection-refused-then-reset-elsewhere":    errors.Join(httperr.DialRefused, connectionReset),
	"read-failed-for-a-connection-refused-below": &net.OpError{Op: "read", Net: "tunnel", Err: httperr.DialRefused},
	"write-failed-for-a-name-below": &net.OpError{
		Op: "write", Net: "tunnel", Err: &net.DNSError{Err: "server misbehaving", Name: "h"},
	},

	"http2-refused-stream":                httperr.HTTP2{StreamID: 1, Code: 7},
	"http2-refused-stream-after-redirect": &url.Error{Op: "Get", URL: "http://h/", Err: httperr.HTTP2{StreamID: 1, Code: 7}},
	"http2-internal-error":                httperr.HTTP2{StreamID: 1, Code: 2},
	"http2-cancel":                        httperr.HTTP2{StreamID: 1, Code: 8},
	"http2-enhance-your-calm":             httperr.HTTP2{StreamID: 1, Code: 11},
}
