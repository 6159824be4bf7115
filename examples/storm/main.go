// Storm shows what a busy client does to a server that fails for a moment: with and without
// jitter, a budget, and the Gate. The server handles a limited number of requests a second, and
// rejects the rest. Time is virtual, so that a busy machine measures the same as an idle one.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// main runs as a test, because only a test has virtual time. It exits within the test, so that the
// testing package does not print how the test ended.
func main() {
	everything := func(string, string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{Name: "storm", F: func(t *testing.T) {
		if err := run(t); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}}}, nil, nil)
}

func run(t *testing.T) error {
	exponential := retryhttp.Exponential(100*time.Millisecond, 2*time.Second)
	jitter := retryhttp.FullJitter(100*time.Millisecond, 2*time.Second)
	off := &retryhttp.Gate{Hold: -1} // holds nothing
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
		r := storm(t, s.policy)
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
		"and %.1f %% with the default budget\n", partial(t, retryhttp.Policy{MaxAttempts: 1}),
		partial(t, retryhttp.Policy{Backoff: jitter, Budget: tenth, Gate: off}), partial(t, retryhttp.Policy{Backoff: jitter}))
	return nil
}

// partial returns how many requests in a hundred succeed while one of three backends is down.
func partial(t *testing.T, policy retryhttp.Policy) float64 {
	r := new(result)
	synctest.Test(t, func(*testing.T) {
		r.send(func() int {
			if r.attempts.Add(1)%3 == 0 {
				return http.StatusBadGateway
			}
			return http.StatusOK
		}, policy)
	})
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

func storm(t *testing.T, policy retryhttp.Policy) *result {
	r := new(result)
	synctest.Test(t, func(*testing.T) { r.send(r.server(time.Now()), policy) })
	return r
}

// server answers requests with a status. It is the base of the client, in place of a network.
type server func() (status int)

func (s server) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s(), Header: make(http.Header), Body: http.NoBody, Request: req}, nil
}

// send sends all requests, and waits until they have ended.
func (r *result) send(to server, policy retryhttp.Policy) {
	client := &http.Client{Transport: retryhttp.New(to, policy)}
	var running sync.WaitGroup
	for range requests {
		running.Go(func() { r.request(client) })
		time.Sleep(interval)
	}
	running.Wait()
}

func (r *result) request(client *http.Client) {
	resp, err := client.Get("http://host.example/")
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode == http.StatusOK {
		r.succeeded.Add(1)
	}
}

// server serves one request at a time, and has a short queue. In its outage it first delays all
// requests, and then rejects all of them at the same moment.
func (r *result) server(start time.Time) server {
	var mu sync.Mutex
	var free time.Duration // when the server will have served all waiting requests
	return func() int {
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
			return http.StatusServiceUnavailable
		}
		time.Sleep(turn + service - time.Since(start))
		return http.StatusOK
	}
}
