// Command soak sends requests at random through one Transport for each protocol, for the time that
// -for gives. A third of them are downloads. Half of the clients hedge what may be hedged. The
// server and the network misbehave at random. It checks that nothing is lost, repeated,
// mixed or leaked, and that no two attempts of a write are under way at once.
package main

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

func main() {
	length := flag.Duration("for", 10*time.Minute, "how long, over HTTP/1 and HTTP/2 side by side")
	clients := flag.Int("clients", 200, "how many requests at once over each protocol")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "what chance begins with")
	flag.Parse()
	fmt.Printf("%d clients of each protocol for %v, -seed %d\n", *clients, *length, *seed)
	if err := soak(fault.Soak{Clients: *clients, Seed: *seed}, *length); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("nothing lost, repeated, mixed or leaked")
}

func soak(s fault.Soak, length time.Duration) error {
	start := time.Now()
	tell := func(over fault.Protocol, so fault.Tally) {
		fmt.Printf("%v %5v  %v\n", over, time.Since(start).Round(time.Second), so)
	}
	told := make([]atomic.Int64, len(fault.Protocols)) // when
	totals, err := s.Run(func(over fault.Protocol, so fault.Tally) bool {
		if passed := time.Since(start); passed-time.Duration(told[over].Load()) > 10*time.Second {
			told[over].Store(int64(passed))
			tell(over, so)
		}
		return time.Since(start) > length
	})
	for i, total := range totals {
		tell(fault.Protocols[i], total)
	}
	return err
}
