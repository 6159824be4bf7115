// Webhook sends 50,000 deliveries to 2,000 hosts with 100 workers. Each host has a queue of its
// own, because some hosts are dead, some are slow, and some limit rates. The network is in memory.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/retryhttp/retryhttp"
)

const (
	deliveries = 50_000
	workers    = 100
)

func main() {
	alive, _, _ := send("without dead hosts", 0)
	all, kept, tried := send("with 40 dead hosts", 40)
	fmt.Printf("%d deliveries to the dead hosts are kept for later, after %d attempts; the others took %.2f times as long\n",
		kept, tried, all.Seconds()/alive.Seconds())
}

// send returns how long it took to send what can be delivered, how much is left, and how many attempts were
// made at dead hosts.
func send(how string, dead int) (took time.Duration, kept, tried int) {
	fmt.Fprintln(os.Stderr, how)
	ctx, cancel := context.WithCancel(context.Background())
	gate, net := new(retryhttp.Gate), newNetwork(dead, cancel)
	// The policy of docs/choosing.md, with shorter times.
	client := &http.Client{Timeout: 10 * time.Second, Transport: retryhttp.New(net, retryhttp.Policy{
		MaxAttempts:    2,
		AttemptTimeout: 500 * time.Millisecond,
		MaxElapsed:     100 * time.Millisecond, // after a timeout, the next attempt comes from the queue
		MaxRetryAfter:  time.Hour,              // for Gate.Status; no worker waits for longer than MaxElapsed
		Backoff:        retryhttp.FullJitter(20*time.Millisecond, time.Second),
		Gate:           gate,
	})}
	s := newSender(client, gate, len(net.hosts))
	start := time.Now()
	s.run(ctx)
	took = time.Since(start)
	for _, h := range s.hosts {
		kept += len(h.waiting)
	}
	fmt.Printf("%s: %s\n", how, net)
	return took, kept, net.dead
}
