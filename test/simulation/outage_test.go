package simulation

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"gonum.org/v1/plot/vg"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

// client is a policy with the name that the tables have for it.
type client struct {
	name   string
	policy func() retryhttp.Policy
}

// gating are the clients that the sections about outages compare.
var gating = []client{
	{"default, with the Gate", defaults},
	{"the budget alone", ungated(defaults)},
	{"no budget, no Gate", ungated(unlimited)},
}

func (r *report) outage() {
	r.add(`
A service is down for a second. It gets 1,000 requests a second from one process, whose requests have succeeded for a
minute. When it is back, it has a third to spare: it takes 1,300 attempts a second, and refuses the rest.

![Attempts per second at the service through an outage of one second](img/outage.svg)

Retries that are sent into an outage cannot succeed. They spend the budget, and nothing of it is left when the service is
back. Without a budget, they cause a second outage. A Gate holds the retries back while the host is down, with their tokens.
First attempts go on, and find out when it is back. Then each success releases a quarter of a retry.`)
	outage := sim.Outage{
		Processes: 1, Rate: r.rate(), WarmUp: time.Minute, For: time.Second, After: 10 * time.Second,
		Capacity: 1300, Seeds: r.size(10),
	}
	f := figure{
		file: "outage.svg", title: "A service is down for one second",
		xLabel: "time since the outage began (s)", yLabel: "attempts per second", yMax: 4000,
		bands:    []band{{0, 1, "the service is down"}},
		levels:   []level{{1, 7, 1300, "what it can take afterwards"}},
		legendAt: vg.Points(115),
	}
	var rows [][]string
	for _, c := range append(slices.Clone(gating), client{"no retries", once}) {
		got := outage
		got.Policy = c.policy
		result := got.Run(r.t)
		rows = append(rows, append([]string{c.name}, outageCells(result)...))
		var x, y []float64
		for i := range min(80, len(result.Attempts)) {
			x = append(x, (float64(i)+0.5)*sim.OutageBin.Seconds()-sim.OutageLead.Seconds())
			y = append(y, result.Attempts[i])
		}
		f.curves = append(f.curves, curve{fmt.Sprintf("%s: %.0f %% lost", c.name, 100*result.Lost.Mean), x, y})
	}
	r.draw(f)
	r.table(append([]string{"1 s, a third to spare"}, outageHead...), rows,
		part{"all lines except the second", "-experiments outage -rate 1000 -outage 1s -seeds 10"},
		part{"the second line", "-experiments outage -rate 1000 -outage 1s -seeds 10 -no-gate"})
	r.add(`
Lost are the requests that the outage hit and that failed in the end. Later are requests that came after the outage
and failed in the end, as a multiple of the requests that it hit. Load is attempts per request in the outage. The peak
is the fullest 100 ms after it, in any run, as a multiple of the usual.`)
}

func (r *report) limits() {
	r.add(`
A Gate does not help with these:

- A thousand processes of one request a second each: few of them see 8 failures before their retries are over.
- An outage that is longer than Hold, which is 5 s by default. The retries are sent then, and fail.
- A black hole that is over when the first attempt times out. Until then no attempt has failed.
- A dead path beside a healthy path, on the same host. Successes of the healthy path release retries of the dead path.
  Give the Gate and the budget a Key.
- A collapse without a budget, below.`)
}

// rate is what the text says for a report, and a small number otherwise.
func (r *report) rate() float64 {
	if r.full {
		return 1000
	}
	return 50
}

var outageHead = []string{"lost", "later", "load", "peak", "recovered: p50", "p99"}

func outageCells(o sim.OutageResult) []string {
	return append([]string{
		fmt.Sprintf("%.1f %%", 100*o.Lost.Mean), fmt.Sprintf("%.2f", o.LostLater/max(o.Hit.Mean, 1)),
		fmt.Sprintf("%.2f", o.Load.Mean), fmt.Sprintf("%.1f", o.Peak),
	}, recovered(o.Quantile)...)
}

