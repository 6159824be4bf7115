// Storm shows what some hundred clients do to a server that fails for a moment,
// with and without jitter, and with and without a budget. It is real: sockets on
// loopback, and a server that can do so much a second and turns the rest away.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/retryhttp/retryhttp"
)

const (
	clients  = 300
	interval = 500 * time.Millisecond // between a client's requests
	length   = 2 * time.Second
	stall    = 700 * time.Millisecond  // when the server stalls,
	down     = time.Second             // when it turns away all who wait and all who come,
	up       = 1300 * time.Millisecond // and when it is well again
	workers  = 4
	service  = 5 * time.Millisecond // so that 800 requests a second can be served, and 600 are made
	bin      = 25 * time.Millisecond
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	exponential := retryhttp.Exponential(100*time.Millisecond, 2*time.Second)
	jitter := retryhttp.FullJitter(100*time.Millisecond, 2*time.Second)
	storms := []struct {
		name   string
		policy retryhttp.Policy
	}{
		{"no retries", retryhttp.Policy{MaxAttempts: 1}},
		{"no jitter, no budget", retryhttp.Policy{Backoff: exponential, Budget: retryhttp.Unlimited{}}},
		{"jitter, no budget", retryhttp.Policy{Backoff: jitter, Budget: retryhttp.Unlimited{}}},
		{"jitter, budget", retryhttp.Policy{Backoff: jitter}},
	}
	// All clients share one Transport here, and so one bucket, which holds little
	// after so short a life: a budget keeps load down, and does not make a server
	// that is down answer.
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "clients with\trequests\tsucceeded\tattempts per request\t"+
		"worst 25 ms\tworst 25 ms when up again\t")
	for i, s := range storms {
		r := storm(s.policy, func(left time.Duration) {
			fmt.Fprintf(os.Stderr, "\rstorm %d of %d: %-22s %.1f s left ", i+1, len(storms), s.name, left.Seconds())
		})
		fmt.Fprintf(table, "%s\t%d\t%.1f %%\t%.2f\t%d attempts\t%d attempts\t\n", s.name,
			r.requests.Load(), 100*float64(r.succeeded.Load())/float64(r.requests.Load()),
			float64(r.attempts.Load())/float64(r.requests.Load()), r.worst(0), r.worst(up))
	}
	fmt.Fprint(os.Stderr, "\r\033[K")
	return table.Flush()
}

// result counts what clients asked and what the server saw.
type result struct {
	requests, succeeded, attempts atomic.Int64
	bins                          [2 * length / bin]atomic.Int64 // attempts over time
}

// worst is the most attempts in one bin since a moment.
func (r *result) worst(since time.Duration) (most int64) {
	for i := range r.bins {
		if time.Duration(i)*bin >= since {
			most = max(most, r.bins[i].Load())
		}
	}
	return most
}

func storm(policy retryhttp.Policy, progress func(left time.Duration)) *result {
	r := new(result)
	start := time.Now()
	server := httptest.NewServer(r.handler(start))
	defer server.Close()
	base := &http.Transport{MaxIdleConnsPerHost: clients}
	client := &http.Client{Transport: retryhttp.New(base, policy)}
	defer client.CloseIdleConnections()

	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			time.Sleep(interval * time.Duration(i) / clients) // they are not in step, at first
			for time.Since(start) < length {
				next := time.Now().Add(interval)
				r.request(client, server.URL)
				time.Sleep(time.Until(next))
			}
		})
	}
	for left := length; left > 0; left -= length / 5 {
		progress(left)
		time.Sleep(length / 5)
	}
	progress(0)
	running.Wait()
	return r
}

func (r *result) request(client *http.Client, url string) {
	r.requests.Add(1)
	resp, err := client.Get(url)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	if resp.StatusCode == http.StatusOK {
		r.succeeded.Add(1)
	}
}

// handler is the server: a few workers, a short queue, and an outage that first
// holds everybody up and then turns them all away at the same moment.
func (r *result) handler(start time.Time) http.Handler {
	busy := make(chan struct{}, workers)
	var waiting atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		now := time.Since(start)
		r.attempts.Add(1)
		if i := int(now / bin); i < len(r.bins) {
			r.bins[i].Add(1)
		}
		if now > stall && now < down {
			time.Sleep(down - now)
		}
		if now > stall && now < up || waiting.Load() >= 10*workers {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		waiting.Add(1)
		defer waiting.Add(-1)
		busy <- struct{}{}
		time.Sleep(service)
		<-busy
	})
}
