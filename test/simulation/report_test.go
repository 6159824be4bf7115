package simulation

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/barchart"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

var (
	directory = flag.String("report", "",
		"directory to write the report into, from runs of full size; none: a small one, thrown away")
	only = flag.String("section", "",
		"with -report: the anchor of a section to run alone; it is printed, and only its plots are written")
)

// TestReport runs every experiment and writes the results. Without a directory it runs at the
// smallest size, and compares its text with the report's.
func TestReport(t *testing.T) {
	if raced {
		t.Skip("package sim has the same experiments under the race detector; .ci/run runs this test without it")
	}
	if *directory == "" {
		r := newReport(t, t.TempDir(), false)
		r.write(sections)
		for name, text := range r.documents() {
			assertSameProse(t, read(t, filepath.Join("../../docs", name)), text)
		}
		return
	}
	r := newReport(t, *directory, true)
	if *only != "" {
		s := named(t, *only)
		r.write([]section{s})
		fmt.Print(r.text.String())
		if s.apart == "" {
			fmt.Print("The whole table:\n\n")
		}
		fmt.Print(r.tables.String())
		return
	}
	r.write(sections)
	for name, text := range r.documents() {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644))
	}
}

// documents returns the texts of the report by the names of their files.
func (r *report) documents() map[string]string {
	return map[string]string{
		"simulation.md":        r.text.String(),
		"simulation-tables.md": tablesHeading + r.tables.String(),
	}
}

const tablesHeading = `# The tables of the simulations

Written by ` + "`make sim`" + `. [The report](simulation.md) says what the experiments are, and shows some lines of each table. Here each
table is whole, with the commands that make it. Experiments that the report only names are here with their text.

`

// assertSameProse asserts that two reports have the same lines, except in tables.
func assertSameProse(t *testing.T, document, report string) {
	t.Helper()
	prose := func(text string) []string {
		return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, "|") })
	}
	documents, reports := prose(document), prose(report)
	for i := range min(len(documents), len(reports)) {
		require.Equal(t, reports[i], documents[i], "make sim writes the first line, and the document has the second")
	}
	require.Len(t, documents, len(reports))
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

type report struct {
	t      *testing.T
	dir    string
	full   bool
	text   strings.Builder
	tables strings.Builder               // all of them, whole, and the sections that are apart
	now    section                       // that is written
	bars   *barchart.Chart               // of its table; nil: none
	spikes map[string]sim.CollapseResult // by the clients' name, for sections that have the same clients
}

func newReport(t *testing.T, dir string, full bool) *report {
	return &report{t: t, dir: dir, full: full, spikes: map[string]sim.CollapseResult{}}
}

// size is n for a report, and a small number otherwise.
func (r *report) size(n int) int {
	if r.full {
		return n
	}
	return min(n, 1)
}

func (r *report) add(text string) { paragraph(r.page(), text) }

// page is where the section that is written stands.
func (r *report) page() *strings.Builder {
	if r.now.apart != "" {
		return &r.tables
	}
	return &r.text
}

func paragraph(b *strings.Builder, text string) { b.WriteString(strings.TrimSpace(text) + "\n\n") }

// table adds a table of a few lines.
func (r *report) table(head []string, rows [][]string, parts ...part) {
	if r.now.apart == "" {
		r.drawBars(head, rows)
		tabulate(&r.text, head, rows)
		r.add(r.making() + " makes this table.")
	}
	r.keep(head, rows, parts)
}

// excerpt adds some lines of a table, by their numbers from 0.
func (r *report) excerpt(lines []int, head []string, rows [][]string, parts ...part) {
	if r.now.apart == "" {
		var some [][]string
		for _, line := range lines {
			if line < len(rows) { // the smallest report has fewer
				some = append(some, rows[line])
			}
		}
		r.drawBars(head, some)
		tabulate(&r.text, head, some)
		r.add(r.making() + " makes [the whole table](" + r.now.address() + ").")
	}
	r.keep(head, rows, parts)
}

