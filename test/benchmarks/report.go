package benchmarks

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"
)

//go:embed report.md.tmpl
var words string

// report is all that was measured.
type report struct {
	rounds   int
	sizes    sizes
	overhead overhead
	costs    costs
	held     []row[[]held]  // by upload, as in kinds
	early    []row[[]early] // likewise
	opened   []row[[]int64] // by the size of the error body
	asleep   []row[asleep]
	amplify  []row[[]amplified] // at 100 % and 10 % failures
	probes   []row[[]verdict]   // by probe
	replicas []row[[]float64]   // the share of successes, as in brokenReplicas

	downloads []result // bare is the first
	hedged    hedged
}

// sizes is how much is done.
type sizes struct {
	Full                                                   bool
	Upload, Early, Tries, Connections, Sleepers, Amplified int
	FirstRounds, FirstTurn, RetryRounds, RetryTurn         int // of inTurns: how many rounds, and requests in a turn
	DownloadRounds, Download                               int // a slice in each round; bytes of a whole download
	Hedges, StepRounds                                     int // requests that are hedged; rounds after a step, of a second each
}

var (
	fullSize = sizes{
		Full: true, Upload: 64 << 20, Early: 8 << 20, Tries: 20, Connections: 1000, Sleepers: 10_000, Amplified: 5000,
		FirstRounds: 2000, FirstTurn: 400, RetryRounds: 500, RetryTurn: 50,
		DownloadRounds: 400, Download: 1 << 30,
		Hedges: 200, StepRounds: 10,
	}
	smallSize = sizes{
		Upload: 1 << 20, Early: 8 << 20, Tries: 2, Connections: 10, Sleepers: 100, Amplified: 500,
		FirstRounds: 3, FirstTurn: 10, RetryRounds: 3, RetryTurn: 10,
		DownloadRounds: 3, Download: 2 * slice,
		Hedges: 200, StepRounds: 1,
	}
)

// armed returns how often armed hedges are measured, and with how many requests in a turn.
// They take microseconds.
func (s sizes) armed(rounds int) (int, int) {
	if s.Full {
		return 10 * rounds, 1000
	}
	return rounds, 10
}

// row is what one peer came to.
type row[T any] struct {
	name string
	got  T
}

var (
	heldKinds  = []string{"GetBody", "file", "stream"}
	earlyKinds = []string{"GetBody", "file", "seeker", "stream"}
)

// render fills the tables into the words.
func (r *report) render(versions map[string]string) (string, error) {
	tmpl, err := template.New("report").Parse(words)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = tmpl.Execute(&text, map[string]any{
		"Command":           fmt.Sprintf("make bench-peers ROUNDS=%d", r.rounds),
		"Rounds":            r.rounds,
		"Date":              time.Now().UTC().Format(time.DateOnly),
		"Machine":           machine(),
		"Versions":          versionTable(versions),
		"Sizes":             r.sizes,
		"UploadSize":        size(float64(r.sizes.Upload)),
		"EarlySize":         size(float64(r.sizes.Early)),
		"FirstAttempts":     r.overhead.firstTable(),
		"FailedTwice":       r.overhead.retriesTables(),
		"Get":               costTable(r.costs.get),
		"Parallel":          costTable(r.costs.parallel),
		"Loopback":          costTable(r.costs.loopback),
		"Post":              costTable(r.costs.post),
		"Retries":           costTable(r.costs.retries),
		"RetriesOnLoopback": costTable(r.costs.retriesOnLoopback),
		"Held":              r.heldTable(),
		"Early":             r.earlyTable(),
		"DownloadSize":      size(float64(r.sizes.Download)),
		"Downloads":         r.downloadTable(),
		"Opened":            r.openedTable(),
		"Asleep":            r.asleepTable(),
		"Amplify":           r.amplifyTable(),
		"Replicas":          r.replicasTable(),
		"Glance":            r.glance(),
		"Probes":            verdictTable(probes, r.probes),
		"Legend":            legend(probes),
		"Crowd":             crowd,
		"HedgesArmed":       r.hedged.armedTable(),
		"HedgesOpened":      r.hedged.openedTable(),
		"HedgesStepped":     r.hedged.stepTable(),
		"HedgeProbes":       verdictTable(hedgeProbes, r.hedged.probes),
		"HedgeLegend":       legend(hedgeProbes),
	})
	return text.String(), err
}

func table(head []string, rows [][]string) string {
	var text strings.Builder
	line := func(cells []string) { fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "---"
	}
	line(rule)
	for _, row := range rows {
		line(row)
	}
	return text.String()
}

