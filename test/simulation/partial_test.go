package simulation

import (
	"fmt"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

// fixedTenth is a policy with a fixed budget: each success earns a tenth of a retry, however many
// attempts fail.
func fixedTenth() retryhttp.Policy {
	return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Ratio: 0.1}}
}

// budgeting are the clients that the sections about the budget compare.
var budgeting = []client{
	{"no retries", once},
	{"no budget, no Gate", ungated(unlimited)},
	{"a fixed tenth", fixedTenth},
	{"default policy", defaults},
}

func (r *report) partial() {
	r.add(`
A load balancer picks one of three backends for each attempt. One of them is dead, and refuses its connections. A retry is
likely to reach another. Requests come for 20 s, after 20 s of health, at 1,000 a second. In the other rows a part of the
attempts gets a 503 at once. "A fixed tenth" is TokenBucket{Ratio: 0.1}: each success earns a tenth of a retry, whether the
server is well or not.

Each cell has how many of the requests succeed, the attempts per request, and how long the failed requests took (p50).`)
	head := []string{"processes", "fail"}
	for _, c := range budgeting {
		head = append(head, c.name)
	}
	var rows [][]string
	for _, c := range []struct {
		processes int
		rate      float64
		name      string
		backends  int
		dead      int
		refuse    bool
		span      time.Duration
		seeds     int
	}{
		{1, r.rate(), "one of three backends", 3, 1, true, 20 * time.Second, 3},
		{100, r.rate(), "one of three backends", 3, 1, true, 20 * time.Second, 3},
		{1, r.rate(), "one of two backends", 2, 1, true, 20 * time.Second, 3},
		{100, r.rate(), "one of two backends", 2, 1, true, 20 * time.Second, 3},
		{1, r.rate(), "20 % of the attempts", 5, 1, false, 20 * time.Second, 3},
		{1, 20, "20 % of the attempts", 5, 1, false, 20 * time.Second, 100},
		{1, 1, "20 % of the attempts", 5, 1, false, 100 * time.Second, 200},
		{1, 0.1, "20 % of the attempts", 5, 1, false, 1000 * time.Second, 200},
		{1, r.rate(), "70 % of the attempts", 10, 7, false, 20 * time.Second, 3},
		{100, r.rate(), "70 % of the attempts", 10, 7, false, 20 * time.Second, 3},
		{1, r.rate(), "90 % of the attempts", 10, 9, false, 20 * time.Second, 3},
		{100, r.rate(), "90 % of the attempts", 10, 9, false, 20 * time.Second, 3},
	} {
		row := []string{fmt.Sprintf("%d at %v/s", c.processes, c.rate/float64(c.processes)), c.name}
		for _, client := range budgeting {
			got := sim.Partial{
				Policy: client.policy, Processes: c.processes, Rate: c.rate, Backends: c.backends, Dead: c.dead, Refuse: c.refuse,
				WarmUp: 20 * time.Second, For: c.span, Seeds: r.size(c.seeds),
			}.Run(r.t)
			row = append(row, fmt.Sprintf("%s / %.2f / %s",
				percent(got.Success.Mean), got.Load.Mean, seconds(got.Quantile(0.5))))
		}
		rows = append(rows, row)
	}
	r.pictured("Requests that succeed while a part of the service is dead", 2, 3, 4, 5)
	r.excerpt([]int{0, 2, 3, 8}, head, rows,
		part{"the line of 100 processes and two backends, with a 503 in place of a refused connection",
			"-experiments dead-backend -rate 1000 -processes 100 -backends 2 -uptime 20s"},
		part{"the line of 20 requests a second", "-experiments dead-backend -rate 20 -backends 5 -uptime 20s -seeds 100"})
	r.add(`
If half of the attempts fail or more, the budget takes the service for one that is overwhelmed, where retries do harm. Where
failures have another cause, they would help: set Ratio then.`)
}

func (r *report) endpoints() {
	r.add(`
Ten endpoints of one host get 20 requests a second each. One of them is dead for a minute. Of the attempts at the others,
2 % fail. They share a budget with the dead endpoint. Lost is a part of the live endpoints' requests whose first attempt
failed.`)
	var rows [][]string
	for _, c := range budgeting {
		got := sim.Paths{
			Policy: c.policy, Rate: 200, Ill: 0.1, Flaws: 0.02, WarmUp: 20 * time.Second,
			For: time.Duration(r.size(60)) * time.Second, Seeds: r.size(10),
		}.Run(r.t)
		rows = append(rows, []string{c.name, percent(got.Well.Lost.Mean), fmt.Sprintf("%.2f", got.Ill.Load.Mean)})
	}
	r.table([]string{"client", "live endpoints: lost", "dead endpoint: attempts per request"}, rows)
}

func (r *report) tiers() {
	r.add(`
Three services call one another in a row, with a Transport each, and the third calls a server. The server fails 30 % of its
attempts for 20 s. Or it has too little capacity for a minute: there is a fifth more load than it can take, and a rejection
costs it a tenth of a success. Load is attempts at the server per request at the top.`)
	flaky := sim.Tiers{Transports: 3, Rate: 300, Failing: 0.3, WarmUp: time.Minute, For: 20 * time.Second, Seeds: r.size(5)}
	full := sim.Tiers{
		Transports: 3, Rate: 300, Capacity: 250, Cost: 0.1,
		WarmUp: 20 * time.Second, For: time.Duration(r.size(60)) * time.Second, Seeds: r.size(2),
	}
	var rows [][]string
	none := 0.0
	for _, c := range budgeting {
		flaky.Policy, full.Policy = c.policy, c.policy
		a, b := flaky.Run(r.t), full.Run(r.t)
		if none == 0 {
			none = b.Success.Mean
		}
		rows = append(rows, []string{
			c.name, percent(a.Success.Mean), fmt.Sprintf("%.2f", a.Load.Mean),
			fmt.Sprintf("%.3f", b.Success.Mean/none), fmt.Sprintf("%.2f", b.Load.Mean),
		})
	}
	r.pictured("Three services in a row", 1, 2, 3, 4)
	r.table([]string{
		"each service with", "30 % fail: succeed", "load", "overloaded: goodput against no retries", "load",
	}, rows)
}
