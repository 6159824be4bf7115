package simulation

import (
	"fmt"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

// inShort are the clients of the README's picture.
var inShort = []client{
	{"no retries", once},
	{"retries without a budget", ungated(unlimited)},
	{"retryhttp, by default", defaults},
}

// A shortTrouble is a group of the README's picture.
type shortTrouble struct {
	name, label string // of the table, and of the picture
	run         func(policy func() retryhttp.Policy) (failed, load float64)
}

func (r *report) inShort() {
	r.add(`
Retries help while a part of a service fails, and a service that is overwhelmed by retries stays down. These are the two
troubles side by side, at a large service and at a small one. In a partial failure, one of three backends is dead for 20 s, and
each attempt meets one of them at random. In an outage, the whole service is down for a second. The large service gets 1,000
requests a second from one process. The small one gets 50 a second from 20 processes, whose requests have a deadline of 2 s.

![Requests that fail, and attempts per request, in a partial failure and in an outage](img/short.svg)`)
	troubles := []shortTrouble{
		r.shortPartial("partial failure, large", "one of 3 dead,\n1,000/s", 1, r.rate(), 0, 3),
		r.shortPartial("partial failure, small", "one of 3 dead,\n50/s by 20", 20, 50, 2*time.Second, 40),
		r.shortOutage("outage, large", "down for 1 s,\n1,000/s", 1, r.rate(), 0, 10),
		r.shortOutage("outage, small", "down for 1 s,\n50/s by 20", 20, 50, 2*time.Second, 100),
	}
	failures := barPanel{title: "requests that fail", label: shortPercent, top: 1.5}
	loads := barPanel{title: "attempts per request", label: func(v float64) string { return fmt.Sprintf("%.2f", v) }, top: 3.4}
	f := bars{file: "short.svg"}
	head := []string{"client"}
	for _, trouble := range troubles {
		f.groups = append(f.groups, trouble.label)
		head = append(head, trouble.name+": fail", "attempts per request")
	}
	var rows [][]string
	for _, c := range inShort {
		row := []string{c.name}
		var fails, attempts []float64
		for _, trouble := range troubles {
			failed, load := trouble.run(c.policy)
			row = append(row, percent(failed), fmt.Sprintf("%.2f", load))
			fails, attempts = append(fails, failed), append(attempts, load)
		}
		rows = append(rows, row)
		f.series = append(f.series, c.name)
		failures.values, loads.values = append(failures.values, fails), append(loads.values, attempts)
	}
	f.panels = []barPanel{failures, loads}
	r.draw(f)
	r.table(head, rows)
	r.add("In an outage, the requests that it hits are counted. Afterwards, the service has a third to spare.")
}

func (r *report) shortPartial(name, label string, processes int, rate float64, deadline time.Duration, seeds int) shortTrouble {
	return shortTrouble{name, label, func(policy func() retryhttp.Policy) (failed, load float64) {
		got := sim.Partial{
			Policy: policy, Processes: processes, Rate: rate, Backends: 3, Dead: 1, Refuse: true, Deadline: deadline,
			WarmUp: 20 * time.Second, For: 20 * time.Second, Seeds: r.size(seeds),
		}.Run(r.t)
		return 1 - got.Success.Mean, got.Load.Mean
	}}
}

func (r *report) shortOutage(name, label string, processes int, rate float64, deadline time.Duration, seeds int) shortTrouble {
	return shortTrouble{name, label, func(policy func() retryhttp.Policy) (failed, load float64) {
		got := sim.Outage{
			Policy: policy, Processes: processes, Rate: rate, WarmUp: time.Minute, For: time.Second, After: 10 * time.Second,
			Capacity: 1.3 * rate, Deadline: deadline, Seeds: r.size(seeds),
		}.Run(r.t)
		return got.Lost.Mean, got.Load.Mean
	}}
}

// shortPercent is a number above a bar.
func shortPercent(part float64) string {
	if part < 0.1 {
		return percent(part)
	}
	return fmt.Sprintf("%.0f %%", 100*part)
}
