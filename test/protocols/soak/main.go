// Command soak sends requests at random through one Transport for each protocol, HTTP/3 included, for
// the time that -for gives. A third of the requests are downloads. Half of the clients hedge what may
// be hedged. The servers and the network misbehave at random, and so does a Redis, by which the
// Transports share a budget: its master dies about twice a minute, and a replica takes over. The command
// checks that nothing is lost, repeated, mixed or leaked, that no two attempts of a write are under
// way at once, and that the process does not grow. Without redis-server it has no Redis. With more
// clients than the machine has time for, requests only meet their deadlines, and the command fails.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

var protocols = []*fault.Protocol{fault.HTTP1, fault.HTTP2, fault.HTTP2GoAway, http3World}

func main() {
	length := flag.Duration("for", 10*time.Minute, "how long, over all protocols side by side")
	clients := flag.Int("clients", 10, "how many requests at once over each protocol")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "what chance begins with")
	flag.Parse()
	fmt.Printf("%d clients of each protocol for %v, -seed %d\n", *clients, *length, *seed)
	soak := fault.Soak{Protocols: protocols, Clients: *clients, Seed: *seed}
	if err := run(soak, *length, func(line string) { fmt.Println(line) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("nothing lost, repeated, mixed or leaked")
}

// run soaks, with a budget in a Redis if there is one.
func run(soak fault.Soak, length time.Duration, tell func(string)) error {
	before := fault.TakeInventory()
	shared, err := startShared(tell)
	if err != nil {
		return err
	}
	if shared != nil {
		soak.Budget = shared.bucket
	}
	var size sizes
	var mu sync.Mutex
	start, told := time.Now(), map[*fault.Protocol]time.Duration{}
	totals, err := soak.Run(func(over *fault.Protocol, so fault.Tally) bool {
		mu.Lock()
		defer mu.Unlock()
		passed := time.Since(start)
		size.look(passed)
		if passed-told[over] > 30*time.Second {
			told[over] = passed
			tell(fmt.Sprintf("%4v  %s: %v", passed.Round(time.Second), over.Name, so))
		}
		return passed > length
	})
	for i, total := range totals {
		tell(fmt.Sprintf("%s: %v", protocols[i].Name, total))
	}
	tell(size.String())
	return errors.Join(err, shared.end(), size.grown(length), hurried(totals, length), before.Leaked(20*time.Second))
}

// hurried returns an error if the requests of a protocol hardly ever succeed in a soak of at least 10
// minutes. The faults leave more than half of them a success.
func hurried(totals []fault.Tally, length time.Duration) (err error) {
	if length < 10*time.Minute {
		return nil
	}
	for i, total := range totals {
		if total.Succeeded < total.Requests/3 {
			err = errors.Join(err, fmt.Errorf("%s: %d of %d requests succeeded: too many clients for this machine",
				protocols[i].Name, total.Succeeded, total.Requests))
		}
	}
	return err
}
