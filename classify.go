package retryhttp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/retryhttp/retryhttp/internal/replay"
)

// Attempt describes one attempt and how it went.
type Attempt struct {
	// Number is 1 for the first attempt of a request. It is 0 in [Policy.OnDone] if
	// no attempt was made, because the context had ended.
	Number int
	// Request is the request as it was sent, with the headers that were added
	// to it, but with the caller's context, in which [AttemptNumber] finds
	// Number; beneath another Transport it finds the number counted on from
	// there. It must not be changed.
	Request *http.Request
	// Response is nil if Err is not. [Policy.OnRetry] may read from its body;
	// [Policy.Classify] must not, nor [Policy.OnDone], for that body is the
	// caller's. None of them may close it.
	Response *http.Response
	// Err is nil if Response is not.
	Err error
	// Elapsed is how long the attempt took, until the response header or the
	// error.
	Elapsed time.Duration
	// Wait is how long the Transport will wait before the next attempt. It is
	// zero in [Policy.Classify].
	Wait time.Duration
}

// Class says what one attempt's result means for the next. It states a fact
// about the attempt; whether there is another is up to the Transport, which
// also looks at the method, the body, the time left and the budget. A value
// that is none of the constants counts as Final.
type Class int

const (
	// Final means that the result stands: it is a success, or a failure that
	// trying again cannot mend.
	Final Class = iota
	// Retryable means that another attempt may succeed.
	Retryable
	// Unprocessed means that another attempt may succeed, and that the server
	// provably did not process this one: repeating it is safe whatever the
	// method.
	Unprocessed
)

// String returns "final", "retryable" or "unprocessed", and a number for any other
// value.
func (c Class) String() string {
	switch c {
	case Final:
		return "final"
	case Retryable:
		return "retryable"
	case Unprocessed:
		return "unprocessed"
	}
	return "Class(" + strconv.Itoa(int(c)) + ")"
}

// Classify is the default for [Policy.Classify], and the function to call from
// your own for the cases that you leave alone.
//
// A response with status 408, 429 or 5xx is Retryable, and every other one is
// Final.
//
// An error is Final if another attempt would meet it again: the request's own
// context has ended, it was marked by [Permanent], a certificate or the TLS
// verification failed, the host does not exist, the scheme is not supported, a
// header or the URL is invalid, the body does not fit the ContentLength, the answer
// is of another protocol than HTTP, or a request body that has no GetBody could not
// be read. An error of your own that
// means such a thing, from a tls.Config's VerifyPeerCertificate for example, is
// best marked with Permanent.
//
// An error is Unprocessed if it came before a byte was written, from resolving
// the host, dialing it or its proxy, or waiting for the TLS handshake; and if the
// server refused the stream, with REFUSED_STREAM over HTTP/2 (RFC 9113, section
// 8.7) or H3_REQUEST_REJECTED over HTTP/3 (RFC 9114, section 4.1.1). The latter
// two are recognized from net/http, golang.org/x/net/http2 and
// github.com/quic-go/quic-go/http3.
//
// Where that proves nothing the error is merely Retryable. A failure to connect is
// so for a request that is not safe and has an idempotency key: net/http may have
// sent it before, by itself, on a connection that broke. A host that does not
// answer over QUIC is so too, since a connection that dies later has the same
// error. What is not to be seen here is that net/http's HTTP/2 also resends, whatever
// the method, when the server ends a stream with PROTOCOL_ERROR.
//
// Every other error is Retryable: connections that break or are refused by a
// middlebox, responses that end in the header, timeouts.
func Classify(a Attempt) Class {
	switch {
	case a.Err != nil:
		return classifyError(a.Request, a.Err)
	case a.Response != nil:
		return classifyStatus(a.Response.StatusCode)
	}
	return Final
}

func classifyStatus(status int) Class {
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return Retryable
	case status >= 500 && status <= 599:
		return Retryable
	}
	return Final
}

func classifyError(req *http.Request, err error) Class {
	switch {
	case req != nil && ended(req):
		return Final // the caller has gone
	case is[*permanentError](err):
		return Final
	case is[*replay.ReadError](err):
		return Final // the body can't be read, and there is no GetBody to make a better one
	case is[*replay.BodyError](err):
		return Retryable // GetBody may make a better one
	case untrusted(err), wrongProtocol(err), invalidRequest(err):
		return Final
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return Final
	}
	if streamRefused(err) || neverSent(err) && !resendable(req) {
		return Unprocessed
	}
	return Retryable // conservatively: the server may have seen it
}

