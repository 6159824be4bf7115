package retrylab

import (
	"bytes"
	"html/template"
	"image/color"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a drawing, and what its parts say when they are pointed at or focused.
type chart struct {
	Name                     string // which no other chart of the page has
	Caption                  string
	SVG                      template.HTML
	Left, Top, Width, Height float64 // of the zones, in per cent of the drawing
	Zones                    []zone
}

// zone is a vertical part of a chart.
type zone struct {
	Range  string
	Values []value
}

type value struct{ Name, Text string }

// Label is what a screen reader says of the zone.
func (z zone) Label() string {
	text := z.Range
	for _, v := range z.Values {
		text += "; " + v.Name + ": " + v.Text
	}
	return text
}

// A curve has up to mostPoints, and a chart up to mostZones.
const (
	mostPoints = 80
	mostZones  = 24
)

// These colors stand for others in a drawing: the style sheet gives each its value, which is another on a
// dark page.
var (
	ink    = color.RGBA{R: 1, G: 1, B: 1, A: 255}
	grid   = color.RGBA{R: 2, G: 2, B: 2, A: 255}
	shade  = color.RGBA{R: 3, G: 3, B: 3, A: 255}
	inks   = []color.Color{line(0), line(1), line(2), line(3), line(4), line(5)}
	dashes = [][]vg.Length{nil, {7, 3}, {2, 3}, {9, 3, 2, 3}, {4, 2}, {1, 2}}
)

func line(i uint8) color.Color { return color.RGBA{R: 10 + i, G: 10 + i, B: 10 + i, A: 255} }

var variables = strings.NewReplacer(
	"#010101", "var(--ink)", "#020202", "var(--grid)", "#030303", "var(--shade)",
	"#0A0A0A", "var(--line0)", "#0B0B0B", "var(--line1)", "#0C0C0C", "var(--line2)",
	"#0D0D0D", "var(--line3)", "#0E0E0E", "var(--line4)", "#0F0F0F", "var(--line5)",
)

// lineOf returns the number of a policy's line.
func lineOf(policy int) int { return policy % len(inks) }

// draw draws the panels over an x axis, with the trouble shaded.
func (c *chart) draw(xLabel string, from, to float64, trouble [2]float64, panels []panel) error {
	var column [][]*plot.Plot
	for i, panel := range panels {
		p, err := panel.plot(from, to, trouble)
		if err != nil {
			return err
		}
		if i == len(panels)-1 {
			p.X.Label.Text = xLabel
		}
		column = append(column, []*plot.Plot{p})
	}
	const width, height = 6 * vg.Inch, 2.4 * vg.Inch
	total := height * vg.Length(len(panels))
	svg := vgsvg.New(width, total)
	inner := draw.Crop(draw.New(svg), vg.Points(2), vg.Points(-8), vg.Points(2), vg.Points(-8))
	var area vg.Rectangle
	for i, row := range plot.Align(column, draw.Tiles{Rows: len(column), Cols: 1, PadY: vg.Points(12)}, inner) {
		column[i][0].Draw(row[0])
		data := column[i][0].DataCanvas(row[0])
		if i == 0 {
			area = data.Rectangle
		}
		area.Min.Y = data.Min.Y
	}
	percent := func(part, whole vg.Length) float64 { return 100 * float64(part/whole) }
	c.Left, c.Width = percent(area.Min.X, width), percent(area.Max.X-area.Min.X, width)
	c.Top, c.Height = percent(total-area.Max.Y, total), percent(area.Max.Y-area.Min.Y, total)
	return c.keep(svg)
}

// size is the size of a drawing, which the style sheet sets instead.
var size = regexp.MustCompile(`<svg width="[^"]*" height="[^"]*"`)

// keep takes the drawing without what is only for a file of its own.
func (c *chart) keep(svg *vgsvg.Canvas) error {
	var b bytes.Buffer
	if _, err := svg.WriteTo(&b); err != nil {
		return err
	}
	text := b.String()
	text = text[strings.Index(text, "<svg"):]
	text = size.ReplaceAllString(text, `<svg aria-hidden="true"`)
	text = strings.ReplaceAll(text, "Liberation Sans", "Liberation Sans, Arial, Helvetica, sans-serif")
	c.SVG = template.HTML(variables.Replace(text)) // no text of a user is in it
	return nil
}
