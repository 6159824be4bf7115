package retrylab_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/retryhttp/retryhttp/retrylab"
)

// element is a part of a page.
type element struct{ *html.Node }

func parsed(t *testing.T, page []byte) element {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	require.NoError(t, err)
	return element{root}
}

// all returns the elements of a name, with a class if that is not empty.
func (e element) all(name, class string) (found []element) {
	for n := range e.Descendants() {
		if n.Type == html.ElementNode && n.Data == name && (class == "" || element{n}.attribute("class") == class) {
			found = append(found, element{n})
		}
	}
	return found
}

func (e element) attribute(name string) string {
	for _, a := range e.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func (e element) text() string {
	var text strings.Builder
	for n := range e.Descendants() {
		if n.Type == html.TextNode {
			text.WriteString(n.Data)
		}
	}
	return strings.Join(strings.Fields(text.String()), " ")
}

func texts(elements []element) (all []string) {
	for _, e := range elements {
		all = append(all, e.text())
	}
	return all
}

func pageOf(t *testing.T, r retrylab.Report) []byte {
	t.Helper()
	var page bytes.Buffer
	require.NoError(t, r.WriteHTML(&page))
	return page.Bytes()
}

// someReport has two experiments with three policies each.
func someReport(t *testing.T) retrylab.Report {
	t.Helper()
	load := retrylab.Load{Rate: 50, Uptime: 5 * time.Second, Seeds: 2}
	return retrylab.Comparison{Experiments: []retrylab.Experiment{
		retrylab.Outage{Load: load, For: time.Second}, retrylab.RateLimit{Load: load, Jobs: 50},
	}}.Run(t)
}

// requireFigures requires that a page has the report's figures, and what belongs to them.
func requireFigures(t *testing.T, r retrylab.Report, page element) {
	t.Helper()
	sections := page.all("section", "")
	require.Len(t, sections, len(r.Results))
	for i, result := range r.Results {
		section := sections[i]
		require.Equal(t, strings.Join(strings.Fields(result.Reading), " "), section.all("p", "")[0].text())
		var settings []string
		for _, s := range result.Settings {
			settings = append(settings, s.Words())
		}
		require.Equal(t, settings, texts(section.all("ul", "settings")[0].all("li", "")))
		rows := section.all("table", "")[0].all("tr", "")
		require.Len(t, rows, 1+len(result.Rows))
		head := []string{"policy"}
		for _, c := range result.Columns {
			head = append(head, c.Name)
		}
		require.Equal(t, head, texts(rows[0].all("th", "")))
		for j, row := range result.Rows {
			require.Equal(t, row.Name, rows[1+j].all("th", "")[0].text())
			var cells []string
			for _, c := range result.Columns {
				cells = append(cells, c.Text(row))
			}
			require.Equal(t, cells, texts(rows[1+j].all("td", "")))
		}
		require.Len(t, section.all("ul", "legend")[0].all("li", ""), len(result.Rows))
	}
}

func TestPageHasTheFiguresOfTheTables(t *testing.T) {
	r := someReport(t)
	page := parsed(t, pageOf(t, r))
	requireFigures(t, r, page)
	charts := page.all("fieldset", "chart")
	require.Len(t, charts, 4, "two plots for each")
	for i, chart := range charts {
		caption := []string{"Attempts and successes over time", "Time to success of the requests that were hit"}[i%2]
		assert.Equal(t, caption, chart.all("legend", "")[0].text())
	}
	assert.Equal(t, []string{"Outage", "Rate limit"}, texts(page.all("h2", "")))
	dashes := map[string]bool{}
	for _, line := range page.all("section", "")[0].all("line", "") {
		dashes[line.attribute("stroke-dasharray")] = true
	}
	assert.Len(t, dashes, 3, "the lines of three policies differ in print")
}

// chartOf returns the labels of the zones of chart n of a page.
func chartOf(page element, n int) (labels []string) {
	for _, input := range page.all("fieldset", "chart")[n].all("input", "") {
		labels = append(labels, input.attribute("aria-label"))
	}
	return labels
}

func TestValuesOfAPlotAreThoseOfTheResult(t *testing.T) {
	r := retrylab.Report{Results: []retrylab.Result{{
		Experiment: "some-trouble", SeriesFrom: -100 * time.Millisecond, TroubleFor: 200 * time.Millisecond,
		Rows: []retrylab.Row{{
			Name: "mine", Attempts: []float64{10, 20.04, 30}, Successes: []float64{10, 0, 3},
			SuccessTimes: retrylab.Times{time.Second, 24 * time.Second, 24 * time.Second}, FailureTimes: retrylab.Times{time.Second},
		}, {
			Name: "shorter", Attempts: []float64{1}, Successes: []float64{1},
		}},
	}}}
	page := parsed(t, pageOf(t, r))
	assert.Equal(t, []string{
		"-0.1 to 0.0 s; mine: 10 attempts and 10 successes per s; shorter: 1 attempts and 1 successes per s",
		"0.0 to 0.1 s; mine: 20 attempts and 0 successes per s; shorter: no attempts and no successes per s",
		"0.1 to 0.2 s; mine: 30 attempts and 3 successes per s; shorter: no attempts and no successes per s",
	}, chartOf(page, 0))
	within := chartOf(page, 1)
	require.Len(t, within, 24)
	assert.Equal(t, "within 1.00 s; mine: 25.0 %; shorter: 0.0 %", within[0])
	assert.Equal(t, "within 2.00 s; mine: 25.0 %; shorter: 0.0 %", within[1])
	assert.Equal(t, "within 24.00 s; mine: 75.0 %; shorter: 0.0 %", within[23])
	for i, chart := range page.all("fieldset", "chart") {
		for j, tip := range chart.all("span", "tip") {
			label := chartOf(page, i)[j]
			for _, part := range strings.Split(label, "; ") {
				assert.Contains(t, tip.text(), part, "the tip of %s", label)
			}
		}
	}
}

func TestZonesLieOverThePlot(t *testing.T) {
	page := parsed(t, pageOf(t, someReport(t)))
	percent := regexp.MustCompile(`^left: (\d+)\.\d+%; top: (\d+)\.\d+%; width: (\d+)\.\d+%; height: (\d+)\.\d+%$`)
	for i, zones := range page.all("div", "zones") {
		assert.Regexp(t, percent, zones.attribute("style"))
		assert.Regexp(t, `^left: 1\d\..* width: 8\d\.`, zones.attribute("style"), "of it, right of the axis")
		height := []string{"8", "6"}[i%2] // of two panels, and of one: the labels below are as high
		assert.Regexp(t, ` top: [0-9]\..* height: `+height+`\d\.`, zones.attribute("style"))
	}
}

// A chart is one drawing of its panels, one above the other, which the style sheet sizes and colors.
func TestPlotIsDrawn(t *testing.T) {
	curve := []float64{0, 400, 200, 100}
	drawings := func(trouble time.Duration, attempts []float64) []string {
		r := retrylab.Report{Results: []retrylab.Result{{
			Experiment: "some-trouble", SeriesFrom: -100 * time.Millisecond, TroubleFor: trouble,
			Rows: []retrylab.Row{
				{Name: "a", Attempts: attempts, Successes: attempts, SuccessTimes: retrylab.Times{time.Second, 2 * time.Second}},
				{Name: "empty"},
				{Name: "c", Attempts: attempts, Successes: attempts, SuccessTimes: retrylab.Times{time.Second}},
			},
		}}}
		return regexp.MustCompile(`(?s)<svg aria-hidden="true" viewBox=.*?</svg>`).FindAllString(string(pageOf(t, r)), -1)
	}
	svgs := drawings(200*time.Millisecond, curve)
	require.Len(t, svgs, 2)
	count := func(svg, part string) int { return strings.Count(svg, part) }
	assert.NotContains(t, string(pageOf(t, retrylab.Report{Results: []retrylab.Result{{
		Rows: []retrylab.Row{{Attempts: curve, Successes: curve}},
	}}})), "<?xml", "which is for a file of its own")
	for _, svg := range svgs {
		assert.Positive(t, count(svg, "Liberation Sans, Arial, Helvetica, sans-serif"))
		assert.Zero(t, strings.Count(svg, "Liberation Sans;"))
		assert.Positive(t, count(svg, "stroke:var(--grid)"))
		assert.Positive(t, count(svg, "stroke:var(--line0)"))
		assert.Positive(t, count(svg, "stroke:var(--line2)"))
		assert.Equal(t, count(svg, "<text"), count(svg, "fill:var(--ink)"), "each text")
		assert.NotContains(t, svg, "#000000", "no color of the plotting library is left")
	}
	assert.Zero(t, count(svgs[0], "var(--line1)"), "the policy without a curve")
	assert.Equal(t, 2, count(svgs[0], "fill:var(--shade)"), "the trouble, in each panel")
	assert.Equal(t, 1, count(svgs[0], ">seconds from the beginning of the trouble<"), "below the last panel")
	assert.Equal(t, 2, count(svgs[0], ">400<"), "the axis of each panel goes beyond its top")
	assert.Zero(t, count(svgs[0], ">500<"))
	assert.Zero(t, count(drawings(0, curve)[0], "var(--shade)"))
	nothing := drawings(0, []float64{0, 0, 0})[0]
	assert.Positive(t, count(nothing, ">1<"), "an axis of nothing ends at 1")
	assert.Zero(t, count(nothing, ">-1<"), "and begins at 0")
	assert.Equal(t, 2, count(drawings(0, []float64{300, 400, 300})[0], ">200<"), "as every axis does")
}

func TestPageNeedsNoNetworkAndNoScript(t *testing.T) {
	content := pageOf(t, someReport(t))
	page := parsed(t, content)
	assert.Empty(t, page.all("script", ""))
	assert.Empty(t, page.all("img", ""))
	assert.Empty(t, page.all("link", ""))
	for _, a := range page.all("a", "") {
		assert.Regexp(t, "^#e[12]$", a.attribute("href"))
	}
	assert.Contains(t, string(content), `content="default-src 'none'; style-src 'unsafe-inline'"`)
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(string(content), -1) {
		assert.NotRegexp(t, `#[0-9A-Fa-f]{6}|rgb\(`, svg, "the style sheet has the colors")
	}
}

func TestNamesInAPageAreText(t *testing.T) {
	name := `<script>alert("1")</script>`
	r := retrylab.Comparison{
		Experiments: []retrylab.Experiment{retrylab.Outage{Load: retrylab.Load{Rate: 10, Seeds: 1}, For: time.Second}},
		Policies:    []retrylab.Policy{{Name: name, New: retrylab.Default}},
	}.Run(t)
	page := parsed(t, pageOf(t, r))
	assert.Empty(t, page.all("script", ""))
	assert.Equal(t, name, page.all("tbody", "")[0].all("th", "")[0].text())
}

func TestPageOfARunThatFailedSaysWhy(t *testing.T) {
	nothing := retrylab.Number{Mean: math.NaN()}
	r := retrylab.Report{Results: []retrylab.Result{{
		Experiment: "outage", Rows: []retrylab.Row{{Name: "mine", Lost: nothing}},
		Columns:  []retrylab.Column{{Name: "lost", Unit: "%", Of: func(r retrylab.Row) retrylab.Number { return r.Lost }}},
		Failures: []retrylab.Failure{{Experiment: "outage", Policy: "mine", Seed: 2, Reason: "panic: <oh>"}},
	}}}
	page := parsed(t, pageOf(t, r))
	assert.Equal(t, []string{"–"}, texts(page.all("td", "")))
	assert.Equal(t, "A run did not come to its end: policy mine, seed 2.panic: <oh>", page.all("div", "failed")[0].text())
	assert.Empty(t, page.all("fieldset", ""), "there is nothing to draw")
	assert.Contains(t, page.text(), "there are no times to success")
}

func TestPageOfAResultWithoutAName(t *testing.T) {
	page := parsed(t, pageOf(t, retrylab.Report{Results: []retrylab.Result{{}}}))
	assert.Len(t, page.all("section", ""), 1)
}

func TestPageReturnsTheErrorOfItsWriter(t *testing.T) {
	full := errors.New("full")
	assert.ErrorIs(t, someReport(t).WriteHTML(failingWriter{full}), full)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// Chromium's own page, after its style sheet and its policy have been applied, has the same figures, and the
// console is empty.
func TestPageInChromium(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	r := someReport(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "report.html")
	require.NoError(t, os.WriteFile(file, pageOf(t, r), 0o600))
	var page, log bytes.Buffer
	cmd := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--enable-logging=stderr", "--dump-dom", "file://"+file)
	cmd.Stdout, cmd.Stderr = &page, &log
	require.NoError(t, cmd.Run(), log.String())
	assert.NotContains(t, log.String(), "CONSOLE")
	requireFigures(t, r, parsed(t, page.Bytes()))
}
