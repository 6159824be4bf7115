package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
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
