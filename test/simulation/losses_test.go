package simulation

import (
	"fmt"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

// trouble is a row of a table. Its cells are made from a policy.
type trouble struct {
	name string
	cell func(policy func() retryhttp.Policy) string
}

// troubles adds a table of troubles, and shows some of its lines.
func (r *report) troubles(shown []int, head string, troubles []trouble, parts ...part) {
	heads := []string{head}
	for _, c := range budgeting {
		heads = append(heads, c.name)
	}
	var rows [][]string
	for _, trouble := range troubles {
		row := []string{trouble.name}
		for _, c := range budgeting {
			row = append(row, trouble.cell(c.policy))
		}
		rows = append(rows, row)
	}
	r.pictured("What is lost", 1, 2, 3, 4)
	r.excerpt(shown, heads, rows, parts...)
}

func (r *report) losses() {
	r.add("The same four clients meet the troubles that clients meet most.")
}

func (r *report) lostOutages() {
	r.add(`
1,000 requests a second, and a third to spare afterwards. Each cell has what is lost of the requests that the outage hit,
the load in it, and the fullest 100 ms afterwards as a multiple of the usual. In the black hole, AttemptTimeout is 2 s.`)
	r.troubles([]int{1, 3, 5, 7}, "outage", []trouble{
		r.outageOf("1 s, one process", 1, time.Minute, time.Second),
		r.outageOf("3 s, one process", 1, time.Minute, 3*time.Second),
		r.outageOf("1 s, 100 processes", 100, time.Minute, time.Second),
		r.outageOf("3 s, 100 processes", 100, time.Minute, 3*time.Second),
		r.outageOf("1 s, 1,000 processes", 1000, time.Minute, time.Second),
		r.outageOf("3 s, 1,000 processes", 1000, time.Minute, 3*time.Second),
		r.blackHoleOf("3 s of a black hole, one process"),
		r.outageOf("1 s, one process, up for 1 s", 1, 0, time.Second),
		r.outageOf("1 s, one process, up for 2 s", 1, time.Second, time.Second),
		r.outageOf("1 s, one process, up for 5 s", 1, 4*time.Second, time.Second),
		r.outageOf("1 s, one process, up for 10 s", 1, 9*time.Second, time.Second),
		r.outageOf("1 s, 100 processes, up for 1 s", 100, 0, time.Second),
	}, part{"the line of one process that has been up for 2 s, with a fixed tenth",
		"-experiments outage -rate 1000 -outage 1s -uptime 2s -seeds 4 -budget-ratio 0.1"})
}

func (r *report) otherTroubles() {
	r.add(`
Each cell has what is lost of the requests whose first attempt failed; under a quota, what is lost of 1,000 jobs. A fifth,
or half, of a host's requests go to a path that is dead for 10 s, or 3 s. 2 % of the attempts on its live path fail.`)
	r.troubles([]int{1, 3, 8, 11}, "trouble", []trouble{
		r.quotaOf(10), r.quotaOf(50),
		r.resetOf(5 * time.Second), r.resetOf(15 * time.Second), r.resetOf(time.Minute),
		r.fanoutOf("10,000 at once in a fresh process, 1 % fail", sim.Never, 0.01),
		r.fanoutOf("10,000 at once, a fifth fails in the first 100 ms", 100*time.Millisecond, 0.2),
		r.fanoutOf("10,000 at once, down for the first 200 ms", 200*time.Millisecond, 0),
		r.livePathOf("live path beside a dead path with a fifth", 0.2, 10*time.Second),
		r.livePathOf("live path beside a dead path with half", 0.5, 3*time.Second),
		r.seldomOf("one request an hour for 2 days, a fifth of the attempts fails", 48),
		r.seldomOf("one request an hour for 40 days, a fifth of the attempts fails", 960),
	}, part{"the line of 50 workers, except a fixed tenth",
		"-experiments rate-limit -allowed 20 -workers 50 -jobs 1000 -seeds 8"},
		part{"the line of answers of 15 s, with a fixed tenth",
			"-experiments reset -rate 50 -takes 15s -seeds 8 -budget-ratio 0.1"})
	r.add(`
- A quota is 20 attempts a second. The others get a 429 with "Retry-After: 1" after 1 ms. Each worker takes the next job as
  soon as its last one has ended.
- A connection dies with all answers that are under way. There are 50 requests a second, and a retry is answered.
- Only the quota limits what the service takes. So the table flatters clients without a budget: in an overload, their retries
  keep the service down.`)
}

// fanouts is about a Gate whose host has no other traffic.
func (r *report) fanouts() {
	r.add(`
One process makes all of them as the service goes down, and no others. There is no budget. The peak is the most attempts in
100 ms after the outage.`)
	var rows [][]string
	for _, length := range []time.Duration{150 * time.Millisecond, time.Second} {
		for _, c := range []client{{"no Gate", ungated(unlimited)}, {"with a Gate", unlimited}} {
			got := sim.Fanout{Policy: c.policy, Requests: 1000, For: length, Seeds: r.size(8)}.Run(r.t)
			rows = append(rows, append([]string{length.String(), c.name, percent(got.Lost.Mean), fmt.Sprint(got.Peak)},
				recovered(got.Quantile)...))
		}
	}
	r.table([]string{"outage", "client", "lost", "peak", "succeeded after: p50", "p99"}, rows)
}
