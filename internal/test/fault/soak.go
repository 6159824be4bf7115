package fault

import (
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp"
)

// Soak is many clients of each Protocol that share a Transport, and a server and a network that
// fail them at random.
type Soak struct {
	Protocols []*Protocol
	Clients   int // of each Protocol
	Seed      uint64
	Budget    retryhttp.Budget // of all of them; nil is Unlimited
}

// Tally counts what came of requests.
type Tally struct {
	Requests  int
	Attempts  int
	Hedges    int // of the attempts
	Won       int // of the hedges
	Detours   int // attempts that took a connection beside the pool
	Succeeded int
	Spoiled   int // a success whose body broke
	Responses int // that are not a success
	Errors    int

	Downloads int // of the requests
	Resumed   int // of the downloads
	Completed int // of the downloads that were resumed
}

func (t Tally) String() string {
	return fmt.Sprintf("%d requests, %d attempts, %d of them hedges, of which %d won, and %d on detours: "+
		"%d succeeded, %d broke off in the answer, %d ended in another response, %d in an error; "+
		"%d downloads, %d resumed, %d of these came whole",
		t.Requests, t.Attempts, t.Hedges, t.Won, t.Detours, t.Succeeded, t.Spoiled, t.Responses, t.Errors,
		t.Downloads, t.Resumed, t.Completed)
}

func (t *Tally) add(r Result) {
	t.Requests++
	t.Attempts += r.Outcome.Attempts
	t.Hedges += r.Outcome.Hedges
	if r.Outcome.HedgeWon {
		t.Won++
	}
	switch {
	case r.Err != nil:
		t.Errors++
	case r.Whole:
		t.Succeeded++
	case r.Status == http.StatusOK, r.Status == http.StatusPartialContent:
		t.Spoiled++
	default:
		t.Responses++
	}
}

// Run soaks over all Protocols side by side until enough returns true for each, and returns what came of
// the requests, in the order of Protocols, and what was wrong. It asks a few times each second, with what
// there is so far.
func (s Soak) Run(enough func(*Protocol, Tally) bool) ([]Tally, error) {
	// net/http logs answers that nobody asked for.
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	tallies, errs := make([]Tally, len(s.Protocols)), make([]error, len(s.Protocols))
	var wg sync.WaitGroup
	for i, over := range s.Protocols {
		wg.Go(func() { tallies[i], errs[i] = s.over(over, enough) })
	}
	wg.Wait()
	return tallies, errors.Join(errs...)
}

func (s Soak) over(over *Protocol, enough func(*Protocol, Tally) bool) (Tally, error) {
	run, err := s.start(over)
	if err != nil {
		return Tally{}, fmt.Errorf("%s: %w", over.Name, err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for c := range s.Clients {
		wg.Go(func() { run.client(run.context(c), rand.New(rand.NewPCG(s.Seed, uint64(c))), stop) })
	}
	for !enough(over, run.sofar()) {
		time.Sleep(200 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	if err = errors.Join(run.err, run.end()); err != nil {
		err = fmt.Errorf("%s: %w", over.Name, err)
	}
	return run.sofar(), err
}
