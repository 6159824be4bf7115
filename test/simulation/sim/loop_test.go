package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// After ten seconds the budget is spent. A request whose retry it refuses must not end sooner than this
// retry would have been sent.
func TestWorkersInALoopStayCoolWhenTheirBudgetIsSpent(t *testing.T) {
	for _, workers := range []int{2, 10} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			l := Loop{Policy: defaults, Workers: workers, From: 10 * time.Second, For: time.Minute, Seeds: 8 / fewer}
			r := l.Run(t)
			t.Logf("default %v", r)
			assert.LessOrEqual(t, r.PerSecond.Mean, 8.0, "the first backoff is an eighth of a second, in the mean")
			l.Policy = plain
			t.Logf("plain   %v", l.Run(t))
			l.Policy, l.Takes, l.For, l.Seeds = once, time.Millisecond, 12*time.Second, 1
			r = l.Run(t)
			t.Logf("once    %v, if a refusal takes a millisecond", r)
			assert.GreaterOrEqual(t, r.PerSecond.Mean, 900.0)
		})
	}
}