// recovered returns the cells for the requests that succeeded in the end.
func recovered(quantile func(float64) time.Duration) []string {
	if quantile(1) == 0 {
		return []string{"–", "–"}
	}
	return []string{seconds(quantile(0.5)), seconds(quantile(0.99))}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func (r *report) outageLengths() {
	r.add(`
The same 1,000 requests a second, and a third to spare afterwards. Each cell has what is lost, and the load in the outage.`)
	lengths := []time.Duration{
		100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second,
	}
	head := []string{"processes", "client"}
	for _, d := range lengths {
		head = append(head, d.String())
	}
	var rows [][]string
	for _, n := range []int{1, 100, 1000} {
		for _, c := range gating {
			row := []string{fmt.Sprintf("%d at %v/s", n, 1000/n), c.name}
			for _, d := range lengths {
				if !r.full && (d > time.Second || n > 100) {
					continue
				}
				got := sim.Outage{
					Policy: c.policy, Processes: n, Rate: r.rate(), WarmUp: time.Minute, For: d, After: 8 * time.Second,
					Capacity: 1300, Seeds: r.size(4),
				}.Run(r.t)
				row = append(row, fmt.Sprintf("%.1f %% / %.2f", 100*got.Lost.Mean, got.Load.Mean))
			}
			rows = append(rows, row)
		}
	}
	r.pictured("Lost of the requests that an outage hits, by its length", 3, 4, 5, 6)
	r.excerpt([]int{0, 3, 6, 8}, head, rows,
		part{"two of the cells for 100 processes and 3 s", "-experiments outage -rate 1000 -processes 100 -outage 3s -seeds 4"})
	r.add(`
A key is down after 8 failures in a row that took 100 ms. A process of ten requests a second takes half a second to
see them.`)
}

func (r *report) outageAfter() {
	r.add(`
One process at 1,000 requests a second. A service that comes back slowly takes 650 attempts a second at first, and 130
more each second, up to 1,300. For 2.7 s it has to turn away requests that the outage did not hit.`)
	var rows [][]string
	for _, after := range []struct {
		name     string
		length   time.Duration
		capacity float64
		slowly   time.Duration
	}{
		{"1 s, double", time.Second, 2000, 0},
		{"1 s, slowly", time.Second, 1300, 5 * time.Second},
		{"3 s, a third to spare", 3 * time.Second, 1300, 0},
		{"3 s, double", 3 * time.Second, 2000, 0},
	} {
		for _, c := range gating {
			got := sim.Outage{
				Policy: c.policy, Processes: 1, Rate: r.rate(), WarmUp: time.Minute, For: after.length, After: 15 * time.Second,
				Capacity: after.capacity, Slowly: after.slowly, Seeds: r.size(6),
			}.Run(r.t)
			rows = append(rows, append([]string{after.name, c.name}, outageCells(got)...))
		}
	}
	r.pictured("A service that comes back slowly, and a long outage", 2, 4, 5)
	r.excerpt([]int{3, 5, 6, 8}, append([]string{"outage, and then", "client"}, outageHead...), rows,
		part{"two lines of the service that comes back slowly", "-experiments outage -rate 1000 -outage 1s -slowly 5s -seeds 6"},
		part{"two of the last three lines", "-experiments outage -rate 1000 -outage 3s -room 2 -seeds 6"})
	r.add(`
The budget has 2,000 tokens at most, and an outage of 3 s hits 3,000 requests. The others wait in line, until later successes
have earned their tokens.`)
}

func (r *report) blackHole() {
	r.add(`
Attempts get no answer in the outage, until their AttemptTimeout. A third to spare afterwards.`)
	var rows [][]string
	for _, c := range []struct{ length, timeout time.Duration }{
		{time.Second, 500 * time.Millisecond}, {3 * time.Second, 2 * time.Second}, {time.Second, 2 * time.Second},
	} {
		for _, client := range gating {
			policy := func() retryhttp.Policy {
				p := client.policy()
				p.AttemptTimeout = c.timeout
				return p
			}
			got := sim.Outage{
				Policy: policy, Processes: 1, Rate: r.rate(), WarmUp: time.Minute, For: c.length, After: 10 * time.Second,
				Hang: true, Capacity: 1300, Seeds: r.size(4),
			}.Run(r.t)
			name := fmt.Sprintf("%v, AttemptTimeout %v", c.length, c.timeout)
			rows = append(rows, append([]string{name, client.name}, outageCells(got)...))
		}
	}
	r.pictured("No answer for a second", 2, 4, 5)
	r.excerpt([]int{0, 2, 6, 8}, append([]string{"black hole", "client"}, outageHead...), rows,
		part{"two of the first three lines", "-experiments outage -rate 1000 -outage 1s -silent -attempt-timeout 500ms -seeds 4"})
}

func (r *report) workers() {
	r.add(`
Workers of one process send one request after the other, of 10 ms each. The budget is full. Hit and lost are requests,
and attempts are in the outage; all are of one run. Back is when the last worker has had a success, from the outage's
end, at worst.`)
	var rows [][]string
	for _, n := range []int{1, 3, 10, 50} {
		for _, length := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
			row := []string{fmt.Sprint(n), length.String()}
			for _, policy := range []func() retryhttp.Policy{ungated(defaults), defaults} {
				got := sim.Workers{
					Policy: policy, Workers: n, WarmUp: time.Minute, For: length, After: 10 * time.Second, Seeds: r.size(8),
				}.Run(r.t)
				row = append(row, fmt.Sprintf("%.0f of %.0f", got.Lost.Mean*got.Hit.Mean, got.Hit.Mean),
					fmt.Sprintf("%.0f", got.Load.Mean), seconds(got.Back))
			}
			rows = append(rows, row)
		}
	}
	r.excerpt([]int{1, 7, 10}, []string{
		"workers", "outage", "the budget alone: lost of hit", "attempts", "back",
		"default policy: lost of hit", "attempts", "back",
	}, rows)
	r.add(`
A worker whose retries are used up sends its next request into the same outage. Held, it waits. A lone worker is never
held: its attempts are made at the same times with a Gate and without.`)
}

