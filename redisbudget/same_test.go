package redisbudget_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

func TestOneProcessIsGrantedWhatATokenBucketGrants(t *testing.T) {
	settings := []struct {
		ratio  float64
		burst  int
		window time.Duration
	}{
		{0, 20, 0},
		{0.5, 3, 2 * time.Second},
		{2, 1, time.Second},
		{0.1, 5, -1},
		{-1, 7, time.Second},
		{1, 1, 100 * time.Millisecond},
	}
	for _, s := range settings {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%v %v %v seed %v", s.ratio, s.burst, s.window, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					alone := &retryhttp.TokenBucket{Ratio: s.ratio, Burst: cmp.Or(s.burst, 20), Window: s.window}
					e, req := startEngine(t), get(t, host)
					// Asked for its tokens, a TokenBucket does the arithmetic that a call does.
					var want atomic.Value // float64
					e.onCall(func(*server.Peer, []string) bool { want.Store(alone.Status(req).Tokens); return false })
					shared := &redisbudget.Bucket{
						Client: e.client(t), Interval: time.Millisecond,
						Ratio: s.ratio, Burst: s.burst, Window: s.window,
					}
					compareSteps(t, rand.New(rand.NewPCG(seed, 1)), alone, shared, req, &want, clockError(s.window))
					require.NoError(t, shared.Close())
				})
			})
		}
	}
}

func compareSteps(
	t *testing.T, rng *rand.Rand, alone, shared retryhttp.Budget, req *http.Request, tokens *atomic.Value, clockError float64,
) {
	t.Helper()
	withdrawn, granted := 0, 0
	deposit := func(b retryhttp.Budget, req *http.Request) bool { b.Deposit(req); return true }
	refund := func(b retryhttp.Budget, req *http.Request) bool { b.Refund(req, 1); return true }
	deposit(alone, req)
	deposit(shared, req)
	most := 0.0
	for i := range 60 { // a TokenBucket does the arithmetic at the 64th deposit too

		time.Sleep(time.Duration(rng.IntN(20000)) * time.Microsecond)
		step := deposit
		switch rng.IntN(6) {
		case 0, 1:
			step = withdraw
			withdrawn++
		case 2:
			if granted > 0 {
				step = refund
				granted--
			}
		}
		want, got := step(alone, req), step(shared, req)
		require.Equal(t, want, got, "step %d", i)
		time.Sleep(2 * time.Millisecond) // until it is reported: an Interval, and what spreads the calls
		synctest.Wait()
		tokens := tokens.Load().(float64)
		most = max(most, tokens)
		require.InDelta(t, tokens, shared.(*redisbudget.Bucket).Status(req).Tokens, 1e-8+most*clockError, "step %d", i)
		if got {
			granted++
		}
	}
	assert.Positive(t, withdrawn)
}

// clockError is by how much an amount that fades with a Window may differ, since the server's
// clock shows whole microseconds.
func clockError(window time.Duration) float64 {
	if window < 0 {
		return 0
	}
	return 2 * time.Microsecond.Seconds() / cmp.Or(window, 20*time.Second).Seconds()
}
