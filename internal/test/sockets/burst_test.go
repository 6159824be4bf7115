package sockets_test

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
)

// Fresh programs send a few requests at once, while the only server restarts: its port refuses for 300 ms.
// Plain retries lose hardly any of them, and one in twenty may fail. Many do if nobody asks the server again.
// The simulations have the figures of many sizes and times, in virtual time.
func TestBurstOfAFreshProgramOutlastsARestart(t *testing.T) {
	const programs = 200 // a program loses all or nothing
	for _, n := range []int{4, 8} {
		t.Run(fmt.Sprint(n, " at once"), func(t *testing.T) {
			t.Parallel()
			var lost atomic.Int32
			var all sync.WaitGroup
			places := make(chan struct{}, 25) // with all programs at once, their own load would make each restart longer
			for range programs {
				places <- struct{}{}
				all.Go(func() {
					defer func() { <-places }()
					lost.Add(burstInARestart(t, n))
				})
			}
			all.Wait()
			assert.LessOrEqual(t, lost.Load(), int32(n*programs/20))
		})
	}
}

// burstInARestart returns how many of n requests of a new Transport fail.
func burstInARestart(t *testing.T, n int) (lost int32) {
	address := loopback.Refusing(t)
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	defer srv.Close()
	time.AfterFunc(300*time.Millisecond, func() {
		if l, err := net.Listen("tcp", address); assert.NoError(t, err) {
			_ = srv.Serve(l)
		}
	})
	rt := retryhttp.New(nil, retryhttp.Policy{})
	defer rt.CloseIdleConnections()
	var failed atomic.Int32
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			resp, err := rt.RoundTrip(get(t, "http://"+address))
			if err != nil {
				failed.Add(1)
				return
			}
			assert.NoError(t, resp.Body.Close())
		})
	}
	wg.Wait()
	return failed.Load()
}