// pictured has what the report shows of the section's table drawn as bars: some columns, by their numbers from 0.
func (r *report) pictured(title string, columns ...int) {
	r.bars = &barchart.Chart{Title: title, Columns: columns}
}

func (r *report) drawBars(head []string, rows [][]string) {
	if r.bars == nil {
		return
	}
	chart := *r.bars
	r.bars, chart.Head, chart.Rows = nil, head, rows
	file := r.now.anchor() + ".svg"
	r.add("![" + chart.Title + "](img/" + file + ")")
	// The smallest report has fewer rows, and shorter ones.
	last := slices.Max(chart.Columns)
	if len(rows) > 0 && !slices.ContainsFunc(rows, func(row []string) bool { return len(row) <= last }) {
		images := r.images()
		require.NoError(r.t, os.WriteFile(filepath.Join(images, file), []byte(chart.SVG()), 0o644))
	}
}

// making is the command that makes what the section has.
func (r *report) making() string { return fmt.Sprintf("`make sim SECTION=%s`", r.now.anchor()) }

// keep adds a table to the whole tables, with the commands that make it.
func (r *report) keep(head []string, rows [][]string, parts []part) {
	if r.now.apart == "" {
		paragraph(&r.tables, r.now.ofTables())
	}
	tabulate(&r.tables, head, rows)
	paragraph(&r.tables, r.making()+" makes this table.")
	for _, p := range parts {
		paragraph(&r.tables, "The lab makes "+p.makes+":")
		paragraph(&r.tables, inLab(p.flags))
	}
}

func tabulate(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, row := range rows {
		line(row)
	}
	b.WriteString("\n")
}

// draw draws f into the file that the report links to.
func (r *report) draw(f interface{ draw(directory string) error }) {
	require.NoError(r.t, f.draw(r.images()))
}

// images is the directory of the report's pictures.
func (r *report) images() string {
	images := filepath.Join(r.dir, "img")
	require.NoError(r.t, os.MkdirAll(images, 0o755))
	return images
}

func defaults() retryhttp.Policy  { return retryhttp.Policy{} }
func once() retryhttp.Policy      { return retryhttp.Policy{MaxAttempts: 1} }
func unlimited() retryhttp.Policy { return retryhttp.Policy{Budget: retryhttp.Unlimited{}} }

// ungated is a policy without its Gate. Made from the default policy, it is the budget
// alone.
func ungated(policy func() retryhttp.Policy) func() retryhttp.Policy {
	return func() retryhttp.Policy {
		p := policy()
		p.Gate = &retryhttp.Gate{Hold: -1}
		return p
	}
}

func unbounded(b retryhttp.Backoff) func() retryhttp.Policy {
	return ungated(func() retryhttp.Policy {
		return retryhttp.Policy{MaxAttempts: 3, Backoff: b, Budget: retryhttp.Unlimited{}}
	})
}

func burst(n int) func() retryhttp.Policy {
	return func() retryhttp.Policy { return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Burst: n}} }
}

