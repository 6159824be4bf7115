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

	"github.com/retryhttp/retryhttp"
)

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
