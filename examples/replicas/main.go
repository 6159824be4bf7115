// Replicas shows a service of three replicas, of which one is broken. A balancer in front of them
// chooses a replica for each connection, and not for each request. The example compares retries that
// take another connection to retries that do not.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/retryhttp/retryhttp"
)

const requests = 20

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	var replicas []string // their addresses
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusOK, http.StatusOK} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if status == http.StatusOK {
				time.Sleep(20 * time.Millisecond) // an answer takes longer than a failure
			}
			w.WriteHeader(status)
		}))
		defer server.Close()
		replicas = append(replicas, server.Listener.Addr().String())
	}
	return errors.Join(
		measure("with detours", nil, replicas),
		measure("without detours", hidden{http.DefaultTransport}, replicas),
	)
}

// hidden hides an http.Transport from New, so that New makes no Base of it.
type hidden struct{ http.RoundTripper }

// measure sends requests one after another, and prints how many succeed.
func measure(how string, base http.RoundTripper, replicas []string) error {
	balancer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer balancer.Close()
	go balance(balancer, replicas)

	succeeded, detours := 0, 0
	client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{
		Backoff: retryhttp.FullJitter(time.Millisecond, 10*time.Millisecond),
		OnDone: func(last retryhttp.Attempt, _ retryhttp.Outcome) {
			if last.Detour {
				detours++
			}
		},
	})}
	defer client.CloseIdleConnections()
	for range requests {
		resp, err := client.Get("http://" + balancer.Addr().String())
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			succeeded++
		}
	}
	fmt.Printf("%-16s %2d of %d requests succeeded, %2d took a detour\n", how+":", succeeded, requests, detours)
	return nil
}

// balance gives each connection to the next replica, until the balancer is closed.
func balance(balancer net.Listener, replicas []string) {
	for n := 0; ; n++ {
		client, err := balancer.Accept()
		if err != nil {
			return
		}
		go forward(client, replicas[n%len(replicas)])
	}
}

// forward copies bytes in both directions, until the client or the replica closes its connection.
func forward(client net.Conn, address string) {
	defer client.Close()
	replica, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer replica.Close()
	go func() {
		defer replica.Close()
		io.Copy(replica, client)
	}()
	io.Copy(client, replica)
}