func (r *report) collapse() {
	r.add(`
A service takes 1 s for a request, and 10 ms more for each other request that it works on. Its clients make 40 requests a
second, wait for 3 s, and try again. The service still works on requests that nobody waits for. For 10 s there are 100
requests a second. Then the load is normal, and the service is healthy. Yet it may never recover: the retries keep it down.

![Successes per second through a spike of load](img/collapse.svg)

Backoff and jitter spread retries, but there are as many of them. A budget that successes feed makes them fewer: nothing
succeeds, so soon nothing is retried. "Metastable Failures in Distributed Systems" (Nathan Bronson et al., HotOS 2021)
describes this kind of failure.

Backoff and jitter wait up to 20 s and then 40 s here, as in the published model (simple_collapse_sim, Marc Brooker, 2023).
The spike of that model is smaller, 80 a second for 5 s. Its clients recover.`)
	jitter := unbounded(retryhttp.FullJitter(20*time.Second, 40*time.Second))
	cases := []struct {
		name      string
		policy    func() retryhttp.Policy
		processes int
		until     time.Duration
		curve     bool
	}{
		{"no retries", once, 1, 120 * time.Second, true},
		{"3 attempts, no backoff, no budget", unbounded(retryhttp.Constant(0)), 1, 120 * time.Second, false},
		{"3 attempts, backoff and jitter, no budget", jitter, 1, 120 * time.Second, true},
		{"default policy", defaults, 1, 120 * time.Second, true},
		{"default policy, 10 processes", defaults, 10, 120 * time.Second, false},
		{"default policy, 100 processes", defaults, 100, 120 * time.Second, false},
		{"default policy, 1,000 processes", defaults, 1000, 180 * time.Second, false},
		{"a fixed tenth", fixedTenth, 1, 120 * time.Second, false},
		{"a fixed tenth, 100 processes", fixedTenth, 100, 120 * time.Second, false},
		{"a fixed tenth, 1,000 processes", fixedTenth, 1000, 180 * time.Second, false},
		{"the budget alone", ungated(defaults), 1, 120 * time.Second, false},
		{"the budget alone, 100 processes", ungated(defaults), 100, 120 * time.Second, false},
		{"the budget alone, 1,000 processes", ungated(defaults), 1000, 180 * time.Second, false},
		{"4 attempts, no budget, with a Gate", unlimited, 1, 120 * time.Second, false},
		{"Burst 2, 1,000 processes", burst(2), 1000, 120 * time.Second, false},
		{"Burst 1, 1,000 processes", burst(1), 1000, 180 * time.Second, false},
	}
	f := figure{
		file: "collapse.svg", title: "A spike of load, and what comes after it",
		xLabel: "time (s); the spike is between the thin grey lines",
		yLabel: "successes per second", yMax: 66, marks: []float64{20, 30},
	}
	var rows [][]string
	for _, c := range cases {
		got := r.spiked(c.name, c.policy, c.processes, c.until)
		row := append([]string{c.name}, recoveries(got)...)
		rows = append(rows, append(row, fmt.Sprintf("%.1f", got.Settled.Mean)))
		if c.curve {
			f.curves = append(f.curves, successes(c.name, got, 100))
		}
	}
	r.excerpt([]int{0, 2, 3, 6, 15}, []string{"clients", "seeds that recover", "median time to", "longest", "successes/s at the end (of 40)"}, rows,
		part{"the successes at the end, as goodput, of no retries and of the default policy", "-experiments spike -rate 40 -seeds 20"},
		part{"the successes of the third line",
			"-experiments spike -rate 40 -seeds 20 -max-attempts 3 -backoff-base 20s -backoff-limit 40s -no-budget -no-gate"})
	r.add(`
A Gate changes little here: the service recovers as soon as with the budget alone, to within 2 s. A Gate is no
substitute for a budget. Without a budget, the service does not recover.

Each process has a Burst to spend, so the time to recover grows with the number of processes. A thousand processes, with a
request in 25 s each, keep the service down for a hundred seconds. For so many small clients, set Burst to 1 or 2, or
share one budget, as in the next section.`)
	r.draw(f)
}

// spike is the experiment of the section. Its clients are still to be set.
func spike(processes int, until time.Duration, seeds int) sim.Collapse {
	return sim.Collapse{Processes: processes, Spike: 100, SpikeFor: 10 * time.Second, Until: until, Seeds: seeds}
}

// spiked runs the experiment, once for each name of clients.
func (r *report) spiked(
	name string, policy func() retryhttp.Policy, processes int, until time.Duration,
) sim.CollapseResult {
	if got, ok := r.spikes[name]; ok {
		return got
	}
	e := spike(processes, until, r.size(20))
	e.Policy = policy
	r.spikes[name] = e.Run(r.t)
	return r.spikes[name]
}

