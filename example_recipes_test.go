package retryhttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

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
	show(client.Get(server.URL))
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
	})
	for _, transport := range []http.RoundTripper{rt, bareErrors{rt}} {
		_, err := (&http.Client{Transport: transport}).Get(server.URL)
		if uerr, ok := err.(*url.Error); ok {
			fmt.Println(uerr.Err == io.EOF, errors.Is(err, io.EOF))
		}
	}
	// Output:
	// false true
	// true true
}

// These RoundTrippers belong below a Transport, so that they see each attempt.

// deadlines sends the server the time that is left for the attempt, under the names that gRPC and
// Envoy have for it. A server then need not work on an attempt that nobody waits for.
type deadlines struct{ base http.RoundTripper }

func (d deadlines) RoundTrip(req *http.Request) (*http.Response, error) {
	deadline, ok := req.Context().Deadline()
	if !ok {
		return d.base.RoundTrip(req)
	}
	left := min(max(time.Until(deadline).Milliseconds(), 1), 99_999_999) // gRPC allows eight digits
	timed := req.Clone(req.Context())
	timed.Header.Set("Grpc-Timeout", strconv.FormatInt(left, 10)+"m") // milliseconds
	timed.Header.Set("X-Envoy-Expected-Rq-Timeout-Ms", strconv.FormatInt(left, 10))
	return d.base.RoundTrip(timed)
}

// The deadline of an attempt is the end of its AttemptTimeout, or the caller's deadline if that is
// earlier.
func ExamplePolicy_deadlineSentToTheServer() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ms, _ := strconv.Atoi(r.Header.Get("X-Envoy-Expected-Rq-Timeout-Ms"))
		fmt.Println("500 ms at most:", 0 < ms && ms <= 500)
		if ms > 0 && r.Header.Get("Grpc-Timeout") != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(deadlines{http.DefaultTransport}, retryhttp.Policy{
		MaxAttempts:    2,
		AttemptTimeout: 500 * time.Millisecond,
		Backoff:        retryhttp.Constant(10 * time.Millisecond),
	})}
	show(client.Get(server.URL))
	// Output:
	// 500 ms at most: true
	// 500 ms at most: true
	// 503 Service Unavailable at attempt 2
}

// paced lets attempts pass at the limiter's rate. The limiter refuses at once an attempt that
// could not pass before its deadline. The refusal is Permanent: a retry would meet the same limiter,
// and would spend the budget for it. The error of a failed dial says that nothing was sent.
type paced struct {
	base    http.RoundTripper
	limiter *rate.Limiter
}

func (p paced) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := p.limiter.Wait(req.Context()); err != nil {
		if req.Body != nil {
			req.Body.Close() // a RoundTripper closes the body, also when it fails
		}
		return nil, retryhttp.Permanent(&net.OpError{Op: "dial", Net: "limiter", Err: err})
	}
	return p.base.RoundTrip(req)
}

