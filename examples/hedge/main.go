// Hedge shows the latencies of requests to a server that is slow now and then. It compares a
// client without a Hedge to a client that sends a second attempt beside each slow attempt.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/retryhttp/retryhttp"
)

const (
	requests = 1000
	interval = 2 * time.Millisecond // time between requests, which do not wait for each other
	every    = 50                   // one request in this many is slow
	slow     = time.Second
)

func main() {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tp50\tp99\tp99.9\tmore attempts")
	if err := errors.Join(
		measure(table, "without a Hedge", nil),
		// Without After, the Hedge would hedge the slowest 5 in 100 requests. A fixed time
		// makes the output the same in each run.
		measure(table, "with a Hedge", &retryhttp.Hedge{After: 100 * time.Millisecond}),
		table.Flush(),
	); err != nil {
		log.Fatal(err)
	}
}

// measure prints a line of the table.
func measure(table io.Writer, how string, hedge *retryhttp.Hedge) error {
	server := httptest.NewServer(slowAtFirst())
	defer server.Close()
	var hedges atomic.Int32
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Hedge:  hedge,
		OnDone: func(_ retryhttp.Attempt, o retryhttp.Outcome) { hedges.Add(int32(o.Hedges)) },
	})}
	defer client.CloseIdleConnections()

	var running sync.WaitGroup
	latencies, errs := make([]time.Duration, requests), make([]error, requests)
	tick := time.Tick(interval)
	for i := range requests {
		<-tick
		running.Go(func() {
			start := time.Now()
			errs[i] = get(client, fmt.Sprint(server.URL, "/", i))
			latencies[i] = time.Since(start)
		})
	}
	running.Wait()
	slices.Sort(latencies)
	fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", how, rough(latencies[requests*500/1000-1]),
		rough(latencies[requests*990/1000-1]), rough(latencies[requests*999/1000-1]), share(hedges.Load()))
	return errors.Join(errs...)
}

// slowAtFirst is the server. It answers a second attempt of the same request at once.
func slowAtFirst() http.Handler {
	var attempts [requests]atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &i); err != nil || attempts[i].Add(1) > 1 || i%every != 0 {
			return
		}
		select {
		case <-time.After(slow):
		case <-r.Context().Done(): // the hedge has won
		}
	})
}

func get(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// rough returns a rough bound of a latency, because a busy machine may add to the latency.
func rough(latency time.Duration) string {
	for _, limit := range []time.Duration{100 * time.Millisecond, slow} {
		if latency < limit {
			return "under " + limit.String()
		}
	}
	return slow.String() + " and more"
}

// share returns roughly the share of hedged requests. A Hedge starts with one hedge, and its
// Share is a twentieth.
func share(hedges int32) string {
	switch {
	case hedges == 0:
		return "none"
	case hedges <= 1+requests/20:
		return "5 % at most"
	}
	return "too many"
}
