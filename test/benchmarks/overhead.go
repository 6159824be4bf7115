package benchmarks

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/retryhttp/retryhttp"
)

// overhead is what the library adds to a request, beside what others add in the
// same run.
type overhead struct {
	goroutines []int
	first      []row[[]float64] // ns of a request, by goroutines; bare is the first
	retries    [][]row[cost]    // by failedBodies; the loop is the first
}

// firstAttempts measures a request that succeeds at once, from one goroutine and
// from more at the same time, up to most.
func (o *overhead) firstAttempts(rounds, n, most int) error {
	all, err := newLanes(most)
	if err != nil {
		return err
	}
	defer all.stop()
	o.goroutines = doubled(most)

	type entry struct {
		row[http.RoundTripper]
		lanes lanes
	}
	var entries []entry
	subjects := firstAttemptSubjects()
	for _, s := range subjects {
		for _, n := range o.goroutines {
			entries = append(entries, entry{s, all[:n]})
		}
	}
	costs, err := inTurns(rounds, entries, func(e entry) (cost, error) {
		c, err := e.lanes.run(e.got, n)
		return c, naming(e.name, err)
	})
	if err != nil {
		return err
	}
	for i, s := range subjects {
		ns := make([]float64, len(o.goroutines))
		for j := range ns {
			ns[j] = costs[i*len(ns)+j].ns
		}
		o.first = append(o.first, row[[]float64]{s.name, ns})
	}
	return nil
}

// doubled returns 1, 2, 4 and so on, and most.
func doubled(most int) (counts []int) {
	for n := 1; n < most; n *= 2 {
		counts = append(counts, n)
	}
	return append(counts, most)
}

func firstAttemptSubjects() []row[http.RoundTripper] {
	base := roundTripperFunc(inPlace)
	rehttp := peerNamed("rehttp").build(base, settings{attempts: 3}).(*http.Client).Transport
	return []row[http.RoundTripper]{
		{"bare", base},
		{"retryhttp, default policy", retryhttp.New(base, retryhttp.Policy{})},
		{"retryhttp, shared TokenBucket", retryhttp.New(base, retryhttp.Policy{Budget: new(retryhttp.TokenBucket)})},
		{"rehttp", rehttp},
	}
}

func nothing() {}

// failedBodies are the bodies that failed responses have. A library may know how
// some types behave, so each type is measured for itself.
//
// An http.Transport has goroutines, which the runtime moves from core to core as
// it likes. That makes more of a difference than some libraries do, so its bodies
// are measured on one core too.
var failedBodies = []struct {
	kind  string
	base  func() (base http.RoundTripper, stop func())
	cores int // 0: as many as there are
}{
	{kind: "a type of the benchmark's own", base: func() (http.RoundTripper, func()) {
		return failTwice(newShortBody), nothing
	}},
	{kind: "`io.NopCloser(strings.NewReader(…))`", base: func() (http.RoundTripper, func()) {
		return failTwice(newNopCloser), nothing
	}},
	{kind: "net/http's own, from an `http.Transport` over a connection in memory", base: failTwiceOverAConnection},
	{kind: "net/http's own, with GOMAXPROCS=1", base: failTwiceOverAConnection, cores: 1},
}

// failedTwice measures a GET that fails twice and then succeeds, among the peers
// that read failed responses. There is no garbage collection before a turn, as
// there is in measure: it empties the pools that some contenders have.
func (o *overhead) failedTwice(rounds, n int) error {
	among := slices.DeleteFunc(withFloor("a loop and nothing else", loop), func(p peer) bool {
		return p.retries && !readsFailures(p)
	})
	for _, b := range failedBodies {
		before := runtime.GOMAXPROCS(b.cores)
		rows, err := failedTwiceFrom(b.base, among, rounds, n)
		runtime.GOMAXPROCS(before)
		if err != nil {
			return err
		}
		o.retries = append(o.retries, rows)
	}
	return nil
}

func failedTwiceFrom(
	newBase func() (http.RoundTripper, func()), among []peer, rounds, n int,
) (rows []row[cost], err error) {
	var contenders []contender
	for _, p := range among {
		base, stop := newBase()
		defer stop()
		d := p.build(base, settings{attempts: 3, retryAll: true})
		contenders = append(contenders, contender{name: p.name, run: repeat(d, http.MethodGet, nowhere, nil)})
	}
	costs, err := inTurns(rounds, contenders, func(c contender) (cost, error) {
		took, err := measureTurn(n, c.run)
		return took, naming(c.name, err)
	})
	for i, c := range costs {
		rows = append(rows, row[cost]{among[i].name, c})
	}
	return rows, err
}

func naming(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// readsFailures reports whether p reads failed responses to their end.
func readsFailures(p peer) bool {
	var failed strings.Reader
	base := failTwice(func() io.ReadCloser {
		failed.Reset("try again later")
		return io.NopCloser(&failed)
	})
	err := send(p.build(base, settings{attempts: 3, retryAll: true}), http.MethodGet, nowhere, nil)
	return err == nil && failed.Len() == 0
}

func (o *overhead) firstTable() string {
	head := []string{"ns above bare"}
	for _, n := range o.goroutines {
		head = append(head, fmt.Sprintf("goroutines: %d", n))
	}
	bare := o.first[floor].got
	var rows [][]string
	for i, r := range o.first {
		cells := []string{r.name}
		for j, ns := range r.got {
			if i == floor {
				cells = append(cells, fmt.Sprintf("(%.0f)", ns))
			} else {
				cells = append(cells, fmt.Sprintf("%.0f", ns-bare[j]))
			}
		}
		rows = append(rows, cells)
	}
	return table(head, rows)
}

func (o *overhead) retriesTables() string {
	var text strings.Builder
	for i, rows := range o.retries {
		fmt.Fprintf(&text, "Failed bodies: %s.\n\n%s\n", failedBodies[i].kind, retriesTable(rows))
	}
	return text.String()
}

func retriesTable(costs []row[cost]) string {
	least := costs[floor].got
	quickest := cost{ns: math.Inf(1), cpu: math.Inf(1)} // of the others
	for _, r := range costs[ours+1:] {
		above := r.got.minus(least)
		quickest = cost{ns: min(quickest.ns, above.ns), cpu: min(quickest.cpu, above.cpu)}
	}
	rows := [][]string{{
		costs[floor].name,
		fmt.Sprintf("(%s)", nanoseconds(least.ns)), "",
		fmt.Sprintf("(%s)", nanoseconds(least.cpu)), "",
		fmt.Sprintf("(%.0f)", least.allocs),
	}}
	for _, r := range costs[ours:] {
		above := r.got.minus(least)
		rows = append(rows, []string{
			r.name,
			nanoseconds(above.ns), fmt.Sprintf("%.2f", above.ns/quickest.ns),
			nanoseconds(above.cpu), fmt.Sprintf("%.2f", above.cpu/quickest.cpu),
			count(above.allocs),
		})
	}
	head := []string{"above the loop", "time", "× the quickest peer", "CPU time", "× the quickest peer", "allocations"}
	return table(head, rows)
}
