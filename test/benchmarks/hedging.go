package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// hedged is what was measured of the peers that hedge.
type hedged struct {
	armed  []row[armed] // bare is the first
	opened []row[int64]
	steps  []row[[]float64] // by round
	probes []row[[]verdict] // by hedgeProbes
}

// armed is what a request costs whose hedge is not sent.
type armed struct {
	result
	ending  float64 // allocations above the floor, with a context that ends
	helpers helpers
}

// helpers are the goroutines that a request needs beside its caller's.
type helpers struct {
	other   bool    // the base is called in another one
	started float64 // per request
}

func (h helpers) String() string {
	if h.other || h.started >= 0.5 {
		return "1 or more"
	}
	return "none"
}

// enoughAnswers is how many answers all have that hedge at a quantile.
const enoughAnswers = 200

// armedHedges measures requests that are answered long before a hedge is due.
func armedHedges(rounds, n int) ([]row[armed], error) {
	among := append([]peer{peers[floor], hedgers[0], oursAtTheQuantile}, hedgers[1:]...)
	var plain, ending []contender
	used := make([]helpers, len(among))
	for i, p := range among {
		d := p.build(roundTripperFunc(succeed), settings{hedge: hedge{after: time.Hour}})
		run := repeat(d, http.MethodGet, nowhere, nil)
		plain, ending = append(plain, contender{name: p.name, run: run}), append(ending, contender{name: p.name, run: repeatEnding(d)})
		err := run(enoughAnswers)
		if err == nil {
			used[i], err = helpersOf(p)
		}
		if err != nil {
			return nil, naming(p.name, err)
		}
	}
	costs, err := compare(rounds, n, plain)
	if err != nil {
		return nil, err
	}
	counted, err := compare(3, enoughAnswers, ending)
	if err != nil {
		return nil, err
	}
	rows := make([]row[armed], len(among))
	for i, p := range among {
		rows[i] = row[armed]{p.name, armed{costs[i], counted[i].above.allocs, used[i]}}
	}
	return rows, nil
}

// repeatEnding sends requests that each have a context of their own, as a time limit makes it.
func repeatEnding(d doer) func(int) error {
	return func(n int) error {
		for range n {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			err := sendWithin(ctx, d, http.MethodGet, nowhere, nil)
			cancel()
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// helpersOf sends requests whose hedge is not sent.
func helpersOf(p peer) (used helpers, err error) {
	caller := goroutineID()
	run := repeat(p.build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if goroutineID() != caller {
			used.other = true
		}
		return succeed(req)
	}), settings{hedge: hedge{after: time.Hour}}), http.MethodGet, nowhere, nil)
	if err := run(enoughAnswers); err != nil {
		return used, err
	}
	before := goroutinesStarted()
	err = run(enoughAnswers)
	used.started = float64(goroutinesStarted()-before) / enoughAnswers
	return used, err
}

// goroutineID returns the number of the goroutine that calls it.
func goroutineID() string {
	var buf [64]byte
	id, _, _ := strings.Cut(string(buf[:runtime.Stack(buf[:], false)]), " [")
	return id
}

// goroutinesStarted returns how many goroutines this process has started so far.
func goroutinesStarted() uint64 {
	samples := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}

// lateHedges is a server that answers the first attempt of a request once the hedge has
// arrived, and the hedge once the request is over.
type lateHedges struct {
	requests []lateHedge // by their path
}

type lateHedge struct{ hedged, over chan struct{} }

func newLateHedges(n int) *lateHedges {
	l := &lateHedges{make([]lateHedge, n)}
	for i := range l.requests {
		l.requests[i] = lateHedge{make(chan struct{}), make(chan struct{})}
	}
	return l
}

func (l *lateHedges) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	i, err := strconv.Atoi(req.URL.Path[1:])
	if err != nil {
		panic(err) // it is our own request
	}
	r := l.requests[i]
	wait := r.hedged
	if isHedge(req) {
		close(r.hedged)
		wait = r.over
	}
	select {
	case <-wait:
		_, _ = io.WriteString(w, "ok")
	case <-req.Context().Done():
	}
}

// numbering is a base that numbers the attempts of a request, for the server.
type numbering struct {
	http.RoundTripper
	sent atomic.Int64
}

const attemptHeader = "Attempt"

func (n *numbering) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set(attemptHeader, strconv.FormatInt(n.sent.Add(1), 10))
	return n.RoundTripper.RoundTrip(req)
}

func isHedge(req *http.Request) bool { return req.Header.Get(attemptHeader) != "1" }