func ExamplePermanent_limiter() {
	server := serverAnswering(200)
	defer server.Close()

	base := paced{http.DefaultTransport, rate.NewLimiter(rate.Every(time.Minute), 1)}
	client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{
		AttemptTimeout: 10 * time.Second, // it includes the limiter's wait
	})}
	for range 2 {
		resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{}`))
		if err == nil {
			fmt.Println(resp.Status)
			resp.Body.Close()
			continue
		}
		var failure *retryhttp.Error
		if errors.As(err, &failure) {
			fmt.Println("refused, attempts:", failure.Attempts, "may have taken effect:", failure.Ambiguous)
		}
	}
	// Output:
	// 200 OK
	// refused, attempts: 1 may have taken effect: false
}

// refreshing adds a token to the requests to one host. If the host refuses the token, refreshing
// fetches another one, and sends the request once more. Requests that are refused together share one
// fetch. Make it by newRefreshing.
type refreshing struct {
	base  http.RoundTripper
	host  string // other hosts must not see the token: redirects lead there, too
	fetch func(context.Context) (string, error)
	token chan string // holds the token while nobody looks at it or fetches another one
}

func newRefreshing(base http.RoundTripper, host string, fetch func(context.Context) (string, error)) *refreshing {
	r := &refreshing{base: base, host: host, fetch: fetch, token: make(chan string, 1)}
	r.token <- ""
	return r
}

func (r *refreshing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != r.host {
		return r.base.RoundTrip(req)
	}
	token, err := r.other(req.Context(), "")
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, &net.OpError{Op: "dial", Net: "token", Err: err} // nothing was sent
	}
	resp, err := r.base.RoundTrip(withToken(req, token))
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	again := withToken(req, "")
	if req.Body != nil && req.Body != http.NoBody {
		if req.GetBody == nil {
			return resp, nil // the body cannot be sent again
		}
		if again.Body, err = req.GetBody(); err != nil {
			return resp, nil
		}
	}
	if token, err = r.other(req.Context(), token); err != nil {
		if again.Body != nil {
			again.Body.Close()
		}
		return resp, nil // without another token, the refusal stands
	}
	resp.Body.Close()
	again.Header.Set("Authorization", "Bearer "+token)
	return r.base.RoundTrip(again)
}

// other returns a token other than the refused one, and fetches it if nobody else has.
func (r *refreshing) other(ctx context.Context, refused string) (token string, err error) {
	select {
	case token = <-r.token:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { r.token <- token }()
	if token != refused {
		return token, nil
	}
	fetched, err := r.fetch(ctx)
	if err == nil {
		token = fetched
	}
	return token, err
}

func withToken(req *http.Request, token string) *http.Request {
	copied := req.Clone(req.Context())
	copied.Header.Set("Authorization", "Bearer "+token)
	return copied
}

// The refusal of a token is no failure of the attempt: the Transport sees only the second answer.
// For a request that may be retried, the Transport makes a GetBody: for files of any size, and for
// streams whose ContentLength is at most RecordBytes.
func ExampleNew_tokenRefreshed() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer second" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()

	tokens := []string{"first", "second"}
	fetch := func(context.Context) (token string, err error) {
		token, tokens = tokens[0], tokens[1:]
		fmt.Println("fetched the", token, "token")
		return token, nil
	}
	base := newRefreshing(http.DefaultTransport, strings.TrimPrefix(server.URL, "http://"), fetch)
	client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{})}
	resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{"amount": 100}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "at attempt", retryhttp.OutcomeOf(resp).Attempts)
	// Output:
	// fetched the first token
	// fetched the second token
	// 200 OK at attempt 1
}

// signer signs each attempt. A copy of a request keeps its context, by which a Base knows the attempt.
type signer struct{ base http.RoundTripper }

func (s signer) RoundTrip(req *http.Request) (*http.Response, error) {
	signed := req.Clone(req.Context())
	signed.Header.Set("Authorization", "Signature "+time.Now().Format(time.RFC3339Nano))
	return s.base.RoundTrip(signed)
}

// CloseIdleConnections is for [http.Client.CloseIdleConnections].
func (s signer) CloseIdleConnections() {
	if c, ok := s.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// A RoundTripper below a Transport wraps a Base, so that a retry takes another connection. The server
// stands for a balancer of connections, and its first connection leads to a broken replica.
func ExampleNewBase() {
	var broken atomic.Pointer[string] // the client's end of the first connection
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		broken.CompareAndSwap(nil, &r.RemoteAddr)
		if r.RemoteAddr == *broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	own := http.DefaultTransport.(*http.Transport).Clone()
	base := signer{retryhttp.NewBase(own)}
	client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{
		Backoff: retryhttp.Constant(10 * time.Millisecond),
		OnDone: func(last retryhttp.Attempt, _ retryhttp.Outcome) {
			fmt.Println("attempt", last.Number, "took a detour:", last.Detour)
		},
	})}
	defer client.CloseIdleConnections()
	show(client.Get(server.URL))
	// Output:
	// attempt 2 took a detour: true
	// 200 OK at attempt 2
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
	show(client.Get(origin.URL))
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
	if err != nil && !errors.Is(err, context.Canceled) || err == nil && resp.StatusCode >= 500 {
		b.failures.Add(1) // an attempt that another has superseded is no failure
	}
	return resp, err
}

// A breaker goes below the Transport, so that it sees every attempt. The error of an open
// breaker is Permanent: a retry would meet the same breaker.
func ExamplePermanent_circuitBreaker() {
	server := serverAnswering(503)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(&breaker{base: retryhttp.NewBase(nil)}, retryhttp.Policy{
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

// Two Transports share connections, detours, a budget and a Gate. They differ in their policies.
func ExampleNew_readsAndWrites() {
	server := serverAnswering(503)
	defer server.Close()

	base := retryhttp.NewBase(nil)
	shared := retryhttp.Policy{Budget: new(retryhttp.TokenBucket), Gate: new(retryhttp.Gate)}
	reads, writes := shared, shared
	reads.AttemptTimeout = 500 * time.Millisecond
	reads.Backoff = retryhttp.FullJitter(10*time.Millisecond, time.Second)
	writes.MaxAttempts = 2
	writes.IdempotencyKey = retryhttp.RandomKey // only for servers that honor the header
	client := &http.Client{Transport: readsAndWrites{
		reads:  retryhttp.New(base, reads),
		writes: retryhttp.New(base, writes),
	}}

	show(client.Get(server.URL))
	show(client.Post(server.URL, "application/json", strings.NewReader(`{}`)))
	// Output:
	// 503 Service Unavailable at attempt 4
	// 503 Service Unavailable at attempt 2
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

// retryingByDefault returns an *http.Transport like real that sends all requests through a Transport
// with the policy, which sends them through real. Code that asserts that http.DefaultTransport is an
// *http.Transport goes on working.
func retryingByDefault(real *http.Transport, policy retryhttp.Policy) *http.Transport {
	retrying := retryhttp.New(real, policy)
	outer := real.Clone()
	outer.ForceAttemptHTTP2 = false                  // or net/http registers its own HTTP/2 for https below
	outer.CloseIdleConnections()                     // net/http decides so now, once and for all
	outer.ForceAttemptHTTP2 = real.ForceAttemptHTTP2 // for the clones that others make
	outer.RegisterProtocol("http", retrying)
	outer.RegisterProtocol("https", retrying)
	return outer
}

// The main function replaces http.DefaultTransport before anything else uses it.
func ExampleNew_defaultTransport() {
	server := serverAnswering(503, 200)
	defer server.Close()

	real := http.DefaultTransport.(*http.Transport)
	http.DefaultTransport = retryingByDefault(real, retryhttp.Policy{})
	defer func() { http.DefaultTransport = real }() // in this Example alone

	show(http.Get(server.URL)) // code that knows nothing of retries
	// Output: 200 OK at attempt 2
}

// broke is a Budget that has nothing, and never will.
type broke struct{}

func (broke) Withdraw(retryhttp.Retry) (cost float64, ok bool) { return math.Inf(1), false }
func (broke) Refund(*http.Request, float64)                    {}
func (broke) Deposit(*http.Request)                            {}

// A budget of nothing is the last reason not to retry. So the requests that end for this reason are
// the requests that another budget would have retried.
func ExamplePolicy_dryRun() {
	server := serverAnswering(503)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Budget:  broke{},
		Backoff: retryhttp.Constant(0), // for which a refused request waits before it ends
		OnDone: func(a retryhttp.Attempt, o retryhttp.Outcome) {
			fmt.Println(a.Request.Method, "would be retried:", o.Stop == retryhttp.StopBudget)
		},
	})}
	show(client.Get(server.URL))
	show(client.Head(server.URL))
	show(client.Post(server.URL, "application/json", strings.NewReader(`{}`)))
	// Output:
	// GET would be retried: true
	// 503 Service Unavailable at attempt 1
	// HEAD would be retried: true
	// 503 Service Unavailable at attempt 1
	// POST would be retried: false
	// 503 Service Unavailable at attempt 1
}

// withoutMeshRetries is below a Transport. It asks an Envoy on the way not to retry.
type withoutMeshRetries struct{ base http.RoundTripper }

func (w withoutMeshRetries) RoundTrip(req *http.Request) (*http.Response, error) {
	copied := req.Clone(req.Context())
	copied.Header.Set("X-Envoy-Max-Retries", "0")
	return w.base.RoundTrip(copied)
}

// meshHasRetried is a Policy.Classify. Envoy numbers its attempts in responses if its
// include_attempt_count_in_response is set.
func meshHasRetried(a retryhttp.Attempt) retryhttp.Class {
	if a.Response != nil {
		if n, err := strconv.Atoi(a.Response.Header.Get("X-Envoy-Attempt-Count")); err == nil && n > 1 {
			return retryhttp.Final
		}
	}
	return retryhttp.Classify(a)
}

// When both retry, the attempts multiply. One of the two should retry.
func ExampleNew_serviceMesh() {
	mesh, attempts := serverBehindMesh()
	defer mesh.Close()

	soon := retryhttp.Constant(10 * time.Millisecond)
	for _, c := range []struct {
		who    string
		base   http.RoundTripper
		policy retryhttp.Policy
	}{
		{"both", http.DefaultTransport, retryhttp.Policy{Backoff: soon}},
		{"the client", withoutMeshRetries{http.DefaultTransport}, retryhttp.Policy{Backoff: soon}},
		{"the mesh", http.DefaultTransport, retryhttp.Policy{MaxAttempts: 1}},
		{"the client where the mesh has not", http.DefaultTransport, retryhttp.Policy{Backoff: soon, Classify: meshHasRetried}},
	} {
		attempts.Store(0)
		client := &http.Client{Transport: retryhttp.New(c.base, c.policy)}
		resp, err := client.Get(mesh.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Printf("%s: %d attempts\n", c.who, attempts.Load())
	}
	// Output:
	// both: 12 attempts
	// the client: 4 attempts
	// the mesh: 3 attempts
	// the client where the mesh has not: 3 attempts
}

// serverBehindMesh starts a proxy that makes up to three attempts, as Istio's default does, at a
// server that always fails.
func serverBehindMesh() (mesh *httptest.Server, attempts *atomic.Int64) {
	attempts = new(atomic.Int64)
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		retries, err := strconv.Atoi(r.Header.Get("X-Envoy-Max-Retries"))
		if err != nil {
			retries = 2
		}
		attempts.Add(int64(1 + retries))
		w.Header().Set("X-Envoy-Attempt-Count", strconv.Itoa(1+retries))
		w.WriteHeader(http.StatusServiceUnavailable)
	})), attempts
}

var names = retryhttp.Policy{
	MaxAttempts: -1,
	MaxElapsed:  2 * time.Minute, // longer than a resolver remembers that there is no such name
	Backoff:     retryhttp.EqualJitter(time.Second, 15*time.Second),
	Budget:      &retryhttp.TokenBucket{Burst: 20}, // one request takes at most 19 in this time
	Classify: func(a retryhttp.Attempt) retryhttp.Class {
		var dns *net.DNSError
		if errors.As(a.Err, &dns) && strings.HasSuffix(a.Request.URL.Hostname(), ".svc.cluster.local") {
			return retryhttp.Unprocessed
		}
		return retryhttp.Classify(a)
	},
}

// The name of a headless Service of Kubernetes exists only while one of its pods is ready.
func ExamplePolicy_namesThatComeAndGo() {
	server := serverAnswering(200)
	defer server.Close()
	lookups := 0
	base := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if lookups++; lookups == 1 || !strings.HasPrefix(address, "db.prod.svc.cluster.local:") {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}}
		}
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}}

	client := &http.Client{Transport: retryhttp.New(base, names)}
	for _, url := range []string{"http://db.prod.svc.cluster.local/", "http://no-such-host.example/"} {
		resp, err := client.Get(url)
		var failure *retryhttp.Error
		switch {
		case err == nil:
			resp.Body.Close()
			fmt.Println(resp.Status, "at attempt", retryhttp.OutcomeOf(resp).Attempts)
		case errors.As(err, &failure):
			fmt.Println("no such host at attempt", failure.Attempts)
		}
	}
	// Output:
	// 200 OK at attempt 2
	// no such host at attempt 1
}
