package benchmarks

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp/internal/test/barchart"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// brokenReplica is how one replica of three fails, and how clients talk to all of them.
type brokenReplica struct {
	how      string
	serves   http.HandlerFunc
	protocol replicas.Protocol
}

var brokenReplicas = []brokenReplica{
	{"one answers 503", replicas.Status(http.StatusServiceUnavailable), replicas.HTTP1},
	{"one answers 503", replicas.Status(http.StatusServiceUnavailable), replicas.HTTP2},
	{"one hangs", replicas.Hang, replicas.HTTP1},
	{"one hangs", replicas.Hang, replicas.HTTP2},
}

// At a glance has these of brokenReplicas.
const http2With503, http2WithHang = 1, 3

// oneOfThreeBroken returns what a peer meets when the replica that it has used most breaks. The
// balancer has replicas take turns.
func oneOfThreeBroken(t *testing.T, p peer, b brokenReplica) (f replicas.Figures) {
	synctest.Test(t, func(*testing.T) { f = meetBroken(p, b) })
	return f
}

func meetBroken(p peer, b brokenReplica) replicas.Figures {
	w := replicas.New(b.protocol, 3)
	defer w.Close()
	pool := w.Transport()
	defer pool.CloseIdleConnections()
	d := p.build(pool, settings{
		attempts: 4, wait: 100 * time.Millisecond, attemptTimeout: 500 * time.Millisecond,
		hedge: hedge{after: 100 * time.Millisecond},
	})
	if own, ok := d.(interface{ CloseIdleConnections() }); ok { // connections beside the pool
		defer own.CloseIdleConnections()
	}
	client := roundTripperFunc(d.Do)
	w.Warm(client, 100)
	w.Busiest()[0].Serve(b.serves)
	return w.Drive(client, replicas.Load{Rate: 100, For: 8 * time.Second, Deadline: 5 * time.Second})
}

// inRealTime returns the successes of hedgedhttp, whose goroutines outlive a request and a bubble. It
// does not retry, and so is given a delay after which it hedges.
func inRealTime(p peer) []float64 {
	got := make([]float64, len(brokenReplicas))
	var all sync.WaitGroup
	for i, b := range brokenReplicas {
		all.Go(func() { got[i] = meetBroken(p, b).Success() })
	}
	all.Wait()
	return got
}

// once is the floor of oneOfThreeBroken: it sends the request once.
func once(base http.RoundTripper) doer { return &http.Client{Transport: base} }

func (r *report) replicasTable() string {
	head := []string{""}
	for _, b := range brokenReplicas {
		head = append(head, fmt.Sprintf("%s, %s", b.how, b.protocol))
	}
	var rows [][]string
	for _, p := range r.replicas {
		cells := []string{p.name}
		for _, success := range p.got {
			cells = append(cells, percent(success))
		}
		rows = append(rows, cells)
	}
	return table(head, rows)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// replicasPicture shows what the README quotes: HTTP/2, where all requests share a connection.
func (r *report) replicasPicture() string {
	chart := barchart.Chart{
		Title:   "One of three replicas is broken: requests that succeed, over HTTP/2",
		Head:    []string{"", "it answers 503", "it hangs"},
		Columns: []int{1, 2}, ByLine: true,
	}
	for _, row := range append(r.replicas[ours:len(r.replicas):len(r.replicas)], r.replicas[floor]) {
		chart.Rows = append(chart.Rows, []string{row.name, percent(row.got[http2With503]), percent(row.got[http2WithHang])})
	}
	return chart.SVG()
}
