// Command soak sends requests at random through one Transport, for the time that -for
// gives. A third of them are downloads. Half of the clients hedge what may be hedged. The
// server and the network misbehave at random. It checks that nothing is lost, repeated,
// mixed or leaked, and that no two attempts of a write are under way at once.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

func main() {
	length := flag.Duration("for", 10*time.Minute, "how long, two thirds of it over HTTP/2")
	clients := flag.Int("clients", 200, "how many requests at once")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "what chance begins with")
	flag.Parse()
	fmt.Printf("%d clients for %v, -seed %d\n", *clients, *length, *seed)
	protocols := []fault.Protocol{fault.HTTP1, fault.HTTP2, fault.HTTP2GoAway}
	for _, over := range protocols {
		s := fault.Soak{Clients: *clients, Seed: *seed, Over: over}
		if err := soak(s, *length/time.Duration(len(protocols))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println("nothing lost, repeated, mixed or leaked")
}

func soak(s fault.Soak, length time.Duration) error {
	start := time.Now()
	told := start
	tell := func(so fault.Tally) {
		fmt.Printf("%v %5v  %v\n", s.Over, time.Since(start).Round(time.Second), so)
		told = time.Now()
	}
	total, err := s.Run(func(so fault.Tally) bool {
		if time.Since(told) > 10*time.Second {
			tell(so)
		}
		return time.Since(start) > length
	})
	tell(total)
	return err
}
