package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

func TestHerdReturnsSpreadAndNeverSooner(t *testing.T) {
	const asked = 5 * time.Second
	const all = 1000
	spread := func(extra time.Duration) func() retryhttp.Policy {
		return func() retryhttp.Policy {
			return retryhttp.Policy{MaxRetryAfter: -1, Backoff: retryhttp.Constant(asked).PlusJitter(extra)}
		}
	}
	for _, c := range []struct {
		name   string
		policy func() retryhttp.Policy
		peak   [2]float64 // arrivals in 10 ms, from and to
		served [2]float64
	}{
		{"this library", defaults, [2]float64{6, 20}, [2]float64{all, all}},
		{"spread over 250 ms", spread(250 * time.Millisecond), [2]float64{40, 75}, [2]float64{450, 620}},
		{"not spread", spread(0), [2]float64{all, all}, [2]float64{300, 300}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Herd{Policy: c.policy, Clients: all, Asked: asked, Capacity: 200, Queue: 100, Seeds: 8 / fewer}.Run(t)
			assert.GreaterOrEqual(t, r.Soonest, asked)
			assert.GreaterOrEqual(t, r.Peak.Mean, c.peak[0])
			assert.LessOrEqual(t, r.Peak.Mean, c.peak[1])
			assert.GreaterOrEqual(t, r.Served.Mean, c.served[0])
			assert.LessOrEqual(t, r.Served.Mean, c.served[1])
		})
	}
}
