package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// flapping is a service that is down and up by turns, from 0 s to 10 s.
func flapping(down, up time.Duration) []Span {
	var spans []Span
	for at := time.Duration(0); at < 10*time.Second; at += down + up {
		spans = append(spans, Span{at, at + down})
	}
	return spans
}

func regrets(t *testing.T, down []Span, until, timeout time.Duration, budget retryhttp.Budget) (sum RegretResult) {
	t.Helper()
	for _, c := range []struct {
		processes, seeds int
		rate             float64
	}{{1, 16, 2}, {1, 4, 20}, {1, 1, 200}, {20, 1, 200}} {
		r := Regret{
			Processes: c.processes, Rate: c.rate, Budget: budget, Down: down, Timeout: timeout,
			WarmUp: steady, Until: until, Seeds: max(c.seeds/fewer, 1),
		}.Run(t)
		sum.Hit, sum.Without, sum.With, sum.Only = sum.Hit+r.Hit, sum.Without+r.Without, sum.With+r.With, sum.Only+r.Only
	}
	return sum
}

func TestGateLosesNoRequestToASingleOutage(t *testing.T) {
	for _, outage := range []time.Duration{200 * time.Millisecond, time.Second, 4 * time.Second} {
		for name, budget := range map[string]retryhttp.Budget{"default": nil, "unlimited": retryhttp.Unlimited{}} {
			for _, timeout := range []time.Duration{0, 2 * time.Second} {
				t.Run(fmt.Sprint(name, " budget, ", outage, ", timeout ", timeout), func(t *testing.T) {
					r := regrets(t, []Span{{0, outage}}, outage+2*time.Second, timeout, budget)
					assert.Greater(t, r.Hit, 20)
					assert.LessOrEqual(t, r.With, r.Without, "%+v", r)
					if timeout == 0 {
						assert.Zero(t, r.Only, "requests that were lost for the Gate")
					}
				})
			}
		}
	}
}

// A service that flaps may be up just when a Gate holds the retry. Without a deadline,
// what the Gate loses in this way is less than what it saves. With a deadline that is
// not much longer than the retries of the default policy take, it may be more.
func TestGateOfAServiceThatFlaps(t *testing.T) {
	for _, c := range []struct {
		name     string
		down, up time.Duration
		regret   bool // with a deadline and no budget, many are lost that would have succeeded
	}{
		{"a second of two", time.Second, time.Second, false},
		{"500 ms of a second", 500 * time.Millisecond, 500 * time.Millisecond, true},
		{"400 ms of 500 ms", 400 * time.Millisecond, 100 * time.Millisecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			down := flapping(c.down, c.up)
			for name, budget := range map[string]retryhttp.Budget{"default": nil, "unlimited": retryhttp.Unlimited{}} {
				r := regrets(t, down, 10*time.Second, 0, budget)
				assert.LessOrEqual(t, r.With, r.Without, "%s budget: %+v", name, r)
				r = regrets(t, down, 10*time.Second, 2*time.Second, budget)
				assert.LessOrEqual(t, r.With, r.Without*3/2, "%s budget, 2 s: %+v", name, r)
				if c.regret && budget != nil {
					assert.Greater(t, r.Only, r.Without/4, "%s budget, 2 s: %+v", name, r)
				}
			}
		})
	}
}
