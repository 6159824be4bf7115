package retryhttp

import (
	"errors"
	"net/http"

	"github.com/retryhttp/retryhttp/internal/detour"
)

// Base is the bottom of a chain of RoundTrippers. It is an http.Transport whose retries and hedges
// take another connection. It is made by NewBase.
//
// A balancer of connections, such as a Kubernetes Service or a network load balancer, chooses a
// replica once for a connection. So an attempt on the same connection reaches the same replica,
// even if this replica is broken. While attempts to a host fail, a Base opens connections of its own
// to the host, called detours, beside the pool of the http.Transport. A retry or a hedge takes a
// detour that no earlier attempt of its request has taken, if one is there or may be opened. A retry
// of a 429 may stay. First attempts leave the pool when clearly more of them succeed on detours. They
// return when the pool is well again, or when nothing has failed for a minute and a half.
//
// An attempt has failed in this sense if it ended in an error, in a deadline, or with status 500, 502,
// 503 or 504, or if a hedge has superseded it. So has an answer that took 10 ms more than
// four times the mean of the detours. A failed dial is no such failure, nor is an attempt that the
// caller canceled, or a response with status 429.
//
// Without failures and hedges, a Base opens no detour. In trouble, it opens up to three for a host, and
// one for a dozen successes on detours. It opens up to two more each second while more than three in
// four attempts on the pool fail. While fewer fail, it opens one a minute until a detour serves well.
//
// The limits of the http.Transport apply: if DisableKeepAlives or MaxConnsPerHost is set, or
// MaxIdleConnsPerHost is negative, there are no detours. An http.Transport that sends http or https
// requests through another RoundTripper, by its method RegisterProtocol, needs a wrapper that hides it
// from New.
type Base struct {
	dispatcher *detour.Dispatcher
}

// NewBase returns a Base that sends requests through t. Detours have the dial functions, the proxy,
// the TLS configuration and the protocols of t, which must not be changed afterwards. A nil t is like
// http.DefaultTransport, with connections of its own. It keeps up to 100 idle connections for each
// host, and sends HTTP/2 pings.
func NewBase(t *http.Transport) *Base {
	if t == nil {
		t = detour.Pooled()
	}
	return &Base{detour.New(t, ErrSuperseded)}
}

var errBaseNotMade = Permanent(errors.New("the retryhttp.Base was not made by NewBase"))

// RoundTrip sends req once, over a connection of the pool or over a detour.
func (b *Base) RoundTrip(req *http.Request) (*http.Response, error) {
	if b == nil || b.dispatcher == nil {
		closeBody(req)
		return nil, errBaseNotMade
	}
	return b.dispatcher.RoundTrip(req)
}

// CloseIdleConnections closes the connections that are idle, in the pool and beside it.
func (b *Base) CloseIdleConnections() {
	if b != nil && b.dispatcher != nil {
		b.dispatcher.CloseIdleConnections()
	}
}
