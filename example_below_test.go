package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/retryhttp/retryhttp"
)

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
	// 503 Service Unavailable
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
// streams whose ContentLength is at most MaxBodyBytes.
func ExampleNew_tokenRefreshed() {
	valid := "second"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+valid {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()

	tokens := []string{"first", "second"}
	fetch := func(context.Context) (string, error) {
		token := tokens[0]
		tokens = tokens[1:]
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

// unkept keeps no HTTP/1 connection that has brought a 429 or a 5xx, whose body it drops. Behind a TCP
// balancer, a connection leads to one replica for as long as it lasts.
type unkept struct{ base http.RoundTripper }

func (u unkept) RoundTrip(req *http.Request) (*http.Response, error) {
	var conn net.Conn
	traced := req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { conn = got.Conn },
	}))
	resp, err := u.base.RoundTrip(traced)
	if err != nil || conn == nil || resp.ProtoMajor > 1 {
		return resp, err // an HTTP/2 connection has other requests
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		_ = conn.Close() // before the body's end makes the connection idle
		_ = resp.Body.Close()
		resp.Body, resp.ContentLength = http.NoBody, 0
	}
	return resp, nil
}

// A retry of a 503 has a connection of its own, and with a TCP balancer perhaps another replica.
func ExampleTransport_connectionAfterAFailure() {
	var from []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from = append(from, r.RemoteAddr)
		if len(from) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	base := http.DefaultTransport.(*http.Transport).Clone()
	client := &http.Client{Transport: retryhttp.New(unkept{base}, retryhttp.Policy{
		Backoff: retryhttp.Constant(10 * time.Millisecond),
	})}
	show(client.Get(server.URL))
	show(client.Get(server.URL))
	fmt.Println("the retry has another connection:", from[0] != from[1])
	fmt.Println("the next request has the retry's:", from[1] == from[2])
	// Output:
	// 200 OK
	// 200 OK
	// the retry has another connection: true
	// the next request has the retry's: true
}
