package barchart_test

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/barchart"
)

// widths returns the widths of the bars in a drawing, and its texts.
func widths(t *testing.T, svg string) (bars, texts []string) {
	t.Helper()
	var drawing struct {
		Rects []struct {
			Width string `xml:"width,attr"`
		} `xml:"rect"`
		Texts []string `xml:"text"`
	}
	require.NoError(t, xml.NewDecoder(strings.NewReader(svg)).Decode(&drawing))
	for _, r := range drawing.Rects[1:] { // the first is the background
		bars = append(bars, r.Width)
	}
	return bars, drawing.Texts
}

func TestBarsHaveTheLengthOfTheirFigures(t *testing.T) {
	chart := barchart.Chart{
		Title: "a & b", Head: []string{"client", "lost", "load"}, Columns: []int{1, 2},
		Rows: [][]string{{"<one>", "50.0 % / 1.2", "4.00"}, {"two", "never", "1.00"}},
	}
	bars, texts := widths(t, chart.SVG())
	assert.Equal(t, []string{"45", "90", "23"}, bars, "half of 100 %, the most, and a quarter of it; never is no bar")
	assert.Equal(t, []string{"a & b", "lost", "load", "<one>", "50.0 %", "4.00", "two", "never", "1.00"}, texts)
}

func TestBarsByRowHaveAUnitForEachRow(t *testing.T) {
	chart := barchart.Chart{
		Head: []string{"", "with", "without"}, Columns: []int{1, 2}, ByRow: true,
		Rows: [][]string{{"a", "1", "2"}, {"b", "300", "100"}},
	}
	bars, _ := widths(t, chart.SVG())
	assert.Equal(t, []string{"45", "90", "90", "30"}, bars)
}

func TestFirstLineStandsOut(t *testing.T) {
	chart := barchart.Chart{
		Head: []string{"", "share"}, Columns: []int{1}, ByLine: true,
		Rows: [][]string{{"ours", "99 %"}, {"theirs", "1 %"}},
	}
	svg := chart.SVG()
	assert.Equal(t, 1, strings.Count(svg, "#0072b2"))
	assert.Equal(t, 1, strings.Count(svg, "#9aa3ad"))
}