// recoveries returns the cells about the time to recover: in how many seeds, the median, and
// the longest.
func recoveries(r sim.CollapseResult) []string {
	sorted := slices.Sorted(slices.Values(r.Recovery))
	cells := []string{fmt.Sprintf("%d of %d", r.Recovered(sim.Never-1), len(sorted))}
	for _, d := range []time.Duration{sorted[len(sorted)/2], sorted[len(sorted)-1]} {
		cell := "never"
		if d != sim.Never {
			cell = fmt.Sprintf("%.0f s", d.Seconds())
		}
		cells = append(cells, cell)
	}
	return cells
}

// successes is the curve of the first seconds of a collapse.
func successes(name string, r sim.CollapseResult, seconds int) curve {
	n := min(seconds, len(r.Goodput))
	return curve{name, steps(n, 1), r.Goodput[:n]}
}

// steps returns n times, in the middle of bins of a width in seconds.
func steps(n int, width float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = (float64(i) + 0.5) * width
	}
	return x
}

func (r *report) budgets() {
	r.add(`
100 clients make 10 requests a second each. Each attempt fails with probability p. Load is attempts per request. Load and
success are of the last 40 s of a minute. From p = 0.2 on, the buckets have then spent what they held at first.

Without a budget, n retries give a load of (1-p^(n+1))/(1-p) and a success of 1-p^(n+1), which the tests check. "Bucket of
5" is the rule of the post below: 0.1 tokens for each success, at most 5, and 3 attempts, 50 ms apart. By default, a success
earns half a retry while most attempts succeed, and a tenth otherwise.

![Attempts per request against the probability of failure](img/budgets.svg)

"Fixing retries with token buckets and circuit breakers", Marc Brooker, 2022.`)
	ps := []float64{0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1}
	f := figure{
		file: "budgets.svg", title: "Load on a failing server",
		xLabel: "probability that an attempt fails", yLabel: "attempts per request", yMax: 4,
	}
	var head []string
	rows := make([][]string, len(ps))
	for i, p := range ps {
		rows[i] = []string{fmt.Sprint(p)}
	}
	for _, b := range sim.Budgets() {
		c := curve{name: b.Name, x: ps}
		for i, p := range ps {
			runs := sim.PartialFailure(r.t, r.size(3), sim.BrookersClients(time.Duration(r.size(60))*time.Second), p, b.Policy)
			load := engine.NumberOf(runs, func(b sim.Budgeted) float64 { return b.Load }).Mean
			success := engine.NumberOf(runs, func(b sim.Budgeted) float64 { return b.Success }).Mean
			c.y = append(c.y, load)
			rows[i] = append(rows[i], fmt.Sprintf("%.3f / %.1f %%", load, 100*success))
		}
		f.curves = append(f.curves, c)
		head = append(head, b.Name+": load / success")
	}
	r.excerpt([]int{2, 5, 7}, append([]string{"p"}, head...), rows)
	r.draw(f)
}

