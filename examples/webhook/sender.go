package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp"
)

const (
	perHost      = 2               // deliveries under way to one host, so that a slow host has few workers
	firstPause   = 3 * time.Second // of a host after a failure; each further failure doubles it
	longestPause = time.Hour       // a host that has come back is found out by then

	longestAnswer = 16 << 10 // bytes
)

// sender has a queue for each host. A sender with many more hosts would order them by their times
// instead of looking at all of them in turn, and would keep their queues in a database.
type sender struct {
	client *http.Client
	gate   *retryhttp.Gate
	hosts  []*host

	mu sync.Mutex // guards the hosts
}

type host struct {
	request  *http.Request // stands for all requests to the host
	waiting  []string      // the ids of its deliveries, oldest first
	underWay int
	due      time.Time // nothing is sent before
	pause    time.Duration
}

func newSender(client *http.Client, gate *retryhttp.Gate, hosts int) *sender {
	s := &sender{client: client, gate: gate}
	for i := range hosts {
		request, _ := http.NewRequest(http.MethodPost, fmt.Sprintf("http://host-%d.example/", i), nil)
		s.hosts = append(s.hosts, &host{request: request})
	}
	for i := range deliveries {
		h := s.hosts[i%hosts]
		h.waiting = append(h.waiting, fmt.Sprint("delivery-", i))
	}
	return s
}

// run gives the workers one delivery of each host in turn, until ctx ends.
func (s *sender) run(ctx context.Context) {
	var working sync.WaitGroup
	jobs := make(chan func())
	for range workers {
		working.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	for ctx.Err() == nil {
		found := false
		for _, h := range s.hosts {
			if id, ok := s.take(h); ok {
				found = true
				jobs <- func() { s.end(h, id, s.deliver(ctx, h, id)) }
			}
		}
		if !found {
			time.Sleep(time.Millisecond)
		}
	}
	close(jobs)
	working.Wait()
}

// take takes the oldest delivery out of the host's queue, unless the host has enough under way or
// had better be left alone.
func (s *sender) take(h *host) (id string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(h.waiting) == 0 || now.Before(h.due) || h.underWay >= perHost {
		return "", false
	}
	status := s.gate.Status(h.request)
	if status.Closed > 0 {
		h.due = now.Add(status.Closed) // the host has said when it is to be asked again
		return "", false
	}
	if (status.Down || h.pause > 0) && h.underWay > 0 {
		return "", false // one delivery at a time finds out whether the host is up again
	}
	id, h.waiting = h.waiting[0], h.waiting[1:]
	h.underWay++
	return id, true
}

// deliver reports whether the host has accepted the delivery. The same id is the same key, however
// often it is sent.
func (s *sender) deliver(ctx context.Context, h *host, id string) bool {
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, h.request.URL.String(), strings.NewReader(`{"paid": true}`))
	req.Header.Set("Idempotency-Key", id)
	resp, err := s.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	// The status is the verdict. A short answer is read, so that its connection serves again. A receiver
	// may send a long answer, or a slow one, which must not keep the worker.
	_, _ = io.CopyN(io.Discard, resp.Body, longestAnswer)
	return resp.StatusCode < 300
}

// end puts a delivery that has failed back into the host's queue. The host then has a pause, unless
// the host itself has said when to come back.
func (s *sender) end(h *host, id string, delivered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.underWay--
	if delivered {
		h.pause = 0
		return
	}
	h.waiting = append(h.waiting, id)
	if s.gate.Status(h.request).Closed == 0 {
		h.pause = min(max(2*h.pause, firstPause), longestPause)
		h.due = time.Now().Add(h.pause)
	}
}
