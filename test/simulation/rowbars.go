package simulation

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// rowBars is a table drawn as bars: a line for each row, a panel for each of some columns.
type rowBars struct {
	file, title string
	head        []string
	rows        [][]string
	columns     []int // by their numbers from 0; what stands before the first of them names the line
	byRow       bool  // the longest bar of each line is as long as any, because each line has a unit of its own
}

const (
	barHeight = 26
	barLength = 90
	barTop    = 76
)

var figureOfCell = regexp.MustCompile(`^([0-9.]+)( %)?`)

// draw writes b into a directory as an SVG.
func (b rowBars) draw(directory string) error {
	names := b.widest(func(row []string) string { return b.name(row) }) + 16
	panels := make([]int, len(b.columns)) // where they begin
	width := names
	for i, column := range b.columns {
		panels[i] = width
		width += max(barLength+24+b.widest(func(row []string) string { return b.shown(row, column) }), textWidth(b.head[column])+20)
	}
	height := barTop + barHeight*len(b.rows) + 8
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="14">
<rect width="100%%" height="100%%" fill="#fff"/>
`, width, height, width, height)
	write := func(x, y int, anchor, words string) {
		fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="%s" fill="#111">%s</text>`+"\n", x, y, anchor, html.EscapeString(words))
	}
	write(16, 26, "start", b.title)
	for i, column := range b.columns {
		write(panels[i], 58, "start", b.head[column])
	}
	for i, row := range b.rows {
		y := barTop + i*barHeight
		write(names-12, y+14, "end", b.name(row))
		for j, column := range b.columns {
			w := 0
			if value, ok := b.value(row, column); ok {
				w = max(1, int(value/b.longest(row, column)*barLength+0.5))
				fmt.Fprintf(&svg, `<rect x="%d" y="%d" width="%d" height="18" fill="%s"/>`+"\n", panels[j], y, w, b.color(j))
			}
			write(panels[j]+w+6, y+14, "start", b.shown(row, column))
		}
	}
	svg.WriteString("</svg>\n")
	return os.WriteFile(filepath.Join(directory, b.file), []byte(svg.String()), 0o644)
}

func (b rowBars) name(row []string) string { return strings.Join(row[:b.columns[0]], ", ") }

// shown is the first figure of a cell.
func (b rowBars) shown(row []string, column int) string {
	figure, _, _ := strings.Cut(row[column], " / ")
	return figure
}

// value is the figure of a cell, if it can be a bar.
func (b rowBars) value(row []string, column int) (value float64, ok bool) {
	found := figureOfCell.FindStringSubmatch(row[column])
	if found == nil || b.inPercent(column) && found[2] == "" {
		return 0, false
	}
	value, err := strconv.ParseFloat(found[1], 64)
	return value, err == nil
}

// inPercent reports whether a column has parts of something, so that another figure is no bar beside them.
func (b rowBars) inPercent(column int) bool {
	for _, row := range b.rows {
		if found := figureOfCell.FindStringSubmatch(row[column]); found != nil && found[2] != "" {
			return true
		}
	}
	return false
}

// longest is the figure of a bar of full length.
func (b rowBars) longest(row []string, column int) float64 {
	most := 1e-9
	switch {
	case b.byRow:
		for _, c := range b.columns {
			value, _ := b.value(row, c)
			most = max(most, value)
		}
	case b.inPercent(column):
		return 100
	default:
		for _, r := range b.rows {
			value, _ := b.value(r, column)
			most = max(most, value)
		}
	}
	return most
}

// color is one of the colors of the other figures. The last panel has this library's, because the default policy is mostly
// the last column.
func (b rowBars) color(panel int) string {
	if panel == len(b.columns)-1 {
		return "#0072b2"
	}
	return []string{"#56b4e9", "#d55e00", "#999999", "#009e73", "#cc79a7"}[panel%5]
}

func (b rowBars) widest(text func(row []string) string) (most int) {
	for _, row := range b.rows {
		most = max(most, textWidth(text(row)))
	}
	return most
}

// textWidth is about the width of a text of this size.
func textWidth(text string) int { return utf8.RuneCountInString(text) * 15 / 2 }
