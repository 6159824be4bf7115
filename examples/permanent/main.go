// Permanent shows a circuit breaker below a Transport. The breaker marks its refusals as
// Permanent, so they are not retried. Retries would be in vain, because the breaker stays open
// for longer than any backoff.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp"
)

var errOpen = errors.New("circuit breaker is open")

// breaker refuses requests for a while after too many consecutive failures. It stands in for a
// real circuit breaker, which is wrapped in the same few lines.
type breaker struct {
	base      http.RoundTripper
	threshold int
	coolDown  time.Duration

	mu       sync.Mutex
	failures int
	openedAt time.Time
}

func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.isOpen() {
		if req.Body != nil {
			req.Body.Close() // a RoundTripper always closes the body
		}
		return nil, retryhttp.Permanent(errOpen)
	}
	resp, err := b.base.RoundTrip(req)
	if !errors.Is(err, context.Canceled) { // which says nothing about the server
		b.record(err == nil && resp.StatusCode < 500)
	}
	return resp, err
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= b.threshold && time.Since(b.openedAt) < b.coolDown
}

func (b *breaker) record(ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ok {
		b.failures = 0
	} else if b.failures++; b.failures >= b.threshold {
		b.openedAt = time.Now()
	}
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	var hits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		http.Error(w, "down", http.StatusServiceUnavailable)
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(
		&breaker{base: retryhttp.NewBase(nil), threshold: 3, coolDown: time.Minute},
		retryhttp.Policy{MaxAttempts: 10, Backoff: retryhttp.Constant(10 * time.Millisecond)},
	)}
	for i := range 2 {
		resp, err := client.Get(server.URL)
		if err == nil {
			resp.Body.Close()
			return fmt.Errorf("request %d: %s although the breaker should be open", i+1, resp.Status)
		}
		failure, ok := errors.AsType[*retryhttp.Error](err)
		if !ok || !errors.Is(err, errOpen) {
			return fmt.Errorf("request %d: %w", i+1, err)
		}
		fmt.Printf("request %d: %v, attempts: %d, stop: %s\n", i+1, failure.Err, failure.Attempts, failure.Stop)
	}
	fmt.Printf("requests that reached the server: %d\n", hits.Load())
	return nil
}
