package simulation

import (
	"fmt"
	"time"

	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

func (r *report) overloaded() {
	r.add(`
A service has a capacity of 500 attempts a second, and gets 600 requests a second. It rejects what is too much. A rejection
is work, too. So each retry takes something from the goodput. The goodput is of 30 s, and stands against no retries.`)
	var rows [][]string
	for _, cost := range []float64{0, 0.1, 0.3, 0.5} {
		o := sim.Overloaded{
			Processes: 1, Capacity: 500, Cost: cost, Load: 1.2,
			WarmUp: 20 * time.Second, Before: time.Duration(4*r.size(10)) * time.Second, Seeds: r.size(2),
		}
		rows = append(rows, append([]string{fmt.Sprint(cost)}, r.against(o, sim.OverloadedResult.Steady)...))
	}
	r.pictured("Goodput against no retries, by the cost of a rejection", 1, 2, 3)
	r.table(append([]string{"a rejection costs of a success"}, retrying()...), rows,
		part{"the third line, if you divide each goodput by the goodput of no retries",
			"-experiments overload -rate 600 -cost 0.3 -uptime 20s -seeds 2"})
}

func (r *report) costlySpike() {
	r.add(`
There is room for more than the load. Then there is three times the load for a while. 16 to 24 s after that, this is the
goodput against no retries.`)
	var rows [][]string
	for _, processes := range []int{1, 20, 1000} {
		for _, room := range []float64{0.1, 0.33} {
			for _, cost := range []float64{0.2, 0.5} {
				for _, spike := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
					if !r.full && (processes > 1 || spike > time.Second) {
						continue
					}
					o := sim.Overloaded{
						Processes: processes, Capacity: 500, Cost: cost, Load: 1 / (1 + room),
						WarmUp: 20 * time.Second, Before: time.Second,
						Spike: 3, SpikeFor: spike, After: 24 * time.Second, Seeds: r.size(2),
					}
					rows = append(rows, append([]string{
						fmt.Sprint(processes), percent(room), fmt.Sprint(cost), spike.String(),
					}, r.against(o, sim.OverloadedResult.Settled)...))
				}
			}
		}
	}
	r.excerpt([]int{2, 5, 29}, append([]string{"processes", "room", "a rejection costs", "spike"}, retrying()...), rows)
}

// retrying returns the names of the clients that retry.
func retrying() (names []string) {
	for _, c := range budgeting[1:] {
		names = append(names, c.name)
	}
	return names
}

// against returns a cell for each of the clients that retry: its goodput as a part of the goodput
// without retries.
func (r *report) against(o sim.Overloaded, goodput func(sim.OverloadedResult, sim.Overloaded) float64) []string {
	var row []string
	none := 0.0
	for i, c := range budgeting {
		o.Policy = c.policy
		got := goodput(o.Run(r.t), o)
		if i == 0 {
			none = got
			continue
		}
		row = append(row, fmt.Sprintf("%.2f", got/none))
	}
	return row
}
