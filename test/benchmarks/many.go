package benchmarks

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// connections returns how many connections n requests open, one after the other,
// each of which fails twice with a body of a size.
func connections(p peer, n, bodySize int) (int64, error) {
	body := make([]byte, bodySize)
	attempts := make(map[string]int)
	var mu sync.Mutex
	s := serve(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		attempts[req.URL.Path]++
		failed := attempts[req.URL.Path] < 3
		mu.Unlock()
		if failed {
			w.Header().Set("Content-Length", strconv.Itoa(bodySize))
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(body)
		}
	}))
	defer s.stop()
	d := p.build(s.base, settings{attempts: 3, retryAll: true})
	for i := range n {
		if err := send(d, "GET", s.url+"/"+strconv.Itoa(i), nil); err != nil {
			return 0, err
		}
	}
	return s.opened.Load(), nil
}

// asleep is what requests cost that wait for their next attempt.
type asleep struct {
	bytes      float64 // each
	cancel     time.Duration
	cancelable bool
}

// sleepers has n requests wait for an hour in a bubble, and cancels them all.
func sleepers(t *testing.T, p peer, n int) (a asleep) {
	synctest.Test(t, func(t *testing.T) {
		client := p.build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return answer(req, http.StatusServiceUnavailable, http.NoBody), nil
		}), settings{attempts: 3, wait: time.Hour, retryAll: true})
		ctx, cancel := context.WithCancel(t.Context())
		before := live()
		var group sync.WaitGroup
		for range n {
			group.Go(func() {
				req, err := newRequest(ctx, "GET", nowhere, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := client.Do(req); err == nil {
					resp.Body.Close()
				}
			})
		}
		synctest.Wait()
		a.bytes = (live() - before) / float64(n)
		virtual, real := time.Now(), wallClock()
		cancel()
		group.Wait()
		a.cancel, a.cancelable = wallClock()-real, time.Since(virtual) == 0
	})
	return a
}

// wallClock is the time, in a bubble as well.
func wallClock() time.Duration {
	var now syscall.Timeval
	if err := syscall.Gettimeofday(&now); err != nil {
		panic(err) // it cannot fail
	}
	return time.Duration(now.Nano())
}

// sleepOnly is the floor of sleepers: it closes the response and waits.
func sleepOnly(base http.RoundTripper) doer {
	return &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		select {
		case <-timer.C:
			return base.RoundTrip(req)
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	})}
}

// amplified is what a client does to a server that fails.
type amplified struct{ attempts, success float64 } // per request

// amplify makes n requests, a hundred a second, of whose attempts a share fails.
func amplify(t *testing.T, p peer, n int, failing float64) (a amplified) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		attempts := 0
		d := p.build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			attempts++
			if random.Float64() < failing {
				return answer(req, http.StatusServiceUnavailable, &shortBody{}), nil
			}
			return answer(req, http.StatusOK, http.NoBody), nil
		}), settings{attempts: 4})
		succeeded := 0
		for range n {
			time.Sleep(10 * time.Millisecond)
			if send(d, "GET", nowhere, nil) == nil {
				succeeded++
			}
		}
		a = amplified{float64(attempts) / float64(n), float64(succeeded) / float64(n)}
	})
	return a
}