func versionTable(found map[string]string) string {
	seen := make(map[string]bool)
	var rows [][]string
	for _, p := range peers {
		if p.module != "" && !seen[p.module] {
			seen[p.module] = true
			rows = append(rows, []string{p.name, p.module, found[p.module]})
		}
	}
	return table([]string{"name", "module", "version"}, rows)
}

// costTable has what the first contender needs, and what the others need in comparison.
func costTable(results []result) string {
	var rows [][]string
	for i, r := range results {
		cells := []string{
			r.name, fmt.Sprintf("× %.2f", r.ratio), fmt.Sprintf("× %.2f", r.cpuRatio), count(r.above.allocs), size(r.above.bytes),
		}
		if i == floor {
			cells = []string{
				r.name, nanoseconds(r.ns), nanoseconds(r.cpu), fmt.Sprintf("(%.0f)", r.allocs), fmt.Sprintf("(%s)", size(r.bytes)),
			}
		}
		rows = append(rows, cells)
	}
	return table([]string{"", "time", "CPU time", "allocations above the first", "bytes above the first"}, rows)
}

func (r *report) heldTable() string {
	head := []string{""}
	for _, kind := range heldKinds {
		head = append(head, kind+": allocated", "held", "after the 503")
	}
	var rows [][]string
	for _, p := range r.held {
		cells := []string{p.name}
		for _, h := range p.got {
			cells = append(cells, size(h.allocated), size(max(h.peak, 0)), h.outcome)
		}
		rows = append(rows, cells)
	}
	return table(head, rows)
}

func (r *report) earlyTable() string {
	var rows [][]string
	for _, p := range r.early {
		cells := []string{p.name}
		for _, e := range p.got {
			cell := fmt.Sprintf("%d of %d", e.delivered, e.tries)
			if !e.intact() {
				cell += fmt.Sprintf(", **%d wrong**", e.delivered-e.whole)
			}
			cells = append(cells, cell)
		}
		rows = append(rows, cells)
	}
	return table(append([]string{""}, earlyKinds...), rows)
}

func (r *report) openedTable() string {
	head := []string{"", "error bodies of 1 KiB", "of 1 MiB"}
	var rows [][]string
	for _, p := range r.opened {
		cells := []string{p.name}
		for _, n := range p.got {
			cells = append(cells, fmt.Sprint(n))
		}
		rows = append(rows, cells)
	}
	return table(head, rows)
}

func (r *report) asleepTable() string {
	least := r.asleep[floor].got
	isRehttp := func(a row[asleep]) bool { return a.name == "rehttp" }
	rehttp := r.asleep[slices.IndexFunc(r.asleep, isRehttp)].got
	var rows [][]string
	for _, p := range r.asleep {
		cells := []string{
			p.name, size(p.got.bytes),
			fmt.Sprintf("%.2f", p.got.bytes/least.bytes), fmt.Sprintf("%.2f", p.got.bytes/rehttp.bytes),
			"cannot be canceled",
		}
		if p.got.cancelable {
			cells[4] = fmt.Sprintf("%.1f ms", float64(p.got.cancel)/float64(time.Millisecond))
		}
		rows = append(rows, cells)
	}
	return table([]string{"", "bytes each", "× a wait", "× rehttp", "time to cancel all"}, rows)
}

func (r *report) amplifyTable() string {
	var rows [][]string
	for _, p := range r.amplify {
		cells := []string{p.name}
		for _, a := range p.got {
			cells = append(cells, fmt.Sprintf("%.3f", a.attempts), fmt.Sprintf("%.2f %%", 100*a.success))
		}
		rows = append(rows, cells)
	}
	return table([]string{
		"", "all fail: attempts per request", "succeed", "10 % fail: attempts per request", "succeed",
	}, rows)
}

// verdictTable has a line for each probe.
func verdictTable(probes []probe, verdicts []row[[]verdict]) string {
	head := []string{""}
	for _, p := range verdicts {
		head = append(head, p.name)
	}
	var rows [][]string
	for i, pr := range probes {
		cells := []string{fmt.Sprintf("%d. %s", i+1, pr.name)}
		for _, p := range verdicts {
			cells = append(cells, p.got[i].String())
		}
		rows = append(rows, cells)
	}
	return table(head, rows)
}

func legend(probes []probe) string {
	var text strings.Builder
	for i, p := range probes {
		fmt.Fprintf(&text, "%d. %s\n", i+1, p.legend)
	}
	return text.String()
}