// hedgeDelay is long enough for the first attempt to be sent before its hedge.
const hedgeDelay = 2 * time.Millisecond

// hedgedConnections returns how many connections n requests open, one after the other. Each
// is hedged, and its first attempt wins.
func hedgedConnections(p peer, n int) (int64, error) {
	late := newLateHedges(n)
	s := serve(late)
	defer s.stop()
	numbers := &numbering{RoundTripper: s.base}
	d := p.build(numbers, settings{hedge: hedge{after: hedgeDelay, all: true}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range n {
		numbers.sent.Store(0)
		err := sendWithin(ctx, d, http.MethodGet, s.url+"/"+strconv.Itoa(i), nil)
		close(late.requests[i].over)
		if err != nil {
			return 0, err
		}
	}
	return s.opened.Load(), nil
}

// stepping is a base in memory that turns slow.
type stepping struct {
	latency, attempts atomic.Int64
}

func (s *stepping) RoundTrip(req *http.Request) (*http.Response, error) {
	s.attempts.Add(1)
	if !waitFor(time.Duration(s.latency.Load()), req.Context().Done()) {
		return nil, req.Context().Err()
	}
	return succeed(req)
}

// waitFor waits for d. It returns false if over is closed before.
func waitFor(d time.Duration, over <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-over:
		return false
	}
}

const (
	crowd        = 200 // requests at once
	steadyRounds = 10
	usualLatency = time.Millisecond
	// stepDelay leaves a busy machine time to answer before it.
	stepDelay = 50 * time.Millisecond
	// slowLatency is longer than resty's delay and what it adds to it.
	slowLatency = time.Second
)

// stepped are the peers whose extra load is measured: with a fixed delay, at a quantile, and
// with the options that bound it.
var stepped = append([]peer{hedgers[0], oursAtTheQuantile}, append(slices.Clone(hedgers[1:]),
	failsafeAtTheQuantile, failsafeWithBudget)...)

// atOnce measures all at once, since they do little but wait.
func atOnce[T any](among []peer, measure func(peer) (T, error)) ([]row[T], error) {
	rows := make([]row[T], len(among))
	errs := make([]error, len(among))
	var group sync.WaitGroup
	for i, p := range among {
		group.Go(func() {
			got, err := measure(p)
			rows[i], errs[i] = row[T]{p.name, got}, naming(p.name, err)
		})
	}
	group.Wait()
	return rows, errors.Join(errs...)
}

// step returns how many attempts there were for each request, in each round after the step.
func step(p peer, rounds int) (attempts []float64, err error) {
	base := new(stepping)
	base.latency.Store(int64(usualLatency))
	d := p.build(base, settings{hedge: hedge{after: stepDelay}})
	for range steadyRounds {
		if err := sendCrowd(d); err != nil {
			return nil, err
		}
	}
	waitFor(stepDelay, nil) // in which hedges come that were sent at the last moment
	base.latency.Store(int64(slowLatency))
	for range rounds {
		base.attempts.Store(0)
		if err := sendCrowd(d); err != nil {
			return nil, err
		}
		attempts = append(attempts, float64(base.attempts.Load())/crowd)
	}
	return attempts, nil
}

// sendCrowd sends many requests at once.
func sendCrowd(d doer) error {
	var group sync.WaitGroup
	errs := make([]error, crowd)
	for i := range errs {
		group.Go(func() { errs[i] = send(d, http.MethodGet, nowhere, nil) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func (h *hedged) armedTable() string {
	var rows [][]string
	for i, r := range h.armed {
		cells := []string{r.name, nanoseconds(r.got.above.ns), count(r.got.above.allocs), count(r.got.ending), r.got.helpers.String()}
		if i == floor {
			cells = []string{r.name, "(" + nanoseconds(r.got.ns) + ")", fmt.Sprintf("(%.0f)", r.got.allocs), "", ""}
		}
		rows = append(rows, cells)
	}
	return table([]string{
		"above bare", "time", "allocations", "allocations, with a context that ends", "goroutines beside the caller's",
	}, rows)
}

func (h *hedged) openedTable() string {
	var rows [][]string
	for _, r := range h.opened {
		rows = append(rows, []string{r.name, fmt.Sprint(r.got)})
	}
	return table([]string{"", "connections"}, rows)
}

func (h *hedged) stepTable() string {
	var rows [][]string
	for _, r := range h.steps {
		rows = append(rows, []string{r.name, fmt.Sprintf("%.2f", r.got[0]), fmt.Sprintf("%.2f", mean(r.got))})
	}
	return table([]string{"attempts per request", "first second", "whole step"}, rows)
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}
