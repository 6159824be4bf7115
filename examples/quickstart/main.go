// Quickstart shows a request that succeeds at the third attempt. The server is down at first,
// and then asks the client to wait for a second.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch requests.Add(1) {
		case 1:
			http.Error(w, "starting up", http.StatusServiceUnavailable)
		case 2:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not so fast", http.StatusTooManyRequests)
		default:
			fmt.Fprint(w, "hello")
		}
	}))
	defer server.Close()

	// The zero Policy would be enough. OnRetry only observes.
	timeline := timeline{start: time.Now()}
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{OnRetry: timeline.retry})}

	resp, err := client.Get(server.URL)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	outcome := retryhttp.OutcomeOf(resp)
	timeline.print(outcome.Attempts, "%s, %q", resp.Status, body)
	fmt.Printf("outcome: %d attempts, stop: %s\n", outcome.Attempts, outcome.Stop)
	return timeline.err
}

// timeline prints each event, and the earliest time at which it may happen. The exact length
// of a wait is random, so that clients that failed together do not return together.
type timeline struct {
	start    time.Time
	earliest time.Duration
	err      error
}

func (t *timeline) retry(a retryhttp.Attempt) {
	if a.Err != nil {
		t.print(a.Number, "%v", a.Err)
		return
	}
	if asked, ok := retryhttp.RetryAfter(a.Response.Header); ok {
		t.print(a.Number, "%s, come back after %v", a.Response.Status, asked)
		t.earliest += asked
	} else {
		t.print(a.Number, "%s", a.Response.Status)
	}
}

func (t *timeline) print(attempt int, format string, args ...any) {
	if elapsed := time.Since(t.start); elapsed < t.earliest {
		t.err = fmt.Errorf("attempt %d came after %v, which is too soon", attempt, elapsed)
	}
	fmt.Printf("%2v+  attempt %d: %s\n", t.earliest, attempt, fmt.Sprintf(format, args...))
}
