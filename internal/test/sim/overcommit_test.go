package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A fifth more than the service can do. The budget sees that most attempts succeed, and cannot tell
// such a service from a dead backend, so its retries cost some of the goodput.
func TestOverloadByAFifthCostsLittleGoodput(t *testing.T) {
	for _, c := range []struct{ rejection, least float64 }{
		{0, 0.97}, {0.1, 0.93}, {0.3, 0.85}, {0.5, 0.75},
	} {
		for _, processes := range []int{1, 100}[:2/min(fewer, 2)] {
			t.Run(fmt.Sprintf("a rejection costs %v, %d processes", c.rejection, processes), func(t *testing.T) {
				o := Overcommit{
					Policy: once, Processes: processes, Rate: 1200, Capacity: 1000, Rejection: c.rejection,
					For: 30 * time.Second / fewer, Seeds: 1,
				}
				without := o.Run(t)
				o.Policy = defaults
				with := o.Run(t)
				o.Policy = ungated(unlimited)
				plain := o.Run(t)
				o.Policy = tenth
				t.Logf("default %.3f, a tenth %.3f, no budget %.3f of the goodput without retries",
					with.Value/without.Value, o.Run(t).Value/without.Value, plain.Value/without.Value)
				assert.GreaterOrEqual(t, with.Value/without.Value, c.least)
				assert.GreaterOrEqual(t, with.Value, plain.Value*0.99)
			})
		}
	}
}
