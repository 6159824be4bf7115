package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

func (r *report) fleetBudget() {
	r.add(`
The same spike, on a fleet whose processes share one balance of tokens in Redis. Each process has a redisbudget.Bucket with
the default settings, and a client of go-redis. In place of Redis there is a server in memory, in virtual time.

![Successes per second of 1,000 processes through a spike of load](img/fleet.svg)`)
	f := figure{
		file: "fleet.svg", title: "The spike, with 1,000 processes",
		xLabel: "time (s); the spike is between the thin grey lines",
		yLabel: "successes per second", yMax: 66, marks: []float64{20, 30},
	}
	var rows [][]string
	for _, c := range []budgeted{
		{"TokenBucket", 100, "default policy, 100 processes", defaults},
		{"TokenBucket, Burst 1", 100, "Burst 1, 100 processes", burst(1)},
		{"redisbudget.Bucket", 100, "", nil},
		{"TokenBucket", 1000, "default policy, 1,000 processes", defaults},
		{"TokenBucket, Burst 1", 1000, "Burst 1, 1,000 processes", burst(1)},
		{"redisbudget.Bucket", 1000, "", nil},
	} {
		if !r.full && c.processes > 100 && c.policy == nil {
			continue
		}
		got, calls := r.budgeted(c)
		row := append([]string{fmt.Sprint(c.processes), c.budget}, recoveries(got)...)
		rows = append(rows, append(row, calls...))
		if c.processes == 1000 {
			f.curves = append(f.curves, successes(c.budget, got, 150))
		}
	}
	r.excerpt([]int{0, 2, 3, 5}, []string{
		"processes", "budget", "seeds that recover", "median time to", "longest", "calls/s of the fleet", "fullest second",
	}, rows)
	r.add(`
Calls are requests of the whole fleet to Redis: the mean of a run, and the fullest second of any run. For each host, a
process makes at most two calls a second, and one more for each retry that it is granted. An idle process makes fewer.

A shared budget has one reserve for the fleet: 20 tokens, or what its successes of 20 s earn. Any process may spend all of
it. A fleet of many processes with few requests each is worth a Redis. The processes here have just started. A process that
has rested after a failure has a retry of its own: a thousand with an earlier failure each recover in 21 to 25 s.

Use a TokenBucket in these cases:

- There are fewer than about 50 processes. Their reserves are small together.
- Each process makes many requests. The room of its bucket follows its own successes, and it needs no server.
- There are 100 processes or so, and one retry at a time is enough for each. Burst 1 does as well then.`)
	r.draw(f)
}

// budgeted is a fleet with the name that the table has for its budget.
type budgeted struct {
	budget    string
	processes int
	name      string                  // of its clients in the previous section
	policy    func() retryhttp.Policy // nil: one budget for all
}

// budgeted runs the spike. It returns the cells about calls too.
func (r *report) budgeted(c budgeted) (sim.CollapseResult, []string) {
	until := 3 * time.Minute
	if c.processes == 100 {
		until = 2 * time.Minute
	}
	if c.policy != nil {
		return r.spiked(c.name, c.policy, c.processes, until), []string{"–", "–"}
	}
	e, shared := spike(c.processes, until, r.size(20)), sharing{}
	e.Fleet = shared.fleet
	return e.Run(r.t), shared.rates(until)
}

// rates returns the cells about calls: the mean per second, and the most in a second.
func (s *sharing) rates(until time.Duration) []string {
	var means, most []float64
	for _, run := range s.runs {
		means = append(means, run.perSecond.Between(0, until))
		most = append(most, slices.Max(run.perSecond.PerSecond()))
	}
	return []string{fmt.Sprintf("%.0f", mean(means)), fmt.Sprintf("%.0f", slices.Max(most))}
}
