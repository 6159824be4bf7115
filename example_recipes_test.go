package retryhttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

// Some servers know whether a retry helps, and say so in a header. "false" ends the retries.
// "true" is not believed here: it says nothing about a request that may have taken effect.
func ExamplePolicy_serverVerdict() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Should-Retry", "false")
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			if a.Response != nil {
				for _, verdict := range []string{"X-Should-Retry", "Stripe-Should-Retry"} {
					if a.Response.Header.Get(verdict) == "false" {
						return retryhttp.Final
					}
				}
			}
			return retryhttp.Classify(a)
		},
	})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "at attempt", retryhttp.OutcomeOf(resp).Attempts)
	// Output: 500 Internal Server Error at attempt 1
}

// bareErrors is above a Transport, for a program that compares errors with io.EOF instead of asking
// errors.Is. The error of a canceled request holds several, and is left as it is.
type bareErrors struct{ *retryhttp.Transport }

func (b bareErrors) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.Transport.RoundTrip(req)
	if e, ok := errors.AsType[*retryhttp.Error](err); ok && e.Stop != retryhttp.StopCanceled {
		err = e.Err
	}
	return resp, err
}

func ExampleError_comparedByIdentity() {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler) // close the connection
	}))
	defer server.Close()

	rt := retryhttp.New(nil, retryhttp.Policy{
		MaxAttempts: 2,
		Backoff:     retryhttp.Constant(time.Millisecond),
		OnDone:      func(_ retryhttp.Attempt, o retryhttp.Outcome) { fmt.Println(o.Attempts, "attempts") },
	})
	for _, transport := range []http.RoundTripper{rt, bareErrors{rt}} {
		_, err := (&http.Client{Transport: transport}).Get(server.URL)
		if uerr, ok := err.(*url.Error); ok {
			fmt.Println(uerr.Err == io.EOF, errors.Is(err, io.EOF))
		}
	}
	// Output:
	// 2 attempts
	// false true
	// 2 attempts
	// true true
}

// numbering is below a Transport. It sends the number of each attempt to the server, whose
// logs then distinguish retries from new requests.
type numbering struct{ base http.RoundTripper }

func (n numbering) RoundTrip(req *http.Request) (*http.Response, error) {
	numbered := req.Clone(req.Context()) // the request belongs to the caller
	numbered.Header.Set("Attempt", strconv.Itoa(retryhttp.AttemptOf(req.Context()).Number))
	return n.base.RoundTrip(numbered)
}

func ExampleAttemptOf_sentToTheServer() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("attempt", r.Header.Get("Attempt"))
		if r.Header.Get("Attempt") == "1" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(numbering{http.DefaultTransport}, retryhttp.Policy{})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	// Output:
	// attempt 1
	// attempt 2
}

// mirrored sends every second attempt of a read to another host. The mirror gets the path and the
// query, but no header except Accept: credentials and cookies belong to the origin.
type mirrored struct {
	base           http.RoundTripper
	origin, mirror string // hosts, with a port if the URL has one
}

func (m mirrored) RoundTrip(req *http.Request) (*http.Response, error) {
	read := req.Method == http.MethodGet || req.Method == http.MethodHead
	if !read || req.URL.Host != m.origin || retryhttp.AttemptOf(req.Context()).Number%2 == 1 {
		return m.base.RoundTrip(req)
	}
	copied := req.Clone(req.Context())
	copied.URL.Host, copied.Host = m.mirror, ""
	copied.Header = http.Header{"Accept": req.Header["Accept"]}
	resp, err := m.base.RoundTrip(copied)
	if err == nil {
		resp.Header.Del("Set-Cookie") // the http.Client would store it for the origin
	}
	return resp, err
}

// The Gate is off, because the failures of the origin say nothing about the mirror. A Retry-After
// of the origin still delays the attempt at the mirror, up to MaxRetryAfter.
func ExampleAttemptOf_mirror() {
	origin := serverAnswering(503)
	defer origin.Close()
	mirror := serverAnswering(200)
	defer mirror.Close()

	base := mirrored{
		base:   http.DefaultTransport,
		origin: strings.TrimPrefix(origin.URL, "http://"),
		mirror: strings.TrimPrefix(mirror.URL, "http://"),
	}
	client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{
		Backoff: retryhttp.Constant(10 * time.Millisecond),
		Gate:    &retryhttp.Gate{Hold: -1},
	})}
	resp, err := client.Get(origin.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "at attempt", retryhttp.OutcomeOf(resp).Attempts)
	// Output: 200 OK at attempt 2
}

