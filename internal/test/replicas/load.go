package replicas

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Load is requests at a constant rate.
type Load struct {
	Rate     float64       // requests a second
	For      time.Duration // for so long
	Deadline time.Duration // of each request
}

// Figures are what a Load has met.
type Figures struct {
	Requests, Succeeded int
	Attempts            float64 // that reached a replica, for each request
	Conns               int     // dialed meanwhile
	P50, P95, P99       time.Duration
	Share               []float64 // of the replicas in the attempts
}

// Success returns the share of the requests that succeeded.
func (f Figures) Success() float64 { return float64(f.Succeeded) / float64(f.Requests) }

func (f Figures) String() string {
	return fmt.Sprintf("%5.1f %% of %d, %.3f attempts, %d connections, p50 %v, p95 %v, p99 %v, shares %.2f",
		100*f.Success(), f.Requests, f.Attempts, f.Conns, f.P50.Round(time.Millisecond),
		f.P95.Round(time.Millisecond), f.P99.Round(time.Millisecond), f.Share)
}

// Drive sends load to the World through client, and waits for the last answer.
func (w *World) Drive(client http.RoundTripper, load Load) Figures {
	var f Figures
	var took []time.Duration
	var mu sync.Mutex
	var all sync.WaitGroup
	conns, requests := w.Dials(), w.Requests()
	each := make([]int64, len(w.Replicas))
	for i, r := range w.Replicas {
		each[i] = r.Requests.Load()
	}
	begin := time.Now()
	for n := range int(load.Rate * load.For.Seconds()) {
		time.Sleep(time.Until(begin.Add(time.Duration(float64(n) / load.Rate * float64(time.Second)))))
		all.Go(func() {
			at := time.Now()
			ok := w.get(client, load.Deadline)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(at))
			f.Requests++
			if ok {
				f.Succeeded++
			}
		})
	}
	all.Wait()
	sent := w.Requests() - requests
	f.Conns, f.Attempts = w.Dials()-conns, float64(sent)/float64(f.Requests)
	for i, r := range w.Replicas {
		f.Share = append(f.Share, float64(r.Requests.Load()-each[i])/float64(max(sent, 1)))
	}
	slices.Sort(took)
	f.P50, f.P95, f.P99 = took[len(took)/2], took[len(took)*95/100], took[len(took)*99/100]
	return f
}

func (w *World) get(client http.RoundTripper, deadline time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL(), nil)
	if err != nil {
		return false
	}
	resp, err := client.RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}

// Warm opens connections to all replicas, and has them used for a second.
func (w *World) Warm(client http.RoundTripper, rate float64) {
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() { w.get(client, 5*time.Second) })
	}
	all.Wait()
	w.Drive(client, Load{Rate: max(rate, 1), For: time.Second, Deadline: 5 * time.Second})
}

// Busiest returns the replicas, with the ones first that got most of the requests of late, so that
// a test breaks what a client leans on.
func (w *World) Busiest() []*Replica {
	all := slices.Clone(w.Replicas)
	slices.SortStableFunc(all, func(a, b *Replica) int { return int(b.Requests.Load() - a.Requests.Load()) })
	return all
}
