package retrylab

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

// All returns every experiment with its defaults, at a load.
func All(load Load) []Experiment {
	return []Experiment{
		Outage{Load: load}, DeadBackend{Load: load}, Overload{Load: load}, Spike{Load: load}, Deploy{Load: load},
		RateLimit{Load: load}, Reset{Load: load}, LatencyStep{Load: load}, Layers{Load: load}, Replicas{Load: load},
		Flapping{Load: load}, Burst{Load: load}, Cron{Load: load}, LongOutage{Load: load}, Invited{Load: load}, Workers{Load: load},
	}
}

// Comparison runs several experiments with several policies.
type Comparison struct {
	Experiments []Experiment // nil: All(Load{})
	Policies    []Policy     // nil: the default policy, named "policy"
	Alone       bool         // without retries without a budget, no retries, and a Hedge
	Progress    io.Writer    // gets a line for each experiment; nil: none
	About       []Setting    // what the report says of its origin, such as a command; nil: nothing
}

// Validate returns an error that names each experiment and field with a value that makes no sense.
func (c Comparison) Validate() error {
	var errs []error
	for i, e := range c.Experiments {
		if e == nil {
			errs = append(errs, fmt.Errorf("retrylab: experiment %d is nil", i))
			continue
		}
		errs = append(errs, e.Validate())
	}
	names := map[string]bool{Unbounded: true, NoRetries: true}
	for _, p := range c.Policies {
		if p.New == nil && p.Fleet == nil {
			errs = append(errs, fmt.Errorf("retrylab: New and Fleet of the policy %q are nil", p.Name))
		}
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("retrylab: two policies are named %q", p.Name))
		}
		names[p.Name] = true
	}
	return errors.Join(errs...)
}

// Run runs the experiments one after the other. It fails the test, and returns at once, if Validate
// returns an error. It fails the test, and goes on, if a policy panics or a request never ends.
func (c Comparison) Run(t *testing.T) Report {
	t.Helper()
	if c.Experiments == nil {
		c.Experiments = All(Load{})
	}
	if c.Policies == nil {
		c.Policies = []Policy{{Name: TheirPolicy, New: Default}}
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	report := Report{About: c.About}
	for i, e := range c.Experiments {
		fmt.Fprintf(c.Progress, "%d of %d: %s\n", i+1, len(c.Experiments), e.Name())
		p, err := checked(e)
		if err != nil {
			t.Fatal(err)
		}
		result := p.compare(t, c.Policies, c.Alone)
		for _, f := range result.Failures {
			t.Errorf("retrylab: %v", f)
		}
		report.Results = append(report.Results, result)
	}
	return report
}

// Report has the results of a Comparison.
type Report struct {
	About   []Setting // as in Comparison
	Results []Result
}

// Failures returns the failures of all results.
func (r Report) Failures() []Failure {
	var all []Failure
	for _, result := range r.Results {
		all = append(all, result.Failures...)
	}
	return all
}

// WriteTable writes the results as text: a table for each experiment.
func (r Report) WriteTable(w io.Writer) error {
	for _, about := range r.About {
		if _, err := fmt.Fprintf(w, "%s: %s\n", about.Name, about.Value); err != nil {
			return err
		}
	}
	for i, result := range r.Results {
		if i > 0 || len(r.About) > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := result.WriteTable(w); err != nil {
			return err
		}
	}
	return nil
}

// String returns the tables.
func (r Report) String() string {
	var b strings.Builder
	_ = r.WriteTable(&b)
	return b.String()
}

// String returns the table.
func (r Result) String() string { return Report{Results: []Result{r}}.String() }

// WriteTable writes the result as text: the settings, what to read, and a table with a line for each policy.
func (r Result) WriteTable(w io.Writer) error {
	settings := make([]string, len(r.Settings))
	for i, s := range r.Settings {
		settings[i] = s.Words()
	}
	if _, err := fmt.Fprintf(w, "%s\n%s\n", strings.ToUpper(r.Experiment), wrapped(strings.Join(settings, ", "))); err != nil {
		return err
	}
	for _, p := range r.Policies {
		if _, err := fmt.Fprintln(w, wrapped(p.Name+": "+p.Value)); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "%s\n\n", wrapped(r.Reading)); err != nil {
		return err
	}
	lines := [][]string{{""}}
	for _, c := range r.Columns {
		lines[0] = append(lines[0], c.Name)
	}
	for _, row := range r.Rows {
		line := []string{row.Name}
		for _, c := range r.Columns {
			line = append(line, c.Text(row))
		}
		lines = append(lines, line)
	}
	if err := writeAligned(w, lines); err != nil {
		return err
	}
	if r.Advice != "" {
		if _, err := fmt.Fprintf(w, "\n%s\n", wrapped(r.Advice)); err != nil {
			return err
		}
	}
	for _, f := range r.Failures {
		if _, err := fmt.Fprintf(w, "FAILED: %v\n", f); err != nil {
			return err
		}
	}
	return nil
}

// writeAligned writes cells in columns, of which all except the first are aligned to the right.
func writeAligned(w io.Writer, lines [][]string) error {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString(cell + space)
			} else {
				b.WriteString("  " + space + cell)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// wrapped breaks text into lines of at most 100 columns.
func wrapped(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > 100:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