func (r *report) partialFailure() {
	r.add(`
A part of the attempts fails for 20 s. 1,000 requests a second.`)
	var rows [][]string
	for _, n := range []int{1, 100} {
		for _, part := range []float64{0.1, 0.5, 0.9} {
			for _, c := range []client{{"the budget alone", ungated(defaults)}, {"default policy", defaults}} {
				got := sim.Outage{
					Policy: c.policy, Processes: n, Rate: r.rate(), WarmUp: time.Minute, For: 20 * time.Second,
					After: 8 * time.Second, Part: part, Seeds: r.size(4),
				}.Run(r.t)
				rows = append(rows, append([]string{
					fmt.Sprintf("%d at %v/s", n, 1000/n), fmt.Sprintf("%.0f %%", 100*part), c.name,
					fmt.Sprintf("%.1f %%", 100*got.Lost.Mean), fmt.Sprintf("%.3f", got.Load.Mean),
				}, recovered(got.Quantile)...))
			}
		}
	}
	r.pictured("A part of the attempts fails", 3, 4)
	r.excerpt([]int{3, 9, 11}, []string{"processes", "failing", "client", "lost of hit", "load", "recovered: p50", "p99"}, rows,
		part{"the default policy of 100 processes, while half of the attempts fail",
			"-experiments outage -rate 1000 -processes 100 -outage 20s -part 0.5 -room -1 -seeds 4"})
	r.add(`
The budget causes the losses. With a Gate, a part of what it refuses succeeds later, from the line. If nine in ten fail, a
small process often sees 8 failures in a row, and its retries are held for some seconds.`)
}

func (r *report) paths() {
	byPath := func() retryhttp.Policy {
		key := func(req *http.Request) string { return req.URL.Host + req.URL.Path }
		return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Key: key}, Gate: &retryhttp.Gate{Key: key}}
	}
	r.add(`
Two paths of one host get 500 requests a second each. One of them is down for 3 s. On the other, 2 % of the attempts
fail. All columns are about requests whose first attempt failed.`)
	var rows [][]string
	for _, c := range []client{
		{"the budget alone", ungated(defaults)}, {"default policy", defaults},
		{"no budget, with a Gate", unlimited}, {"Key by path, for both", byPath},
	} {
		got := sim.Paths{
			Policy: c.policy, Rate: r.rate(), Ill: 0.5, Flaws: 0.02, WarmUp: time.Minute,
			For: 3 * time.Second, After: 10 * time.Second, Seeds: r.size(10),
		}.Run(r.t)
		path := func(p sim.PathResult) []string {
			return append([]string{fmt.Sprintf("%.1f %%", 100*p.Lost.Mean), fmt.Sprintf("%.2f", p.Load.Mean)},
				recovered(p.Quantile)...)
		}
		rows = append(rows, append(append([]string{c.name}, path(got.Ill)...), path(got.Well)...))
	}
	r.table([]string{
		"client", "dead path: lost", "load", "recovered: p50", "p99", "live path: lost", "load", "recovered: p50", "p99",
	}, rows)
}

func (r *report) throttle() {
	r.add(`
For 2 s a service answers each of 1,000 requests a second with 429 and a Retry-After that names the end. Then it takes
so many attempts a second, and sends away the rest with "Retry-After: 1". Sent meanwhile are attempts per request in
the 2 s. Lost is the part of all requests of 12 s, from the beginning.`)
	first := func() retryhttp.Policy { return retryhttp.Policy{Gate: &retryhttp.Gate{HoldFirst: true}} }
	var rows [][]string
	for _, c := range []client{
		{"no retries", once}, {"the budget alone", ungated(defaults)},
		{"default policy", defaults}, {"Gate with HoldFirst", first},
	} {
		row := []string{c.name}
		for _, capacity := range []float64{1300, 2000} {
			got := sim.Throttle{
				Policy: c.policy, Rate: r.rate(), WarmUp: time.Minute, Closed: 2 * time.Second, After: 10 * time.Second,
				Capacity: capacity, Seeds: r.size(6),
			}.Run(r.t)
			row = append(row, fmt.Sprintf("%.2f", got.Ignored.Mean), fmt.Sprintf("%.1f %%", 100*got.Lost.Mean),
				fmt.Sprintf("%.1f", got.Peak))
		}
		rows = append(rows, row)
	}
	r.table([]string{
		"client", "1,300/s afterwards: sent meanwhile", "lost", "peak", "2,000/s afterwards: sent meanwhile", "lost", "peak",
	}, rows)
	r.add(`
With HoldFirst, nothing is sent while the service is closed, and nothing is lost. All that was held returns within half of
that time: the peak is what HoldFirst costs.`)
}

