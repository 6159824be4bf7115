// Idempotency shows a payment whose response is lost. Without a key, the payment is not
// repeated, because it may have been made. With a key, the request is repeated, and the
// payment is made once.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp"
)

// bank makes a charge, but fails to confirm it. A request with a known key gets the stored
// receipt, and charges nothing.
type bank struct {
	mu       sync.Mutex
	charges  int
	receipts map[string]string
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if receipt, ok := b.receipts[key]; ok {
		fmt.Fprint(w, receipt)
		return
	}
	b.charges++
	if key != "" {
		b.receipts[key] = fmt.Sprintf("receipt %d", b.charges)
	}
	http.Error(w, "charged, but the answer got lost", http.StatusInternalServerError)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	b := &bank{receipts: make(map[string]string)}
	server := httptest.NewServer(b)
	defer server.Close()

	backoff := retryhttp.Exponential(10*time.Millisecond, time.Second)
	if err := pay(b, server.URL, "no key", retryhttp.Policy{Backoff: backoff}); err != nil {
		return err
	}
	// Each request has one key, which all its attempts share. Use keys only for servers that
	// honor them: any other server would charge twice.
	return pay(b, server.URL, "a key", retryhttp.Policy{Backoff: backoff, IdempotencyKey: retryhttp.RandomKey})
}

func pay(b *bank, url, how string, policy retryhttp.Policy) error {
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	defer client.CloseIdleConnections()
	before := b.count()
	resp, err := client.Post(url, "application/json", strings.NewReader(`{"amount": 42}`))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	o := retryhttp.OutcomeOf(resp)
	fmt.Printf("with %s: %s, attempts: %d, stop: %s, times charged: %d\n",
		how, resp.Status, o.Attempts, o.Stop, b.count()-before)
	return nil
}

func (b *bank) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.charges
}
