package benchmarks

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// lanes are goroutines that send at once. They are started once, since to start
// a goroutine costs as much as several requests.
type lanes []*lane

// lane is one goroutine, with a request and a response of its own. The padding
// keeps what two lanes write out of each other's cache lines.
type lane struct {
	_          [128]byte
	req        http.Request
	resp       http.Response
	turns      chan *turn
	start, end time.Time
	err        error
	_          [128]byte
}

// turn is for several lanes at once.
type turn struct {
	rt      http.RoundTripper
	n       int          // requests for each lane
	crowded bool         // more lanes than cores
	waiting atomic.Int64 // lanes that have not come to the start
	done    sync.WaitGroup
}

func newLanes(n int) (lanes, error) {
	all := make(lanes, n)
	for i := range all {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, nowhere, nil)
		if err != nil {
			return nil, err
		}
		l := &lane{req: *req, turns: make(chan *turn)}
		l.resp = *answer(&l.req, http.StatusOK, http.NoBody)
		l.req.Response = &l.resp
		all[i] = l
		go l.serve()
	}
	return all, nil
}

// inPlace is a base in memory that shares nothing between requests, and
// allocates nothing: the response comes with the request.
func inPlace(req *http.Request) (*http.Response, error) {
	resp := req.Response
	resp.Request, resp.Body = req, http.NoBody // which the last RoundTrip may have replaced
	return resp, nil
}

func (l *lane) serve() {
	for t := range l.turns {
		t.meet()
		l.start = time.Now()
		l.err = sendTo(t.rt, &l.req, t.n)
		l.end = time.Now()
		t.done.Done()
	}
}

// meet waits until all lanes are there. It spins, and gives its core to no other
// lane, so that each lane has a core when the turn starts. Lanes that park would
// often be woken one after the other on the same core.
func (t *turn) meet() {
	t.waiting.Add(-1)
	for t.waiting.Load() > 0 {
		if t.crowded {
			runtime.Gosched()
		}
	}
}

// sendTo sends req n times to rt itself, without an http.Client, which would
// cost more than what is measured.
func sendTo(rt http.RoundTripper, req *http.Request, n int) error {
	for range n {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
	}
	return nil
}

// run has the lanes send n requests each to rt. The time counts from the first
// lane's start to the last lane's end, so that lanes that wait for each other
// show. It is for each request of a lane, so that it stays as it is when twice
// the lanes do twice as much on twice the cores.
func (all lanes) run(rt http.RoundTripper, n int) (cost, error) {
	cores := runtime.GOMAXPROCS(0)
	t := &turn{rt: rt, n: n, crowded: len(all) > cores}
	t.waiting.Store(int64(len(all)))
	t.done.Add(len(all))
	for _, l := range all {
		l.turns <- t
	}
	t.done.Wait()
	first, last := all[0].start, all[0].end
	for _, l := range all {
		if l.err != nil {
			return cost{}, l.err
		}
		if l.start.Before(first) {
			first = l.start
		}
		if l.end.After(last) {
			last = l.end
		}
	}
	lanesToACore := max(1, float64(len(all))/float64(cores))
	return cost{ns: float64(last.Sub(first)) / float64(n) / lanesToACore}, nil
}

func (all lanes) stop() {
	for _, l := range all {
		close(l.turns)
	}
}
