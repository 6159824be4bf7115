// Override shows how one request gets its own policy through its context. All requests share
// the client and its connections.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/retryhttp/retryhttp"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "down", http.StatusServiceUnavailable)
	}))
	defer server.Close()

	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		MaxAttempts: 2,
		Backoff:     retryhttp.Constant(10 * time.Millisecond),
	})}
	ctx := context.Background()
	if err := get(ctx, client, server.URL, "as usual"); err != nil {
		return err
	}

	// A page that refreshes itself soon does not retry.
	once := retryhttp.WithPolicy(ctx, func(p *retryhttp.Policy) { p.MaxAttempts = 1 })
	if err := get(once, client, server.URL, "refresh"); err != nil {
		return err
	}

	// Edits nest: this edit sees the result of the outer edit, which was made first. All other
	// fields come from the client's Policy.
	patient := retryhttp.WithPolicy(once, func(p *retryhttp.Policy) {
		p.MaxAttempts += 3
		p.Backoff = retryhttp.Constant(0)
	})
	return get(patient, client, server.URL, "more patient")
}

func get(ctx context.Context, client *http.Client, url, what string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	o := retryhttp.OutcomeOf(resp)
	fmt.Printf("%s: %s, attempts: %d, stop: %s\n", what, resp.Status, o.Attempts, o.Stop)
	return nil
}
