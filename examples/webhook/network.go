package main

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// network is a RoundTripper with 2,000 hosts, which it counts for.
type network struct {
	hosts [2000]server
	done  func() // called when all that can be delivered has been

	mu                               sync.Mutex // guards all below, and the servers
	left                             int
	answered                         map[string]bool // by Idempotency-Key; false until the sender has the answer
	lost, repeated, twice, early, of int
	dead                             int // attempts at dead hosts
}

const forever = time.Hour

// server is a host. An event is applied once, whatever the number of its attempts.
type server struct {
	latency        time.Duration // forever if the host is dead
	slow, limited  bool          // limited: it takes 20 deliveries, and then none for a second
	underWay, most int
	taken          int
	closed         time.Time // until then
}

func newNetwork(dead int, done func()) *network {
	n := &network{done: done, answered: map[string]bool{}}
	for i := range n.hosts {
		h := &n.hosts[i]
		h.latency = 6 * time.Millisecond
		switch {
		case i < dead:
			h.latency = forever
			continue
		case i%100 == 98:
			h.slow, h.latency = true, 350*time.Millisecond
		case i%100 == 99:
			h.limited = true
		}
		n.left += deliveries / len(n.hosts)
	}
	n.of = n.left
	return n
}

func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	defer req.Body.Close()
	var number int
	if _, err := fmt.Sscanf(req.URL.Host, "host-%d.example", &number); err != nil {
		return nil, err
	}
	h := &n.hosts[number]
	if !n.begin(h) {
		return answer(req, http.StatusTooManyRequests, http.Header{"Retry-After": {"1"}}), nil
	}
	defer n.end(h)
	timer := time.NewTimer(h.latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return n.apply(h, req)
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

func (n *network) begin(h *server) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Now().Before(h.closed) {
		n.early++
		return false
	}
	if h.latency == forever {
		n.dead++
	}
	h.underWay++
	h.most = max(h.most, h.underWay)
	return true
}

func (n *network) end(h *server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h.underWay--
}

// apply applies a delivery, unless it has been applied. The answer to one in a thousand is lost.
func (n *network) apply(h *server, req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := req.Header.Get("Idempotency-Key")
	answered, applied := n.answered[id]
	switch {
	case answered:
		n.twice++ // the sender should have known
	case applied:
		n.repeated++
	case len(n.answered)%1000 == 999 && !h.slow:
		n.lost++
		n.answered[id] = false
		return nil, io.ErrUnexpectedEOF
	default:
		n.answered[id] = false
	}
	header := http.Header{}
	if h.taken++; h.limited && h.taken == 20 {
		h.taken, h.closed = 0, time.Now().Add(time.Second)
		header.Set("RateLimit", `"default";r=0;t=1`)
	}
	resp := answer(req, http.StatusOK, header)
	resp.Body = receipt{n, id}
	return resp, nil
}

// receipt is a response body, which the sender reads if it has the answer. An attempt may have timed out.
type receipt struct {
	n  *network
	id string
}

func (r receipt) Read([]byte) (int, error) {
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	if !r.n.answered[r.id] {
		r.n.answered[r.id] = true
		if r.n.left--; r.n.left == 0 {
			r.n.done()
		}
	}
	return 0, io.EOF
}

func (r receipt) Close() error { return nil }

func (n *network) String() string {
	most := 0
	for i := range n.hosts {
		if h := &n.hosts[i]; h.slow {
			most = max(most, h.most)
		}
	}
	return fmt.Sprintf("%d of %d delivered, %d twice; %d answers lost, %d repeated with the same key;\n"+
		"  %d sent too early to the limited hosts; at most %d at once to a slow host",
		n.of-n.left, n.of, n.twice, n.lost, n.repeated, n.early, most)
}

func answer(req *http.Request, status int, header http.Header) *http.Response {
	return &http.Response{StatusCode: status, Request: req, Header: header, Body: http.NoBody}
}
