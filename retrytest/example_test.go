package retrytest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrytest"
)

func TestReportIsFetchedThoughTheServerIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := retrytest.NewTransport(t, nil,
			retrytest.Refused().Nth(1),
			retrytest.RetryAfter(503, 2*time.Second).Nth(2),
		)
		client := &http.Client{Transport: retryhttp.New(rt, retryhttp.Policy{})}
		start := time.Now()
		resp, err := client.Get("http://reports.example/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n := len(rt.Records()); n != 3 {
			t.Errorf("%d attempts", n)
		}
		if d := time.Since(start); d < 2*time.Second || d > 3500*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
}

var reports = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "all is well") })

func TestReportIsFetchedThoughAReplicaHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := retrytest.NewHandler(t, reports, retrytest.Hang().Always())
		base := retrytest.Serve(t, hangs, reports)
		client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Second})}
		resp, err := client.Get("http://reports.example/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Error(resp.Status)
		}
	})
}

// A server that resets the first connection, and cuts the second answer.
func ExampleHandler() {
	server := httptest.NewServer(retrytest.NewHandler(nil, reports,
		retrytest.Reset().Nth(1),
		retrytest.Real().Cut(3).Nth(2),
	))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		BufferBytes: 1 << 10,
		Backoff:     retryhttp.Constant(10 * time.Millisecond),
	})}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	fmt.Println(string(text), err, "after", retryhttp.OutcomeOf(resp).Attempts, "attempts")
	// Output: all is well <nil> after 3 attempts
}

// A client of any kind: this one has no retries.
func ExampleTransport() {
	rt := retrytest.NewTransport(nil, nil, retrytest.Status(503).During(0, time.Second))
	client := &http.Client{Transport: rt}
	resp, err := client.Get("http://reports.example/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	for _, r := range rt.Records() {
		fmt.Println(r.Method, r.URL, "got", r.Step)
	}
	// Output:
	// 503 Service Unavailable
	// GET http://reports.example/ got 503
}