var errOpen = errors.New("circuit breaker is open")

// breaker opens after three failures, for good. Use a breaker from a library: it closes again.
type breaker struct {
	base     http.RoundTripper
	failures atomic.Int32
}

func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.failures.Load() >= 3 {
		if req.Body != nil {
			req.Body.Close() // a RoundTripper closes the body, also when it fails
		}
		return nil, retryhttp.Permanent(errOpen)
	}
	resp, err := b.base.RoundTrip(req)
	if err != nil || resp.StatusCode >= 500 {
		b.failures.Add(1)
	}
	return resp, err
}

// A breaker goes below the Transport, so that it sees every attempt. The error of an open
// breaker is Permanent: a retry would meet the same breaker.
func ExamplePermanent_circuitBreaker() {
	server := serverAnswering(503)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(&breaker{base: http.DefaultTransport}, retryhttp.Policy{
		Backoff: retryhttp.Constant(10 * time.Millisecond),
	})}
	resp, err := client.Get(server.URL)
	if err == nil {
		resp.Body.Close()
		return
	}
	var failure *retryhttp.Error
	if errors.Is(err, errOpen) && errors.As(err, &failure) {
		fmt.Println("open at attempt", failure.Attempts)
	}
	// Output: open at attempt 4
}

// readsAndWrites has a policy for GET and HEAD, and another one for all other methods.
type readsAndWrites struct{ reads, writes *retryhttp.Transport }

func (t readsAndWrites) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Method {
	case http.MethodGet, http.MethodHead, "": // "" is GET
		return t.reads.RoundTrip(req)
	}
	return t.writes.RoundTrip(req)
}

func (t readsAndWrites) CloseIdleConnections() {
	t.reads.CloseIdleConnections()
	t.writes.CloseIdleConnections()
}

// Two Transports share connections, a budget and a Gate. They differ in their policies.
func ExampleNew_readsAndWrites() {
	server := serverAnswering(503)
	defer server.Close()

	shared := retryhttp.Policy{Budget: new(retryhttp.TokenBucket), Gate: new(retryhttp.Gate)}
	reads, writes := shared, shared
	reads.AttemptTimeout = 500 * time.Millisecond
	reads.Backoff = retryhttp.FullJitter(10*time.Millisecond, time.Second)
	writes.MaxAttempts = 2
	writes.IdempotencyKey = retryhttp.RandomKey // only for servers that honor the header
	client := &http.Client{Transport: readsAndWrites{
		reads:  retryhttp.New(http.DefaultTransport, reads),
		writes: retryhttp.New(http.DefaultTransport, writes),
	}}

	read, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer read.Body.Close()
	written, err := client.Post(server.URL, "application/json", strings.NewReader(`{}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer written.Body.Close()
	fmt.Println("attempts to read:", retryhttp.OutcomeOf(read).Attempts)
	fmt.Println("attempts to write:", retryhttp.OutcomeOf(written).Attempts)
	// Output:
	// attempts to read: 4
	// attempts to write: 2
}

// A base of one's own begins with a clone of http.DefaultTransport.
func ExampleNew_ownBase() {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusProxyAuthRequired)
	}))
	defer proxy.Close()
	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		fmt.Println(err)
		return
	}

	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = http.ProxyURL(proxyURL)
	roots, err := x509.SystemCertPool() // AppendCertsFromPEM adds a certificate authority
	if err != nil {
		fmt.Println(err)
		return
	}
	base.TLSClientConfig = &tls.Config{RootCAs: roots}
	// A dead HTTP/2 connection is found within 45 s. New's own base has the same pings.
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	base.DisableCompression = true // Policy.Resume cannot continue a compressed body
	// The proxy's refusal is an error of the attempt. A retry cannot help against a 407.
	base.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode == http.StatusProxyAuthRequired {
			return retryhttp.Permanent(errors.New("the proxy wants other credentials"))
		}
		return nil
	}

	client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{})}
	resp, err := client.Get("https://files.example/")
	if err == nil {
		resp.Body.Close()
		return
	}
	var failure *retryhttp.Error
	if errors.As(err, &failure) {
		fmt.Println("attempts:", failure.Attempts)
	}
	// Output: attempts: 1
}
