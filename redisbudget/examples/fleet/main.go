// Fleet shows two processes that share one budget. The second process does not retry, because
// the first process has spent the tokens of both.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	engine, err := miniredis.Run() // stands in for a Redis server
	if err != nil {
		return err
	}
	defer engine.Close()
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	one, two := newProcess("process 1", engine.Addr()), newProcess("process 2", engine.Addr())
	defer one.close()
	defer two.close()
	for _, p := range []*process{one, two} {
		if err := p.get(server.URL); err != nil {
			return err
		}
		p.await(server.URL, func(tokens float64) bool { return tokens == 4 })
	}
	down.Store(true)
	for _, left := range []float64{2, 0, 0} {
		if err := one.get(server.URL); err != nil {
			return err
		}
		one.await(server.URL, func(tokens float64) bool { return tokens == left })
	}
	two.await(server.URL, func(tokens float64) bool { return tokens < 1 })
	return two.get(server.URL)
}

// process holds what each process of a fleet has.
type process struct {
	name   string
	redis  *redis.Client
	bucket *redisbudget.Bucket
	client *http.Client
}

func newProcess(name, addr string) *process {
	p := &process{name: name, redis: redis.NewClient(&redis.Options{Addr: addr})}
	p.bucket = &redisbudget.Bucket{
		Client:   p.redis,
		Burst:    4,
		Interval: 100 * time.Millisecond, // less than the default, to make the example fast
	}
	p.client = &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{
		MaxAttempts: 3,
		Backoff:     retryhttp.Constant(0),
		Gate:        &retryhttp.Gate{Hold: -1}, // switched off: a Gate would hold the retries
		Budget:      p.bucket,
	})}
	return p
}

// get sends a request and prints its outcome.
func (p *process) get(url string) error {
	resp, err := p.client.Get(url)
	if err != nil {
		return err
	}
	resp.Body.Close()
	o := retryhttp.OutcomeOf(resp)
	fmt.Printf("%s: %d after %d attempts, stop: %s\n", p.name, resp.StatusCode, o.Attempts, o.Stop)
	return nil
}

// await waits until the balance that the process knows is as wanted.
func (p *process) await(url string, wanted func(tokens float64) bool) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	for !wanted(p.bucket.Status(req).Tokens) {
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *process) close() {
	p.client.CloseIdleConnections()
	if err := p.bucket.Close(); err != nil {
		log.Print(err)
	}
	p.redis.Close()
}