func (r *report) blip() {
	r.add(`
A process makes 1,000 requests a second. After 20 s of health, everything fails for a moment. Lost is a share of the
requests whose first attempt failed. The capacity of the default bucket follows the rate of successes. A bucket of a fixed
size does as well with a Gate: what it refuses waits in line, until the successes after the blip have earned it. In a longer
outage, a Gate delays the retries by its Hold of 5 s.`)
	cases := []struct {
		name   string
		policy func() retryhttp.Policy
	}{
		{"default policy", defaults},
		{"the budget alone", ungated(defaults)},
		{"no budget, no Gate", ungated(unlimited)},
		{"a fixed bucket of 10", func() retryhttp.Policy {
			return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Burst: 10, Window: -1}}
		}},
	}
	var rows [][]string
	for _, c := range cases {
		row := []string{c.name}
		for _, d := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond} {
			got := sim.Blip{
				Policy: c.policy, Rate: 1000, WarmUp: 20 * time.Second, For: d, After: 3 * time.Second,
				Bin: 100 * time.Millisecond, Seeds: r.size(10),
			}.Run(r.t)
			row = append(row, fmt.Sprintf("%.2f %% of %.0f", 100*got.LostPart, got.Failed.Mean))
		}
		got := sim.Blip{
			Policy: c.policy, Rate: 1000, WarmUp: 20 * time.Second, For: 35 * time.Second,
			Bin: time.Second, Seeds: 1,
		}.Run(r.t)
		load := got.Relative()
		rows = append(rows, append(row,
			fmt.Sprintf("%.2f", load[0]), fmt.Sprintf("%.2f", mean(load[4:10])), fmt.Sprintf("%.3f", mean(load[30:]))))
	}
	r.table([]string{
		"client", "lost after 100 ms", "lost after 300 ms",
		"load in an outage (one run): 1st second", "5th to 10th", "after 30 s",
	}, rows)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

func (r *report) fleets() {
	r.add(`
The same 1,000 requests a second, from few or many processes, each with a default budget. Load and success are of the last
of three minutes, in one run.

With any number of processes, load settles below 1.5 at worst, and at 1.00 in an outage. A process with few requests sees the
server by chance: it often takes one half of failures for health. The first retries of very many, very small processes are
nearly unbounded, until each has spent its Burst of 5. A Gate delays the retries of the larger processes
by its Hold of 5 s, so their worst second comes later.`)
	var rows [][]string
	for _, n := range []int{10, 100, 1000, 10000} {
		row := []string{fmt.Sprintf("%d at %v/s", n, 1000/float64(n))}
		for _, p := range []float64{0.1, 0.5, 1} {
			if !r.full && n > 100 {
				continue
			}
			got := sim.Fleet{
				Policy: defaults, Processes: n, Rate: 1000, WarmUp: 20 * time.Second,
				Failing: p, For: 3 * time.Minute, Seeds: 1,
			}.Run(r.t)
			row = append(row, fmt.Sprintf("%.3f / %.1f %%", got.SettledLoad.Mean, 100*got.SettledSuccess.Mean))
			if p == 1 {
				row = append(row, fmt.Sprintf("%.2f", slices.Max(got.LoadSeries)), fmt.Sprintf("%.0f s", got.Calm.Seconds()))
			}
		}
		rows = append(rows, row)
	}
	r.table([]string{"processes", "p = 0.1", "p = 0.5", "p = 1", "p = 1: worst second", "load 1.2 or less after"}, rows)
}

func (r *report) herd() {
	r.add(`
A thousand clients get "Retry-After: 5" at the same moment. Their service takes 200 requests a second. No client returns
sooner. This library adds up to half of the delay, so that they return over 2.5 s.

![Arrivals after a Retry-After of 5 seconds](img/storm.svg)`)
	spread := func(extra time.Duration) func() retryhttp.Policy {
		return func() retryhttp.Policy {
			return retryhttp.Policy{MaxRetryAfter: -1, Backoff: retryhttp.Constant(5 * time.Second).PlusJitter(extra)}
		}
	}
	cases := []struct {
		name   string
		policy func() retryhttp.Policy
	}{
		{"this library", defaults},
		{"jitter of 250 ms", spread(250 * time.Millisecond)},
		{"no jitter", spread(0)},
	}
	f := figure{
		file: "storm.svg", title: "1,000 clients after \"Retry-After: 5\"",
		xLabel: "time (s)", yLabel: "arrivals in 50 ms", yMax: 250,
	}
	var rows [][]string
	for _, c := range cases {
		got := sim.Herd{
			Policy: c.policy, Clients: 1000, Asked: 5 * time.Second, Capacity: 200, Queue: 100, Seeds: r.size(20),
		}.Run(r.t)
		rows = append(rows, []string{
			c.name, fmt.Sprintf("%.3f s", got.Soonest.Seconds()), fmt.Sprintf("%.0f", got.Peak.Mean),
			fmt.Sprintf("%.0f", got.Served.Mean), fmt.Sprintf("%.0f", got.Attempts.Mean),
		})
		line := curve{name: c.name}
		arrivals := append(got.Arrivals, make([]float64, 1600)...) // nothing comes after the last
		for i := 450; i < 1600; i += 5 {                           // five bins of 10 ms
			sum := 0.0
			for _, perSecond := range arrivals[i : i+5] {
				sum += perSecond * sim.HerdBin.Seconds()
			}
			line.x, line.y = append(line.x, float64(i)*sim.HerdBin.Seconds()), append(line.y, min(sum, 250))
		}
		f.curves = append(f.curves, line)
	}
	r.table([]string{
		"clients with", "soonest return", "most arrivals in 10 ms", "served within 4 attempts", "attempts",
	}, rows)
	r.add("The plot is cut at 250. Without jitter all thousand arrive at once, again and again.")
	r.draw(f)
}

