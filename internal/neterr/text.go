package neterr

import (
	"slices"
	"strings"
)

// net/http makes the following errors without a type or a sentinel. Only this file classifies
// errors by their text. If a release of Go changes a text, the error becomes Retryable, which
// costs some attempts and does no harm. A test checks the texts against net/http itself.
const tlsHandshakeTimeout = "net/http: TLS handshake timeout"

var invalidRequestTexts = [...]string{
	"unsupported protocol scheme",
	"http2: unsupported scheme",
	"http2: unencrypted HTTP/2 not enabled",
	"nil Request.URL",
	"nil Request.Header",
	"no Host in request URL",
	"http: Request.Write on Request with no Host or URL set",
	"net/http: invalid ", // header, trailer, method
	"http2: invalid ",    // connection-specific headers
	"http3: invalid http header",
	"http3: invalid method",
	"http: invalid Host header",
	"invalid Trailer key",
	"invalid request :path",
	"net/http: can't write control character in Request.URL",
	"idna: ",               // an invalid host name
	"http: ContentLength=", // a body that is longer or shorter
	"http: Request.ContentLength=",
	"http2: request body larger than specified content length",
	"tls: no supported versions satisfy MinVersion and MaxVersion", // of this side's configuration
}

func notARequest(text string) bool {
	return slices.ContainsFunc(invalidRequestTexts[:], func(invalid string) bool { return strings.Contains(text, invalid) })
}

// CanceledBelow reports whether the request was canceled by Request.Cancel or by the CancelRequest of
// an http.Transport. Both are deprecated. The text ends there: an http.Client below adds to it when
// its own Timeout was the reason.
func CanceledBelow(err error) bool {
	text := err.Error()
	return strings.HasSuffix(text, "net/http: request canceled") ||
		strings.HasSuffix(text, "net/http: request canceled while waiting for connection")
}

// refusedWithoutGetBody reports whether the server refused the stream, or announced that it
// had not processed the request. Given a GetBody, net/http's HTTP/2 would have resent the
// request itself, as its pool does for an http.ClientConn. net/http also resends after a PROTOCOL_ERROR, which
// proves nothing.
func refusedWithoutGetBody(text string) bool {
	const goneAway = "http2: Transport received Server's graceful shutdown GOAWAY"
	cause, found := strings.CutPrefix(text, "http2: Transport: cannot retry err [")
	return text == goneAway ||
		found && (strings.Contains(cause, "; REFUSED_STREAM") || strings.HasPrefix(cause, goneAway+"] "))
}

// http2BodyClosed is the text of a Read of a body that was closed.
const http2BodyClosed = "http2: response body closed"

// connectionLost reports whether a connection has stopped answering its pings, or was closed on this
// side.
func connectionLost(text string) bool {
	return text == "http2: client connection lost" ||
		text == "http2: client connection force closed via ClientConn.Close"
}

// neverSent reports whether an http.ClientConn refused to send a request. An example is an upgrade, which
// needs HTTP/1: the pool then dials a connection for it.
func neverSent(text string) bool {
	return text == "http2: client conn not usable" || strings.HasPrefix(text, "http: invalid ") ||
		strings.HasPrefix(text, "http2: invalid Upgrade request header: ")
}

// NoClientConn reports whether an http.Transport has an HTTP/2 that makes no http.ClientConn, such as that of
// an older golang.org/x/net.
func NoClientConn(err error) bool {
	return strings.HasPrefix(err.Error(), "http: HTTP/2 implementation does not support NewClientConn")
}

// notHTTP reports whether the answer is not HTTP/1, or has a length that is no number. A status line
// that cannot be read proves nothing: the rest of an earlier answer may have come in its place, as after
// a HEAD that was answered with a body. Another connection has no such rest.
func notHTTP(text string) bool {
	return strings.Contains(text, "bad Content-Length ") ||
		strings.Contains(text, "the frame header looked like an HTTP/1.1 header")
}
