package simulation

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The rows of the lab's tables.
const (
	its           = "policy"
	itsHedged     = "policy, with a Hedge"
	withoutBudget = "retries without a budget"
	never         = "no retries"
)

// made are figures of a section that a command of the lab makes, too.
type made struct {
	section string // its heading
	command int    // of those that stand in the section
	figures []madeFigure
}

type madeFigure struct {
	row, column string // of the lab's table
	line        string // of the report's table: what it begins with
	cell        string // of that line: the head of its column
	number      int    // of that cell

	as func(labTable, labFigure) labFigure // what the report makes of the lab's figure; nil: the same
}

var madeByTheLab = []made{
	{"## An outage", 0, []madeFigure{
		{its, "lost", "default, with the Gate", "lost", 0, nil},
		{its, "attempts", "default, with the Gate", "load", 0, nil},
		{its, "success p99", "default, with the Gate", "p99", 0, nil},
		{withoutBudget, "lost", "no budget, no Gate", "lost", 0, nil},
		{withoutBudget, "attempts", "no budget, no Gate", "load", 0, nil},
		{never, "lost", "no retries", "lost", 0, nil},
	}},
	{"## An outage", 1, []madeFigure{
		{its, "lost", "the budget alone", "lost", 0, nil},
		{its, "attempts", "the budget alone", "load", 0, nil},
	}},
	{"### Few processes and many, short outages and long", 0, []madeFigure{
		{its, "lost", "100 at 10/s | default", "3s", 0, nil},
		{its, "attempts", "100 at 10/s | default", "3s", 1, nil},
		{withoutBudget, "lost", "100 at 10/s | no budget", "3s", 0, nil},
	}},
	{"### The service afterwards", 0, []madeFigure{
		{its, "success p99", "1 s, slowly | default", "p99", 0, nil},
		{withoutBudget, "lost", "1 s, slowly | no budget", "lost", 0, nil},
	}},
	{"### The service afterwards", 1, []madeFigure{
		{its, "success p99", "3 s, double | default", "p99", 0, nil},
		{withoutBudget, "lost", "3 s, double | no budget", "lost", 0, nil},
	}},
	{"### Black holes", 0, []madeFigure{
		{its, "lost", "1s, AttemptTimeout 500ms | default", "lost", 0, nil},
		{its, "success p99", "1s, AttemptTimeout 500ms | default", "p99", 0, nil},
		{withoutBudget, "lost", "1s, AttemptTimeout 500ms | no budget", "lost", 0, nil},
		{withoutBudget, "attempts", "1s, AttemptTimeout 500ms | no budget", "load", 0, nil},
	}},
	{"### Partial failure", 0, []madeFigure{
		{its, "lost", "100 at 10/s | 50 % | default", "lost of hit", 0, nil},
		{its, "attempts", "100 at 10/s | 50 % | default", "load", 0, nil},
	}},
	{"### Outages, and how long the process has been up", 0, []madeFigure{
		{its, "lost", "1 s, one process, up for 2 s", "a fixed tenth", 0, nil},
		{its, "attempts", "1 s, one process, up for 2 s", "a fixed tenth", 1, nil},
	}},
	{"### Other troubles", 0, []madeFigure{
		{its, "lost", "a quota, 50 workers", "default policy", 0, nil},
		{withoutBudget, "lost", "a quota, 50 workers", "no budget, no Gate", 0, nil},
		{never, "lost", "a quota, 50 workers", "no retries", 0, nil},
	}},
	{"### Other troubles", 1, []madeFigure{
		{its, "lost", "a connection dies, answers of 15 s", "a fixed tenth", 0, nil},
	}},
	{"## A part of the service is dead", 0, []madeFigure{
		{its, "succeeded", "100 at 10/s | one of two", "default policy", 0, nil},
		{withoutBudget, "succeeded", "100 at 10/s | one of two", "no budget, no Gate", 0, nil},
		{never, "succeeded", "100 at 10/s | one of two", "no retries", 0, nil},
	}},
	{"## A part of the service is dead", 1, []madeFigure{
		{its, "succeeded", "1 at 20/s", "default policy", 0, nil},
		{its, "attempts", "1 at 20/s", "default policy", 1, nil},
	}},
	{"## Overload", 0, []madeFigure{
		{its, "goodput", "0.3", "default policy", 0, ofNone},
		{withoutBudget, "goodput", "0.3", "no budget, no Gate", 0, ofNone},
	}},
	{"## A spike that outlasts itself", 0, []madeFigure{
		{never, "goodput", "no retries", "successes/s at the end (of 40)", 0, of40},
		{its, "goodput", "default policy |", "successes/s at the end (of 40)", 0, of40},
	}},
	{"## A spike that outlasts itself", 1, []madeFigure{
		{its, "goodput", "3 attempts, backoff and jitter", "successes/s at the end (of 40)", 0, of40},
	}},
	{"## Hedges", 0, []madeFigure{
		{its, "attempts", "no hedges", "all of the step: extra load", 0, above1},
		{itsHedged, "attempts", "Hedge{} |", "all of the step: extra load", 0, above1},
	}},
}