func (r *report) payments() {
	r.add(`
Ten POSTs with an Idempotency-Key are made at the same moment, by a process without other traffic. A payment takes
two seconds. The bucket has 30 tokens. With the 5 of the default, half of the payments are not made: ten payments earn too
little for the retries of ten.`)
	enough := func() retryhttp.Policy { return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Burst: 30}} }
	var rows [][]string
	for _, length := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second, 3 * time.Second} {
		for _, c := range []client{{"the budget alone", ungated(enough)}, {"with the Gate", enough}} {
			got := sim.Payments{
				Policy: c.policy, Number: 10, For: length, Takes: 2 * time.Second, Seeds: r.size(100),
			}.Run(r.t)
			row := []string{
				length.String(), c.name, fmt.Sprintf("%.1f %%", 100*got.Paid.Mean), fmt.Sprintf("%.2f", got.Calls.Mean),
			}
			rows = append(rows, append(row, recovered(got.Quantile)...))
		}
	}
	r.excerpt([]int{4, 5, 7}, []string{"outage", "client", "paid", "attempts per payment", "paid after: p50", "p99"}, rows)
	r.add(`
This is the price. The first payment takes 2 s to find out that the service is back. The others wait for it, and then
follow one after the other, four in a second. After an outage of a second, nearly all are paid; with the budget alone,
less than half.`)
}

func (r *report) regret() {
	r.add(`
Each stretch is run twice, without a Gate and with one, with the same arrivals and the same jitter for the same retry.
The counts are of requests: 2, 20 and 200 a second in one process, and 200 in 20. "Only" is how many of the lost would
have succeeded without the Gate.`)
	flapping := func(down, up time.Duration) []sim.Span {
		var spans []sim.Span
		for at := time.Duration(0); at < 10*time.Second; at += down + up {
			spans = append(spans, sim.Span{From: at, To: at + down})
		}
		return spans
	}
	single := func(d time.Duration) []sim.Span { return []sim.Span{{To: d}} }
	var rows [][]string
	for _, service := range []struct {
		name string
		down []sim.Span
	}{
		{"1 s", single(time.Second)}, {"4 s", single(4 * time.Second)},
		{"1 s of every 2 s, for 10 s", flapping(time.Second, time.Second)},
		{"500 ms of every second, for 10 s", flapping(500*time.Millisecond, 500*time.Millisecond)},
	} {
		for _, timeout := range []time.Duration{0, 2 * time.Second} {
			name := "none"
			if timeout > 0 {
				name = timeout.String()
			}
			row := []string{service.name, name}
			for _, budget := range []retryhttp.Budget{nil, retryhttp.Unlimited{}} {
				var sum sim.RegretResult
				for _, c := range []struct {
					processes, seeds int
					rate             float64
				}{{1, 50, 2}, {1, 10, 20}, {1, 2, 200}, {20, 2, 200}} {
					got := sim.Regret{
						Processes: c.processes, Rate: c.rate, Budget: budget, Down: service.down, Timeout: timeout,
						WarmUp: time.Minute, Until: 12 * time.Second, Seeds: r.size(c.seeds),
					}.Run(r.t)
					sum.Hit += got.Hit
					sum.Without += got.Without
					sum.With += got.With
					sum.Only += got.Only
				}
				for _, n := range []int{sum.Hit, sum.Without, sum.With, sum.Only} {
					row = append(row, fmt.Sprint(n))
				}
			}
			rows = append(rows, row)
		}
	}
	r.excerpt([]int{0, 4, 7}, []string{
		"down for", "deadline", "default budget: hit", "lost without", "lost with", "only",
		"Unlimited: hit", "lost without", "lost with", "only",
	}, rows)
	r.add(`
In a single outage, no request without a deadline is lost that would have succeeded without the Gate: a later retry is
no worse. A service that goes up and down may be up just when a retry is held. Without a deadline, a Gate saves more
there than it loses. With a deadline of 2 s and no budget, it may lose nearly as many as it saves.`)
}
