package redisbudget_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// clocks are by how much the clocks of a process and the engine differ from the usual.
type clocks struct{ process, engine time.Duration }

// steps returns the calls of a process that reported something, what it was granted, and the
// balance in the end.
func (c clocks) steps(t *testing.T) (calls [][]string, granted int, balance float64) {
	synctest.Test(t, func(t *testing.T) {
		usual := time.Now()
		time.Sleep(c.process)
		f := startFleet(t, 1, func(_ int, b *redisbudget.Bucket) { b.Burst = 3 })
		shift := time.Until(usual.Add(c.engine))
		var mu sync.Mutex
		f.engine.onCall(func(_ *server.Peer, args []string) bool {
			mu.Lock()
			defer mu.Unlock()
			f.engine.SetTime(time.Now().Add(shift))
			if amounts := args[3:]; amounts[0] != "0" || amounts[1] != "0" {
				calls = append(calls, slices.Clone(args[1:])) // without the script
			}
			return false
		})
		for i := range 40 {
			b := f.processes[0]
			if i%4 < 2 {
				b.Deposit(f.req)
			} else if withdraw(b, f.req) {
				granted++
			}
			time.Sleep(10 * time.Second)
		}
		balance = f.balance(t)
	})
	return calls, granted, balance
}

func TestClockOfAProcessDoesNotMatter(t *testing.T) {
	calls, granted, balance := clocks{}.steps(t)
	require.Greater(t, len(calls), 20)
	require.Greater(t, granted, 3)
	for _, c := range []clocks{{process: time.Hour}, {engine: time.Hour}, {time.Hour, 2 * time.Hour}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			gotCalls, gotGranted, gotBalance := c.steps(t)
			assert.Equal(t, calls, gotCalls, "no call has a time of the process in it")
			assert.Equal(t, granted, gotGranted)
			assert.Equal(t, balance, gotBalance)
		})
	}
}

func TestSettingsThatDifferDisagreeAboutCapacityAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := []struct {
			ratio  float64
			burst  int
			window time.Duration
		}{{0.1, 20, 20 * time.Second}, {0.3, 40, 5 * time.Second}, {-1, 10, -1}, {0.05, 1, time.Minute}}
		var failures atomic.Int64
		f := startFleet(t, 20, func(i int, b *redisbudget.Bucket) {
			s := settings[i%len(settings)]
			b.Ratio, b.Burst, b.Window = s.ratio, s.burst, s.window
			b.OnError = func(error) { failures.Add(1) }
		})
		rng := rand.New(rand.NewPCG(1, 1))
		granted, earned := 0.0, 40.0
		const request = 500 * time.Millisecond
		for _, failing := range []float64{0, 1, 0.5, 1} {
			f.each(request, 20*time.Second, func(i int, b *redisbudget.Bucket) {
				switch {
				case rng.Float64() >= failing:
					b.Deposit(f.req)
					earned += max(settings[i%len(settings)].ratio, 0)
				case withdraw(b, f.req):
					granted++
				}
			})
			require.LessOrEqual(t, math.Abs(f.balance(t)), max(40, 0.3*40*5, 0.05*40*60), "the largest capacity")
		}
		bound := 20 + 20*unheard(request)
		t.Logf("granted %.0f, earned %.0f, bound %.0f", granted, earned, bound)
		assert.LessOrEqual(t, granted, earned+bound)
		assert.Greater(t, granted, 10.0, "the smallest capacity does not stop it")
		assert.Zero(t, failures.Load())
	})
}