func ofNone(lab labTable, f labFigure) labFigure { return f.times(1 / lab[never]["goodput"].value) }

func of40(_ labTable, f labFigure) labFigure { return f.times(40.0 / 100) }

func above1(_ labTable, f labFigure) labFigure {
	f.value--
	return f.times(100)
}

// The commands are run as they stand in the report, so a reader who types them gets the same figures.
func TestLabMakesFiguresOfTheReport(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("takes minutes; make nightly runs it, and the lab has its own tests under the race detector")
	}
	document := read(t, "../../docs/simulation-tables.md")
	compared := map[string]bool{}
	for _, m := range madeByTheLab {
		text := sectionOf(t, document, section{heading: m.section}.ofTables())
		commands := labCommand.FindAllString(text, -1)
		require.Greater(t, len(commands), m.command, m.section)
		command := commands[m.command]
		compared[command] = true
		lab := runLab(t, command)
		for _, f := range m.figures {
			got, found := lab[f.row][f.column]
			require.True(t, found, "%s: %q of %q", command, f.column, f.row)
			if f.as != nil {
				got = f.as(lab, got)
			}
			want := numbersOf(t, text, f.line, f.cell)[f.number]
			assert.InDelta(t, want, got.value, 2*got.spread+got.step+0.02*want,
				"%s: %q of %q; %s has %q of %q", m.section, f.cell, f.line, command, f.column, f.row)
		}
	}
	for _, command := range labCommand.FindAllString(document, -1) {
		assert.True(t, compared[command], "%s is not compared with the table", command)
	}
}

var labCommand = regexp.MustCompile(`(?m)^go run -C retrylab .*$`)

// sectionOf returns what stands between a heading and the next heading.
func sectionOf(t *testing.T, document, heading string) string {
	t.Helper()
	_, section, found := strings.Cut(document, "\n"+heading+"\n")
	require.True(t, found, heading)
	section, _, _ = strings.Cut(section, "\n#")
	return section
}

// numbersOf returns the numbers in a cell of a section's table.
func numbersOf(t *testing.T, section, line, head string) (numbers []float64) {
	t.Helper()
	var heads []string
	for raw := range strings.Lines(section) {
		if !strings.HasPrefix(raw, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(raw, "|\n"), "|")
		if heads == nil {
			for _, cell := range cells {
				heads = append(heads, strings.TrimSpace(cell))
			}
		}
		if !strings.HasPrefix(raw, "| "+line) {
			continue
		}
		column := slices.Index(heads, head)
		require.NotEqual(t, -1, column, head)
		for _, number := range decimal.FindAllString(cells[column], -1) {
			numbers = append(numbers, parsed(t, number))
		}
		return numbers
	}
	require.Fail(t, "there is no such line", line)
	return nil
}

var decimal = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

func parsed(t *testing.T, number string) float64 {
	t.Helper()
	value, err := strconv.ParseFloat(number, 64)
	require.NoError(t, err)
	return value
}

// labTable is a table of the lab: its figures by row and column.
type labTable map[string]map[string]labFigure

// labFigure is a figure in the unit that the lab shows, with half the width of its confidence interval, and
// with a difference that means nothing.
type labFigure struct{ value, spread, step float64 }

func (f labFigure) times(n float64) labFigure {
	return labFigure{f.value * n, f.spread * n, f.step * n}
}

// runLab runs a command at the top of the repository. It writes one table.
func runLab(t *testing.T, command string) labTable {
	t.Helper()
	args := strings.Fields(command)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err, command)
	// The origin, the heading, the table, and perhaps what to change.
	parts := strings.Split(string(out), "\n\n")
	require.GreaterOrEqual(t, len(parts), 3, "%s", out)
	lines := strings.Split(strings.TrimRight(parts[2], "\n"), "\n")
	heads := columns.Split(strings.TrimSpace(lines[0]), -1)
	table := labTable{}
	for _, line := range lines[1:] {
		cells := columns.Split(line, -1)
		require.Len(t, cells, len(heads)+1, line)
		table[cells[0]] = map[string]labFigure{}
		for i, cell := range cells[1:] {
			if cell != "–" {
				table[cells[0]][heads[i]] = figureOf(t, cell)
			}
		}
	}
	return table
}

var columns = regexp.MustCompile(` {2,}`)

// figureOf reads a cell such as "1.04 ± 0.01", "52.1 %" or "2.1 s".
func figureOf(t *testing.T, cell string) labFigure {
	t.Helper()
	steps := map[string]float64{"%": 1, "s": 0.2}
	numbers := append(decimal.FindAllString(cell, -1), "0")
	f := labFigure{parsed(t, numbers[0]), parsed(t, numbers[1]), 0.01}
	if step, found := steps[cell[strings.LastIndex(cell, " ")+1:]]; found {
		f.step = step
	}
	return f
}
