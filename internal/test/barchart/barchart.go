// Package barchart draws tables as bars, for documents.
package barchart

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Chart is a table drawn as bars: a line for each row, and a panel for each of some columns.
type Chart struct {
	Title   string
	Head    []string
	Rows    [][]string
	Columns []int // by their numbers from 0; the cells before the first of them name the line
	ByRow   bool  // the longest bar of each line is as long as any: each line has a unit of its own
	ByLine  bool  // the first line has a color of its own, and not each panel
}

const (
	barHeight = 26
	barLength = 90
	barTop    = 76
)

var figureOfCell = regexp.MustCompile(`^([0-9.]+)( %)?`)

// SVG returns the drawing.
func (c Chart) SVG() string {
	names := c.widest(func(row []string) string { return c.name(row) }) + 16
	panels := make([]int, len(c.Columns)) // where they begin
	width := names
	for i, column := range c.Columns {
		panels[i] = width
		width += max(barLength+24+c.widest(func(row []string) string { return c.shown(row, column) }), textWidth(c.Head[column])+20)
	}
	height := barTop + barHeight*len(c.Rows) + 8
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="14">
<rect width="100%%" height="100%%" fill="#fff"/>
`, width, height, width, height)
	write := func(x, y int, anchor, words string) {
		fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="%s" fill="#111">%s</text>`+"\n", x, y, anchor, html.EscapeString(words))
	}
	write(16, 26, "start", c.Title)
	for i, column := range c.Columns {
		write(panels[i], 58, "start", c.Head[column])
	}
	for i, row := range c.Rows {
		y := barTop + i*barHeight
		write(names-12, y+14, "end", c.name(row))
		for j, column := range c.Columns {
			w := 0
			if value, ok := c.value(row, column); ok {
				w = max(1, int(value/c.longest(row, column)*barLength+0.5))
				fmt.Fprintf(&svg, `<rect x="%d" y="%d" width="%d" height="18" fill="%s"/>`+"\n", panels[j], y, w, c.color(i, j))
			}
			write(panels[j]+w+6, y+14, "start", c.shown(row, column))
		}
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

func (c Chart) name(row []string) string { return strings.Join(row[:c.Columns[0]], ", ") }

// shown is the first figure of a cell.
func (c Chart) shown(row []string, column int) string {
	figure, _, _ := strings.Cut(row[column], " / ")
	return figure
}

// value is the figure of a cell, if it can be a bar.
func (c Chart) value(row []string, column int) (value float64, ok bool) {
	found := figureOfCell.FindStringSubmatch(row[column])
	if found == nil || c.inPercent(column) && found[2] == "" {
		return 0, false
	}
	value, err := strconv.ParseFloat(found[1], 64)
	return value, err == nil
}

// inPercent reports whether a column has parts of something, so that another figure is no bar beside them.
func (c Chart) inPercent(column int) bool {
	for _, row := range c.Rows {
		if found := figureOfCell.FindStringSubmatch(row[column]); found != nil && found[2] != "" {
			return true
		}
	}
	return false
}

// longest is the figure of a bar of full length.
func (c Chart) longest(row []string, column int) float64 {
	most := 1e-9
	switch {
	case c.ByRow:
		for _, other := range c.Columns {
			value, _ := c.value(row, other)
			most = max(most, value)
		}
	case c.inPercent(column):
		return 100
	default:
		for _, r := range c.Rows {
			value, _ := c.value(r, column)
			most = max(most, value)
		}
	}
	return most
}

// color is one of the colors of the other figures. By panels, the last one has this library's, because the default policy is
// mostly the last column.
func (c Chart) color(line, panel int) string {
	const own, other = "#0072b2", "#9aa3ad"
	switch {
	case c.ByLine && line > 0:
		return other
	case c.ByLine || panel == len(c.Columns)-1:
		return own
	}
	return []string{"#56b4e9", "#d55e00", "#999999", "#009e73", "#cc79a7"}[panel%5]
}

func (c Chart) widest(text func(row []string) string) (most int) {
	for _, row := range c.Rows {
		most = max(most, textWidth(text(row)))
	}
	return most
}

// textWidth is about the width of a text of this size.
func textWidth(text string) int { return utf8.RuneCountInString(text) * 15 / 2 }
