// Storm shows what a busy client does to a server that fails for a moment: with and without
// jitter, a budget, and the Gate. The sockets are real, on loopback. The server handles a
// limited number of requests a second, and rejects the rest.
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
	interval = 2 * time.Millisecond    // time between requests, which do not wait for each other
	service  = 1250 * time.Microsecond // time per request; the server can serve 800 requests a second
	queue    = 100 * time.Millisecond  // the longest that a request may wait in the server
	requests = 1400                    // these take 2.8 s
	stall    = 300 * time.Millisecond  // when the server stalls
	down     = 450 * time.Millisecond  // when the server rejects all waiting requests, and from then on all new ones
	up       = 950 * time.Millisecond  // when the server is healthy again
	bin      = 100 * time.Millisecond
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	exponential := retryhttp.Exponential(100*time.Millisecond, 2*time.Second)
	jitter := retryhttp.FullJitter(100*time.Millisecond, 2*time.Second)
	off := &retryhttp.Gate{Hold: -1}
	storms := []struct {
		name   string
		policy retryhttp.Policy
	}{
		{"no retries", retryhttp.Policy{MaxAttempts: 1, Gate: off}},
		{"no jitter, no budget", retryhttp.Policy{Backoff: exponential, Budget: retryhttp.Unlimited{}, Gate: off}},
		{"jitter, no budget", retryhttp.Policy{Backoff: jitter, Budget: retryhttp.Unlimited{}, Gate: off}},
		{"jitter, budget", retryhttp.Policy{Backoff: jitter, Gate: off}},
		{"jitter, budget, Gate", retryhttp.Policy{Backoff: jitter}}, // the default policy, except for the backoff
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "a client with\trequests\tsucceeded\tattempts per request\t"+
		"while down\tworst 100 ms when up again\t")
	for i, s := range storms {
		fmt.Fprintf(os.Stderr, "\rstorm %d of %d: %-22s", i+1, len(storms), s.name)
		r := storm(s.policy)
		fmt.Fprintf(table, "%s\t%d\t%.1f %%\t%.2f\t%.2f\t%d attempts\t\n", s.name,
			requests, 100*float64(r.succeeded.Load())/requests, float64(r.attempts.Load())/requests,
			float64(r.whileDown.Load())*float64(interval)/float64(up-stall), r.worst())
	}
	fmt.Fprint(os.Stderr, "\r\033[K")
	if err := table.Flush(); err != nil {
		return err
	}
	tenth := &retryhttp.TokenBucket{Ratio: 0.1}
	fmt.Printf("\none of three backends is down: %.1f %% succeed without retries, %.1f %% if each success earns a tenth of a retry,\n"+
		"and %.1f %% with the default budget\n", partial(retryhttp.Policy{MaxAttempts: 1}),
		partial(retryhttp.Policy{Backoff: jitter, Budget: tenth, Gate: off}), partial(retryhttp.Policy{Backoff: jitter}))
	return nil
}

// partial returns how many requests in a hundred succeed while one of three backends is down.
func partial(policy retryhttp.Policy) float64 {
	r := new(result)
	backends := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if r.attempts.Add(1)%3 == 0 {
			http.Error(w, "down", http.StatusBadGateway)
		}
	}))
	defer backends.Close()
	r.send(backends.URL, policy)
	return 100 * float64(r.succeeded.Load()) / requests
}

// result counts the outcomes of the requests, and the attempts that the server saw.
type result struct {
	succeeded, attempts, whileDown atomic.Int64
	upAgain                        [4 * time.Second / bin]atomic.Int64 // attempts over time, from up on
}

// worst returns the largest number of attempts in one bin after the server is up again.
func (r *result) worst() (most int64) {
	for i := range r.upAgain {
		most = max(most, r.upAgain[i].Load())
	}
	return most
}

func storm(policy retryhttp.Policy) *result {
	r := new(result)
	start := time.Now()
	server := httptest.NewServer(r.handler(start))
	defer server.Close()
	r.send(server.URL, policy)
	return r
}

// send sends all requests, and waits until they have ended.
func (r *result) send(url string, policy retryhttp.Policy) {
	base := &http.Transport{MaxIdleConnsPerHost: 1000}
	client := &http.Client{Transport: retryhttp.New(base, policy)}
	defer client.CloseIdleConnections()
	var running sync.WaitGroup
	start := time.Now()
	for i := range requests {
		time.Sleep(time.Until(start.Add(time.Duration(i) * interval)))
		running.Go(func() { r.request(client, url) })
	}
	running.Wait()
}

func (r *result) request(client *http.Client, url string) {
	resp, err := client.Get(url)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // makes the connection reusable
	if resp.StatusCode == http.StatusOK {
		r.succeeded.Add(1)
	}
}

// handler is the server. It serves one request at a time, and has a short queue. In its outage
// it first delays all requests, and then rejects all of them at the same moment.
func (r *result) handler(start time.Time) http.Handler {
	var mu sync.Mutex
	var free time.Duration // when the server will have served all waiting requests
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		now := time.Since(start)
		r.attempts.Add(1)
		isDown := now >= stall && now < up
		if isDown {
			r.whileDown.Add(1)
			time.Sleep(down - now)
		} else if i := int((now - up) / bin); now >= up && i < len(r.upAgain) {
			r.upAgain[i].Add(1)
		}
		mu.Lock()
		turn := max(free, now)
		no := isDown || turn-now > queue
		if !no {
			free = turn + service
		}
		mu.Unlock()
		if no {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		time.Sleep(turn + service - time.Since(start))
	})
}
