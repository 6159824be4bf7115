package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// The POSTs see most of the overload. If only failures that may be retried counted, the server would seem well.
func TestOverloadOfPostsCostsLittleGoodput(t *testing.T) {
	for processes, least := range map[int]float64{1: 0.86, 100: 0.82} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			o := Overloaded{
				Processes: processes, Capacity: 500, Cost: 0.5, Load: 1.2, Posts: 0.8,
				WarmUp: 20 * time.Second, Before: 40 * time.Second, Seeds: 2 / min(fewer, 2),
			}
			steadily := func(name string, policy func() retryhttp.Policy) float64 {
				o.Policy = policy
				r := o.Run(t)
				load := meanBetween(r.Attempts, o.Before/4, o.Before) / meanBetween(r.Offered, o.Before/4, o.Before)
				t.Logf("%-7s goodput %.3f of the capacity, load %.3f", name, r.Steady(o), load)
				return r.Steady(o)
			}
			none := steadily("once", once)
			by := steadily("default", defaults)
			t.Logf("default %.3f of once", by/none)
			assert.GreaterOrEqual(t, by/none, least)
			o.Seeds = 1
			assert.LessOrEqual(t, steadily("plain", plain)/none, by/none)
		})
	}
}
