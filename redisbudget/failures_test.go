//go:build unix

package redisbudget_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// measuring is held while durations are measured, so that other tests do not disturb it much.
var measuring sync.Mutex

func TestAServerThatFailsDelaysNothingAndDecidesAgain(t *testing.T) {
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			a := o.arrange(t)
			// After as many failed dials as the pool has room for, a client dials once a second.
			options := redis.Options{Addr: a.addr, PoolSize: 1000}
			process := func() *process { return newProcess(t, newClient(t, options)) }
			near, far := process(), process()
			full := func() bool { return near.shares() && far.shares() && near.tokens() == burst }
			eventually(t, full, "all share a full balance")

			a.fail()
			limit := float64(burst + 1)
			if o.fresh {
				limit += burst
			}
			retries := failForAWhile(near)
			require.Positive(t, retries, "the view decides until the failure is noticed")
			require.LessOrEqual(t, float64(retries), limit, "retries with nothing succeeding")
			retries, successes := compareDurations(t, near.sender)
			limit += 0.1 * float64(successes)
			assert.LessOrEqual(t, float64(retries), limit, "retries")
			if !o.harmless {
				full := func() bool { near.succeed(10 * burst); return near.tokens() == 1 }
				eventually(t, full, "the own bucket decides")
				require.True(t, full(), "the own bucket decides still, and not a view that was cut to a token")
			}

			a.mend()
			near.mended.Store(true)
			eventually(t, near.shares, "the shared balance decides again")
			assert.Zero(t, near.failed.Load(), "calls that began later and failed")
			if o.hangs {
				assert.Greater(t, near.overtook.Load(), int64(1000), "requests during a call")
			}
			eventually(t, far.shares, "the shared balance decides again in another process")
			near.succeed(10) // fills its own bucket
			spent := func() bool { far.fail(1); return near.tokens() < 1 }
			eventually(t, spent, "another process has spent the balance")
			require.Zero(t, near.fail(1), "retries")
		})
	}
}

// failForAWhile has everything fail for three Intervals, and returns the retries.
func failForAWhile(p *process) (retries int) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for began := time.Now(); time.Since(began) < 3*shortInterval; <-ticker.C {
		retries += p.fail(10)
	}
	return retries
}

// compareDurations sends requests, half of which fail, in turn with p's budget and with a
// TokenBucket. It returns how many retries and successes there were with p's.
func compareDurations(t *testing.T, p sender) (retries, successes int) {
	t.Helper()
	measuring.Lock()
	defer measuring.Unlock()
	alone := newSender(t, &retryhttp.TokenBucket{Ratio: 0.1, Burst: burst, Window: -1})
	var shared, own []time.Duration
	for began := time.Now(); len(own) < 1000 || time.Since(began) < 3*shortInterval; {
		for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			n, took := p.send(status)
			retries += n
			shared = append(shared, took)
			_, took = alone.send(status)
			own = append(own, took)
		}
		successes++
	}
	assert.LessOrEqual(t, steadyExcess(shared, own), time.Millisecond, "of %d round trips each", len(own))
	t.Logf("p99: %v, with a TokenBucket %v, of %d", p99(shared), p99(own), len(own))
	return retries, successes
}

// steadyExcess returns how much longer the p99 of some durations is than the p99 of others, which
// were measured at the same time: at least, over ten stretches of time. A delay that the code
// makes is in all of them. What other programs do to the machine is in the others as often.
func steadyExcess(shared, own []time.Duration) time.Duration {
	const stretches = 10
	size := len(own) / stretches
	excess := make([]time.Duration, stretches)
	for i := range excess {
		excess[i] = p99(shared[i*size:(i+1)*size]) - p99(own[i*size:(i+1)*size])
	}
	return slices.Min(excess)
}

func p99(durations []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[len(sorted)*99/100]
}
