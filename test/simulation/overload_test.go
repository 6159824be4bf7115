package simulation

import (
	"fmt"
	"time"

	"github.com/retryhttp/retryhttp/test/simulation/sim"
)

func (r *report) overloaded() {
	r.add(`
## Overload

A service has a capacity of 500 attempts a second, and gets 600 requests a second. It rejects what is too much. A rejection
is work, too. So each retry takes something from the goodput. The goodput is of 30 s, and stands against no retries.`)
	head := []string{"a rejection costs of a success"}
	for _, c := range budgeting[1:] {
		head = append(head, c.name)
	}
	var rows [][]string
	for _, cost := range []float64{0, 0.1, 0.3, 0.5} {
		o := sim.Overloaded{
			Processes: 1, Capacity: 500, Cost: cost, Load: 1.2,
			WarmUp: 20 * time.Second, Before: time.Duration(4*r.size(10)) * time.Second, Seeds: r.size(2),
		}
		rows = append(rows, append([]string{fmt.Sprint(cost)}, r.against(o, sim.OverloadedResult.Steady)...))
	}
	r.table(head, rows)
	r.add(`
### A spike where rejections have a cost

There is room for more than the load. Then there is three times the load for a while. 16 to 24 s after that, this is the
goodput against no retries.`)
	head = append([]string{"processes", "room", "a rejection costs", "spike"}, head[1:]...)
	rows = nil
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
	r.table(head, rows)
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
