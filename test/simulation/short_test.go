package simulation

import (
	"fmt"
	"time"

	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

// inShort are the clients of the README's picture.
var inShort = []client{
	{"no retries", once},
	{"retries without a budget", ungated(unlimited)},
	{"retryhttp, by default", defaults},
}

func (r *report) inShort() {
	r.add(`
Retries help while a part of a service fails, and a service that is overwhelmed by retries stays down. These are the two
troubles side by side, at 1,000 requests a second from one process. In a partial failure, one of three backends behind a
load balancer is dead for 20 s. In an outage, the whole service is down for a second.

![Requests that fail, and attempts per request, in a partial failure and in an outage](img/short.svg)`)
	partial := sim.Partial{
		Processes: 1, Rate: r.rate(), Backends: 3, Dead: 1, Refuse: true,
		WarmUp: 20 * time.Second, For: 20 * time.Second, Seeds: r.size(3),
	}
	outage := sim.Outage{
		Processes: 1, Rate: r.rate(), WarmUp: time.Minute, For: time.Second, After: 10 * time.Second,
		Capacity: 1300, Seeds: r.size(10),
	}
	failures := barPanel{title: "requests that fail", label: shortPercent, top: 1.5}
	loads := barPanel{title: "attempts per request", label: func(v float64) string { return fmt.Sprintf("%.2f", v) }, top: 3.4}
	f := bars{file: "short.svg", groups: []string{"one of three\nbackends is dead", "the service is\ndown for a second"}}
	var rows [][]string
	for _, c := range inShort {
		partial.Policy, outage.Policy = c.policy, c.policy
		a, b := partial.Run(r.t), outage.Run(r.t)
		failed := 1 - a.Success.Mean
		rows = append(rows, []string{
			c.name, percent(failed), fmt.Sprintf("%.2f", a.Load.Mean),
			percent(b.Lost.Mean), fmt.Sprintf("%.2f", b.Load.Mean), fmt.Sprintf("%.1f", b.Peak),
		})
		f.series = append(f.series, c.name)
		failures.values = append(failures.values, []float64{failed, b.Lost.Mean})
		loads.values = append(loads.values, []float64{a.Load.Mean, b.Load.Mean})
	}
	f.panels = []barPanel{failures, loads}
	r.draw(f)
	r.table([]string{"client", "partial failure: fail", "attempts per request", "outage: fail", "attempts per request", "peak afterwards"}, rows)
	r.add(`
Of an outage, the requests that it hits are counted. The peak is the fullest 100 ms after the outage, in any run, as a
multiple of the usual.`)
}

// shortPercent is a number above a bar.
func shortPercent(part float64) string {
	if part < 0.1 {
		return percent(part)
	}
	return fmt.Sprintf("%.0f %%", 100*part)
}
