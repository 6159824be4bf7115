package migrating_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

// An error means that there was no response. A response that says that all
// attempts failed is still a response.
func Example_status() {
	server := failing(503, 503, 503, 503)
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Backoff: retryhttp.Constant(time.Millisecond),
	})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		fmt.Println(resp.Status, "after", retryhttp.OutcomeOf(resp).Attempts, "attempts")
		return
	}
	// Output: 503 Service Unavailable after 4 attempts
}

type signing struct{ base http.RoundTripper }

func (s signing) RoundTrip(req *http.Request) (*http.Response, error) {
	signed := req.Clone(req.Context()) // the request belongs to its caller, and is sent again
	signed.Header.Set("Signature", fmt.Sprint("of attempt ", retryhttp.AttemptOf(req.Context()).Number))
	return s.base.RoundTrip(signed)
}

// What has to be done for every attempt is done below the Transport.
func Example_eachAttempt() {
	var signatures []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signatures = append(signatures, r.Header.Get("Signature"))
		if len(signatures) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(signing{http.DefaultTransport}, retryhttp.Policy{})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(signatures)
	// Output: [of attempt 1 of attempt 2]
}

// What a server says in a header of its own is passed on in a Retry-After.
func Example_delayOfAnotherHeader() {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.Header().Set("X-RateLimit-Reset-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()

	translating := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if after := resp.Header.Get("X-RateLimit-Reset-After"); after != "" && resp.StatusCode == http.StatusTooManyRequests {
			resp.Header.Set("Retry-After", after)
		}
		return resp, nil
	})
	client := &http.Client{Transport: retryhttp.New(translating, retryhttp.Policy{})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println("waited a second:", retryhttp.OutcomeOf(resp).Waited >= time.Second)
	// Output: waited a second: true
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
