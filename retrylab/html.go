package retrylab

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed report.html.tmpl
var reportText string

var reportPage = template.Must(template.New("report").Parse(reportText))

// page is what the template needs.
type page struct {
	About       []Setting
	Experiments []experiment
}

type experiment struct {
	Result
	ID       string
	Title    string
	Lines    []legendLine
	Cells    [][]string // a row for each Row, a cell for each Column
	Timeline *chart
	Times    *chart
}

type legendLine struct {
	Name   string
	Number int    // of the line
	Dashes string // of SVG; empty: none
}

// WriteHTML writes the results as one HTML page that needs no network and no JavaScript. For each experiment
// it has the settings, what to read, the table of WriteTable, attempts and successes over time, and the times
// to success. The values of a plot appear under the pointer, or with the arrow keys.
func (r Report) WriteHTML(w io.Writer) error {
	p := page{About: r.About}
	for i, result := range r.Results {
		e, err := result.page(fmt.Sprintf("e%d", i+1))
		if err != nil {
			return fmt.Errorf("retrylab: %s: %w", result.Experiment, err)
		}
		p.Experiments = append(p.Experiments, e)
	}
	return reportPage.Execute(w, p)
}

func (r Result) page(id string) (e experiment, err error) {
	e = experiment{Result: r, ID: id, Title: title(r.Experiment)}
	for i, row := range r.Rows {
		e.Lines = append(e.Lines, legendLine{row.Name, lineOf(i), svgDashes(lineOf(i))})
		var cells []string
		for _, c := range r.Columns {
			cells = append(cells, c.Text(row))
		}
		e.Cells = append(e.Cells, cells)
	}
	if e.Timeline, err = r.timeline(); err != nil {
		return e, err
	}
	if e.Timeline != nil {
		e.Timeline.Name, e.Timeline.Caption = id+"-load", "Attempts and successes over time"
	}
	if e.Times, err = r.succeededBy(); err != nil {
		return e, err
	}
	if e.Times != nil {
		e.Times.Name, e.Times.Caption = id+"-times", "Time to success of the requests that were hit"
	}
	return e, nil
}

// title writes the name of an experiment with spaces and a capital.
func title(name string) string {
	text := strings.ReplaceAll(name, "-", " ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// svgDashes returns a line's dashes as SVG has them.
func svgDashes(number int) string {
	var lengths []string
	for _, d := range dashes[number] {
		lengths = append(lengths, fmt.Sprintf("%g", float64(d)))
	}
	return strings.Join(lengths, " ")
}
