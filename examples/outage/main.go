// Outage restarts a server under load, first with the Gate switched off, then with the
// Gate. The server is real: while it is down, its port refuses connections.
package main

import (
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp"
)

const (
	perSecond = 200
	stop      = 100 // the request before which the server stops
	restart   = 300 // the request before which the server starts again, a second later
	requests  = 600
)

func main() {
	if err := errors.Join(
		outage("without the Gate", &retryhttp.Gate{Hold: -1}),
		outage("with the Gate", nil), // as in the zero Policy
	); err != nil {
		log.Fatal(err)
	}
}

func outage(how string, gate *retryhttp.Gate) error {
	fmt.Fprintf(os.Stderr, "%s: %d requests, %d a second\n", how, requests, perSecond)
	// Systems take ports for outgoing connections from a range above this port. A port from
	// that range might be in use when the server starts again.
	address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
	server, err := serve(address)
	if err != nil {
		return err
	}

	var mu sync.Mutex
	var hit, lost, failures int
	var held time.Duration // the longest time that a Gate held a request
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		Gate: gate, // the budget is the default's too, although the process has just begun
		OnDone: func(last retryhttp.Attempt, o retryhttp.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			failures += o.Attempts - 1
			if last.Err != nil {
				lost++
				failures++
			}
			if o.Attempts > 1 || last.Err != nil {
				hit++
			}
			held = max(held, o.Held)
		},
	})}
	defer client.CloseIdleConnections()

	var running sync.WaitGroup
	tick := time.Tick(time.Second / perSecond)
	for i := range requests {
		<-tick
		switch i {
		case stop:
			server.Close()
		case restart:
			if server, err = serve(address); err != nil {
				return err
			}
			defer server.Close()
		}
		running.Go(func() {
			if resp, err := client.Get("http://" + address); err == nil {
				resp.Body.Close()
			}
		})
	}
	running.Wait()
	fmt.Printf("%-17s the outage hit %d of %d requests; %d were lost; %.2f attempts each while down; held for %.1f s at most\n",
		how+":", hit, requests, lost, float64(failures)/float64(hit), held.Seconds())
	return nil
}

// serve serves until Close, which closes the port and all connections.
func serve(address string) (*http.Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: http.NotFoundHandler()} // a 404 is an answer like any other
	go server.Serve(listener)
	return server, nil
}
