package retryhttp_test

import (
	"fmt"
	"net/http"

	"github.com/retryhttp/retryhttp"
)

// attemptLogger lies below a Transport, and so sees each attempt.
type attemptLogger struct{ base http.RoundTripper }

func (l attemptLogger) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	fmt.Printf("attempt %d: %s\n", retryhttp.AttemptOf(req.Context()).Number, resp.Status)
	return resp, nil
}

func ExampleAttemptOf() {
	server := serverAnswering(503, 200)
	defer server.Close()

	transport := retryhttp.New(attemptLogger{http.DefaultTransport}, retryhttp.Policy{})
	client := &http.Client{Transport: transport}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	// Output:
	// attempt 1: 503 Service Unavailable
	// attempt 2: 200 OK
}
