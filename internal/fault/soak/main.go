// Command soak sends requests at random through one Transport for as long as it
// is told, to a server and over a network that misbehave at random, and checks
// that nothing is lost, repeated, mixed or leaked.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/retryhttp/retryhttp/internal/fault"
)

func main() {
	length := flag.Duration("for", 10*time.Minute, "how long")
	clients := flag.Int("clients", 200, "how many requests at once")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "what chance begins with")
	http2 := flag.Bool("http2", false, "speak HTTP/2")
	flag.Parse()

	fmt.Printf("%d clients for %v, -seed %d\n", *clients, *length, *seed)
	s := fault.Soak{Clients: *clients, Seed: *seed, HTTP2: *http2}
	stop := make(chan struct{})
	time.AfterFunc(*length, func() { close(stop) })
	start := time.Now()
	total, err := s.Run(stop, func(so fault.Tally) {
		fmt.Printf("%8v  %v\n", time.Since(start).Round(time.Second), so)
	})
	fmt.Println(total)
	if err != nil {
		fmt.Fprintln(os.Stderr, errors.Join(err, fmt.Errorf("-seed %d", *seed)))
		os.Exit(1)
	}
	fmt.Println("nothing lost, repeated, mixed or leaked")
}