// untrusted reports whether one side refused the other's identity or terms in
// the TLS handshake.
func untrusted(err error) bool {
	return is[*tls.CertificateVerificationError](err) ||
		is[tls.AlertError](err) || // an alert over QUIC
		alerted(err) || // an alert over TCP, whose type crypto/tls keeps to itself
		is[*tls.ECHRejectionError](err) ||
		is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) ||
		is[x509.CertificateInvalidError](err) ||
		is[x509.ConstraintViolationError](err) ||
		is[x509.InsecureAlgorithmError](err) ||
		is[x509.UnhandledCriticalExtension](err) ||
		is[x509.SystemRootsError](err)
}

func wrongProtocol(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || is[tls.RecordHeaderError](err) || notHTTP(err.Error())
}

func invalidRequest(err error) bool {
	return is[*net.AddrError](err) || is[*net.ParseError](err) || is[net.UnknownNetworkError](err) ||
		is[url.EscapeError](err) || is[url.InvalidHostError](err) ||
		textContains(err, notARequest[:])
}

// alerted reports whether the other side sent a TLS alert, here or at a proxy.
func alerted(err error) bool {
	for op, ok := errors.AsType[*net.OpError](err); ok; op, ok = errors.AsType[*net.OpError](op.Err) {
		if op.Op == "remote error" {
			return true
		}
	}
	return false
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// The following are the errors that net/http makes without a type or a
// sentinel. This is the one place where an error's text is looked at. Should a
// release of Go word one differently, its error turns Retryable, which costs
// some attempts and does no harm; a test holds them against net/http itself.
const tlsHandshakeTimeout = "net/http: TLS handshake timeout"

var notARequest = [...]string{
	"unsupported protocol scheme",
	"http2: unsupported scheme",
	"nil Request.URL",
	"nil Request.Header",
	"no Host in request URL",
	"http: Request.Write on Request with no Host or URL set",
	"net/http: invalid ", // header, trailer, method
	"http2: invalid ",    // the headers that belong to a connection
	"http3: invalid http header",
	"http3: invalid method",
	"http: invalid Host header",
	"invalid Trailer key",
	"invalid request :path",
	"net/http: can't write control character in Request.URL",
	"idna: ",               // a host name that is none
	"http: ContentLength=", // and the body is longer or shorter
	"http: Request.ContentLength=",
	"http2: request body larger than specified content length",
}

// refusedWithoutGetBody reports whether text says that net/http's HTTP/2 would have sent the
// request again by itself, had it a GetBody, because the server refused the stream
// or announced that it had not processed it. net/http does so after a
// PROTOCOL_ERROR, too, which proves nothing.
func refusedWithoutGetBody(text string) bool {
	cause, found := strings.CutPrefix(text, "http2: Transport: cannot retry err [")
	return found &&
		(strings.HasPrefix(cause, "stream error: ") && strings.Contains(cause, "; REFUSED_STREAM") ||
			strings.HasPrefix(cause, "http2: Transport received Server's graceful shutdown GOAWAY] "))
}

// notHTTP reports whether text tells of an answer that is not HTTP. A status
// line that was cut short, by a connection that broke, is not one of these.
func notHTTP(text string) bool {
	if line, ok := quotedAfter(text, "malformed HTTP response "); ok {
		return !strings.HasPrefix(line, "HTTP/") && !strings.HasPrefix("HTTP/", line)
	}
	if code, ok := quotedAfter(text, "malformed HTTP status code "); ok {
		return len(code) >= 3 || strings.Trim(code, "0123456789") != ""
	}
	return strings.Contains(text, "malformed HTTP version ") ||
		strings.Contains(text, "the frame header looked like an HTTP/1.1 header")
}

// quotedAfter returns the string that is quoted in text behind label.
func quotedAfter(text, label string) (string, bool) {
	_, rest, ok := strings.Cut(text, label)
	if !ok {
		return "", false
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return "", false
	}
	unquoted, err := strconv.Unquote(quoted)
	return unquoted, err == nil
}

func textContains(err error, fragments []string) bool {
	text := err.Error()
	for _, f := range fragments {
		if strings.Contains(text, f) {
			return true
		}
	}
	return false
}

// Permanent marks err as Final for [Classify]: a RoundTripper beneath the
// Transport returns it for an error that another attempt would meet again,
// such as that of an open circuit breaker. The result unwraps to err and has
// its text. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }
