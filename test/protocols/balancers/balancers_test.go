//go:build unix

package balancers_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// hidden hides an http.Transport from New, which then makes no detours.
type hidden struct{ http.RoundTripper }

func shown(base *http.Transport) http.RoundTripper { return base }
func hide(base *http.Transport) http.RoundTripper  { return hidden{base} }

// figures are what requests have met.
type figures struct {
	requests, succeeded int
	slowest             time.Duration
	from                map[string]int // successes, by replica
}

func (f figures) success() float64 { return float64(f.succeeded) / float64(f.requests) }

func (f figures) String() string {
	return fmt.Sprintf("%.1f %% of %d, the slowest after %v", 100*f.success(), f.requests, f.slowest.Round(time.Millisecond))
}

// client sends requests to a balancer.
type client struct {
	transport http.RoundTripper
	url       string
}

// send sends n requests at the pace, and waits for the last answer.
func (c client) send(n int, pace time.Duration) figures {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	f := figures{requests: n, from: map[string]int{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		<-ticker.C
		all.Go(func() {
			begin := time.Now()
			from, ok := c.get()
			mu.Lock()
			defer mu.Unlock()
			f.slowest = max(f.slowest, time.Since(begin))
			if ok {
				f.succeeded++
				f.from[from]++
			}
		})
	}
	all.Wait()
	return f
}

// get reports which replica has answered, and whether it has answered well.
func (c client) get() (replica string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return "", false
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Header.Get("Replica"), err == nil && resp.StatusCode == http.StatusOK
}

type (
	balance func(*testing.T, []*replica) (addr string)
	trouble func(*replica, *testing.T)
)

// meet has a client use three replicas for a while, breaks the one that it uses most, and returns what
// requests meet in the next two seconds.
func meet(t *testing.T, scheme string, balance balance, breaks trouble, base func(*http.Transport) http.RoundTripper) figures {
	t.Helper()
	replicas := make([]*replica, 3)
	for i := range replicas {
		replicas[i] = startReplica(t, scheme)
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 100,
		ForceAttemptHTTP2:   true,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
	}
	defer transport.CloseIdleConnections()
	url := scheme + "://" + balance(t, replicas)
	require.Eventually(t, func() bool {
		_, ok := client{transport, url}.get()
		return ok
	}, forever, tick)

	c := client{retryhttp.New(base(transport), retryhttp.Policy{AttemptTimeout: 300 * time.Millisecond}), url}
	c.send(24, time.Microsecond) // so many at once that HTTP/1 has connections to all replicas
	used := c.send(50, 10*time.Millisecond).from
	busiest := slices.MaxFunc(replicas, func(a, b *replica) int { return used[a.addr] - used[b.addr] })
	require.NotZero(t, used[busiest.addr])
	breaks(busiest, t)
	return c.send(200, 10*time.Millisecond)
}

func TestRetryAsksAnotherReplicaBehindARealBalancer(t *testing.T) {
	for balancer, of := range map[string]struct {
		start    balance
		troubles map[string]trouble
	}{
		"HAProxy": {startHAProxy, map[string]trouble{
			"killed":    (*replica).kill,
			"restarted": (*replica).restart,
			"stopped":   (*replica).stop,
			"503":       (*replica).spoil,
		}},
		"nginx": {startNginx, map[string]trouble{
			"stopped": (*replica).stop,
			"503":     (*replica).spoil,
		}},
	} {
		for trouble, breaks := range of.troubles {
			for protocol, scheme := range map[string]string{"HTTP/1": "http", "HTTP/2": "https"} {
				t.Run(balancer+" "+trouble+" "+protocol, func(t *testing.T) {
					t.Parallel()
					with := meet(t, scheme, of.start, breaks, shown)
					without := meet(t, scheme, of.start, breaks, hide)
					t.Logf("%v; without detours: %v", with, without)
					assert.GreaterOrEqual(t, with.success(), 0.98)
					// Elsewhere the connection to the replica does not last, and a retry through the pool does as well.
					if trouble == "503" || trouble == "stopped" && protocol == "HTTP/2" {
						assert.LessOrEqual(t, without.success(), with.success())
					}
				})
			}
		}
	}
}