func (r *report) contention() {
	r.add(`
N clients write one row under optimistic concurrency. One of them succeeds in each round. The table has the time until the
last has succeeded, and the number of writes. The model is from "Exponential Backoff And Jitter" (Marc Brooker, AWS
Architecture Blog, 2015), which has plots only. In brackets are the results of an independent program for this model. The
post's decorrelated jitter caps the number that is drawn, and takes 4.6 s at N = 100. This library caps the range before the
draw.`)
	sizes := []int{10, 50, 100, 190}
	head := []string{"backoff"}
	for _, n := range sizes {
		head = append(head, fmt.Sprintf("N = %d: ms / writes", n))
	}
	var rows [][]string
	for _, c := range sim.Contenders() {
		row := []string{c.Name}
		for _, n := range sizes {
			if !r.full && n > 50 {
				continue
			}
			got := sim.Contend(r.t, r.size(200), n, c.Backoff)
			ms := engine.NumberOf(got, func(c sim.Contended) float64 { return float64(c.Time.Milliseconds()) }).Mean
			calls := engine.NumberOf(got, func(c sim.Contended) float64 { return c.Calls }).Mean
			row = append(row, fmt.Sprintf("%.0f / %.0f (%d / %.0f)",
				ms, calls, c.Model[n].Time.Milliseconds(), c.Model[n].Calls))
		}
		rows = append(rows, row)
	}
	r.excerpt([]int{0, 3}, head, rows)
}

func (r *report) layers() {
	r.add(fmt.Sprintf(`
Three nested Transports of 4 attempts make %d attempts in an outage: the outer Transports see that the inner one has retried.
In three services in a row they make %d, since no header shows it. A budget in each bounds that. A Gate in each delays the
retries by its Hold of 5 s.`,
		sim.Stacked(r.t, 3, 4, false), sim.Stacked(r.t, 3, 4, true)))
	var rows [][]string
	for _, c := range []struct {
		name   string
		policy func() retryhttp.Policy
		rate   float64
	}{
		{"default policy, 100/s", defaults, 100},
		{"the budget alone, 100/s", ungated(defaults), 100},
		{"no budget, no Gate, 10/s", ungated(unlimited), 10},
	} {
		got := sim.Cascade(r.t, r.size(3), sim.Chain{
			Transports: 3, PerSecond: c.rate, Up: 20 * time.Second, Down: 60 * time.Second, After: 10 * time.Second,
		}, c.policy)
		load := func(from, to int) string {
			return fmt.Sprintf("%.2f", engine.NumberOf(got, func(c sim.Chained) float64 { return c.Load(20+from, 20+to) }).Mean)
		}
		rows = append(rows, []string{c.name, load(0, 1), load(0, 5), load(5, 10), load(20, 60)})
	}
	r.table([]string{"each service with", "load on the deepest, 1st second", "first 5 s", "5 to 10 s", "20 to 60 s"}, rows)
}
