package simulation

import (
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

// worse has the troubles in which somebody is better off with another policy.
func (r *report) worse() {
	r.add(`
A budget refuses retries that would have succeeded, and a Gate makes retries wait. These are the troubles in which the default
policy does worse than retries without a budget, or worse than no retries. The first five lines have the requests that fail.`)
	var rows [][]string
	for _, trouble := range []trouble{
		r.failingOf("one of two backends is dead, 1,000/s", sim.Partial{Processes: 1, Rate: r.rate(), Backends: 2, Dead: 1}, 0),
		r.failingOf("7 in 10 attempts fail, 1,000/s", sim.Partial{Processes: 1, Rate: r.rate(), Backends: 10, Dead: 7}, 0),
		r.failingOf("one of three backends is dead, 20 processes with 50/s, deadline of 2 s",
			sim.Partial{Processes: 20, Rate: 50, Backends: 3, Dead: 1}, 2*time.Second),
		r.resetOf(15 * time.Second),
		r.flappingOf("down for half of each second, for 30 s, 100/s"),
		{"goodput that is lost to retries: a fifth too much load, a rejection costs half of a success", r.goodputOf},
		{"seconds until a service of 1,000 processes is back after a spike", r.backAfterSpike},
		{"ten payments at once, down for 100 ms: fail, and how long the paid ones take (p50)", r.paidAfter},
	} {
		row := []string{trouble.name}
		for _, c := range inShort {
			row = append(row, trouble.cell(c.policy))
		}
		rows = append(rows, row)
	}
	head := []string{"trouble"}
	for _, c := range inShort {
		head = append(head, c.name)
	}
	r.pictured("Requests that fail, where they are parts of all", 1, 2, 3)
	r.table(head, rows)
	r.add(`
- If attempts choose their backend at random and half of the backends are dead, set Ratio to 0.5 or more: choosing.md has
  [the figures](choosing.md#two-replicas). Behind a balancer of connections, none of this holds: a retry takes another connection.
- If answers take many seconds and are few, a budget has earned little when all of them break. Set Burst to as many.
- If requests cannot wait, set Hold to -1, or to a part of their deadline.
- If a service goes up and down, half of the results are failures, as in an overload. Set Ratio to 0.5, as for dead backends.
- If a thousand processes send a request or two a second, set Burst to 1, or share a budget.

In an outage, the default loses fewer requests than retries without a budget, also for [a small service](#in-short). But it gains
less there: a process of 2.5 requests a second needs seconds for the eight failures after which it holds its retries.`)
}

// failingOf is a partial failure of 20 s.
func (r *report) failingOf(name string, p sim.Partial, deadline time.Duration) trouble {
	return trouble{name, func(policy func() retryhttp.Policy) string {
		p.Policy, p.Refuse, p.Deadline = policy, true, deadline
		p.WarmUp, p.For, p.Seeds = 20*time.Second, 20*time.Second, r.size(20)
		return percent(1 - p.Run(r.t).Success.Mean)
	}}
}

func (r *report) flappingOf(name string) trouble {
	return trouble{name, func(policy func() retryhttp.Policy) string {
		got := sim.Flapping{
			Policy: policy, Rate: 100, WarmUp: time.Minute, Down: 500 * time.Millisecond, Every: time.Second,
			For: time.Duration(r.size(30)) * time.Second, Seeds: r.size(10),
		}.Run(r.t)
		return percent(got.Lost.Mean)
	}}
}

// goodputOf is what is missing of the goodput without retries.
func (r *report) goodputOf(policy func() retryhttp.Policy) string {
	goodput := func(policy func() retryhttp.Policy) float64 {
		o := sim.Overloaded{
			Policy: policy, Processes: 1, Capacity: 500, Cost: 0.5, Load: 1.2,
			WarmUp: 20 * time.Second, Before: time.Duration(4*r.size(10)) * time.Second, Seeds: r.size(2),
		}
		return o.Run(r.t).Steady(o)
	}
	return percent(max(0, 1-goodput(policy)/goodput(once)))
}

func (r *report) backAfterSpike(policy func() retryhttp.Policy) string {
	e := spike(1000, 180*time.Second, r.size(5))
	e.Policy = policy
	return recoveries(e.Run(r.t))[1]
}

func (r *report) paidAfter(policy func() retryhttp.Policy) string {
	got := sim.Payments{
		Policy: policy, Number: 10, For: 100 * time.Millisecond, Takes: 2 * time.Second, Seeds: r.size(100),
	}.Run(r.t)
	return percent(1-got.Paid.Mean) + ", " + recovered(got.Quantile)[0]
}
