package simulation

import (
	"fmt"
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

// hedger is a way to hedge with the name that the tables have for it.
type hedger struct {
	name string
	sim.Hedger
	curve bool
}

func hedgers() []hedger {
	ours := func(share float64, after time.Duration) sim.Hedger {
		return sim.Hedger{Hedge: func() *retryhttp.Hedge { return &retryhttp.Hedge{Share: share, After: after} }}
	}
	model := func(m func(http.RoundTripper) http.RoundTripper) sim.Hedger { return sim.Hedger{Model: m} }
	return []hedger{
		{"no hedges", sim.Hedger{}, true},
		{"after 10 ms, no allowance", model(sim.FixedDelay(10 * time.Millisecond)), true},
		{"after p95, no allowance", model(sim.QuantileDelay(0.95, 30*time.Second)), true},
		{"Hedge{}", ours(0, 0), true},
		{"Hedge{Share: 0.02}", ours(0.02, 0), false},
		{"Hedge{After: 10ms}", ours(0, 10*time.Millisecond), true},
	}
}

// hedging is the experiment of the section, whose trouble is still to be set.
func (r *report) hedging(h hedger) sim.Hedging {
	return sim.Hedging{
		Hedger: h.Hedger, Rate: r.rate(), WarmUp: 15 * time.Second, Before: 20 * time.Second,
		For: 10 * time.Second, After: 10 * time.Second,
	}
}

func (r *report) hedges() {
	r.add(`
One process makes 1,000 requests a second. 98 % of the answers take 1 to 10 ms. Few take far longer: 0.3 % more than
69 ms, and one in 100,000 more than 1.8 s. After 35 s, all latencies are ten times as long for 10 s.

![Hedges per request and p99.9, before, in and after a step of latency](img/hedge.svg)

A hedge that comes after a fixed time, or after a quantile of the latencies, costs little while latencies are steady.
When a service turns slow, every request is slow at first. Without an allowance, the load doubles just then. A Hedge has
an allowance: each answer earns a Share of a hedge, and at most 10 are saved.`)
	f, rows := r.step()
	r.draw(f)
	r.excerpt([]int{0, 2, 3}, []string{
		"client", "steady: extra load", "p99.9", "1st second of the step: extra load", "p99.9",
		"all of the step: extra load", "p99.9", "fullest second of any run",
	}, rows, part{"the extra load of all of the step, as attempts above 1, of no hedges and of Hedge{}",
		"-experiments latency-step -rate 1000 -uptime 35s -seeds 12"})
	r.add(`
Extra load is hedges per request: nothing is retried here. The table and the plot have all runs together. The fullest
second is of all the time, steady or not.

- While latencies are steady, the p99.9 falls to a fifth or less, for at most Share + 0.5 % more load.
- In no second of any run is the extra load above Share + 1.5 %.
- The p99.9 of the step itself need not fall. So few hedges are allowed then that most slow requests have none.
- After the step, slow answers are in the Window for up to 30 s. Until then a quantile is high, and there are fewer hedges.
  With After, the delay does not depend on them.

Hedge{} sends fewer hedges than its Share. It reads quantiles to an eighth of their octave. The p95 is 9.7 ms here, and is
read as 9.9 ms, which only 3.3 % of the answers exceed.

The latencies are fitted to "The Tail at Scale", Jeffrey Dean and Luiz André Barroso, 2013, which publishes no
distribution. With them, the slowest of 100 answers has the paper's p99.9 of 1.8 s. So these figures check the
hedging, and do not confirm the paper. The capacity of the service has no limit: what the load would do to it is left out.`)
}

func (r *report) hedgesInOutages() {
	r.add(`
Every attempt fails for 10 s. So do attempts that are under way when the outage begins. They get a 503 within 1 ms, or no
answer until an AttemptTimeout of 500 ms. Numbers of hedges are the most of any run.`)
	r.pictured("Hedges into an outage", 1, 2, 3)
	r.table([]string{
		"client", "503: hedges", "no answer: hedges", "no answer, 1st second: extra load",
	}, r.hedgedOutages())
	r.add(`
A Hedge sends none into an outage of quick failures, since no attempt is slow. Attempts without an answer are slow, and
earn nothing. Then at most the 10 hedges are sent that were saved. Attempts that have timed out count as slow. So Hedge{}
sends none after such an outage until they are no longer in its Window.`)
}

// step has the latencies grow for a while. It returns the plot, and the rows of the table.
func (r *report) step() (figure, [][]string) {
	const from, to = -10, 20
	f := figure{
		file: "hedge.svg", title: "Latencies are ten times as long for 10 s",
		xLabel: "time since the step began (s)", yLabel: "hedges per 100 requests", yMax: 100,
		bands: []band{{0, 10, "the step"}},
	}
	below := figure{xLabel: f.xLabel, yLabel: "p99.9 (ms)", yMin: 10, yMax: 3000, bands: f.bands}
	var rows [][]string
	for _, h := range hedgers() {
		e := r.hedging(h)
		e.Slower, e.Seeds = 10, r.size(12)
		got := e.Run(r.t)
		rows = append(rows, []string{
			h.name,
			percent(got.Extra(-20, 0)), ms(got.Quantile(0.999, -20, 0)),
			percent(got.Extra(0, 1)), ms(got.Quantile(0.999, 0, 1)),
			percent(got.Extra(0, 10)), ms(got.Quantile(0.999, 0, 10)),
			percent(got.Most(-20, 10)),
		})
		if !h.curve {
			continue
		}
		extra, slow := curve{name: h.name}, curve{name: h.name}
		for second := from; second < to; second++ {
			extra.hold(second, 100*got.Extra(second, second+1))
			slow.hold(second, float64(got.Quantile(0.999, second, second+1).Milliseconds()))
		}
		f.curves, below.curves = append(f.curves, extra), append(below.curves, slow)
	}
	f.below = &below
	return f, rows
}

// hold adds a value that holds for a second.
func (c *curve) hold(second int, y float64) {
	c.x = append(c.x, float64(second), float64(second+1))
	c.y = append(c.y, y, y)
}

// hedgedOutages returns the rows of the table.
func (r *report) hedgedOutages() [][]string {
	var rows [][]string
	for _, h := range hedgers()[1:] {
		quick := r.hedging(h)
		quick.Seeds = r.size(3)
		silent := quick
		silent.AttemptTimeout = 500 * time.Millisecond
		timedOut := silent.Run(r.t)
		rows = append(rows, []string{
			h.name, fmt.Sprint(quick.Run(r.t).Hedges(0, 10)),
			fmt.Sprint(timedOut.Hedges(0, 10)), percent(timedOut.Extra(0, 1)),
		})
	}
	return rows
}

func percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
