package simulation

import (
	"bytes"
	"image/color"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A curve is a line of a plot.
type curve struct {
	name string
	x, y []float64
}

// A figure is a plot with its axes. Units stand in the labels.
type figure struct {
	file, title    string
	xLabel, yLabel string
	yMin, yMax     float64   // yMin above 0: the axis is logarithmic
	marks          []float64 // vertical lines
	bands          []band
	levels         []level
	legendAt       vg.Length // from the left; 0: at the axis
	curves         []curve
	below          *figure // with the same times and curves, and so without a legend
}

// A band is a time with a grey background and a name.
type band struct {
	from, to float64
	name     string
}

// A level is a thin horizontal line with a name.
type level struct {
	from, to, y float64
	name        string
}

// The colors of Okabe and Ito, 2008, which people who see few colors can tell
// apart, and dashes for those who see none. The background is white and opaque,
// so that a dark page does not swallow the text.
func styles() []draw.LineStyle {
	style := func(r, g, b uint8, dashes ...vg.Length) draw.LineStyle {
		return draw.LineStyle{Color: color.RGBA{r, g, b, 255}, Width: vg.Points(2.2), Dashes: dashes}
	}
	return []draw.LineStyle{
		style(0, 114, 178),
		style(213, 94, 0, 7, 3),
		style(0, 158, 115, 2, 3),
		style(204, 121, 167, 9, 3, 2, 3),
		style(86, 180, 233, 4, 2),
	}
}

// draw writes f into a directory as an SVG, large enough in its type for a phone.
func (f figure) draw(dir string) error {
	var column [][]*plot.Plot
	for part := &f; part != nil; part = part.below {
		p, err := part.plot()
		if err != nil {
			return err
		}
		if part != &f {
			p.Legend = plot.NewLegend()
		}
		column = append(column, []*plot.Plot{p})
	}
	const width, height = 7 * vg.Inch, 4.8 * vg.Inch
	svg := vgsvg.New(width, height*vg.Length(len(column)))
	canvas := draw.New(svg)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	inner := draw.Crop(canvas, vg.Points(6), vg.Points(-20), vg.Points(6), vg.Points(-6))
	for i, row := range plot.Align(column, draw.Tiles{Rows: len(column), Cols: 1, PadY: vg.Points(14)}, inner) {
		column[i][0].Draw(row[0])
	}
	return save(svg, filepath.Join(dir, f.file))
}

// save writes an SVG into a file.
func save(svg *vgsvg.Canvas, file string) error {
	var buf bytes.Buffer
	if _, err := svg.WriteTo(&buf); err != nil {
		return err
	}
	// Where the font is not installed, one of the same widths.
	text := bytes.ReplaceAll(buf.Bytes(),
		[]byte("Liberation Sans"), []byte("Liberation Sans, Arial, Helvetica, sans-serif"))
	return os.WriteFile(file, text, 0o644)
}

// typeset sets the fonts of a plot. The title is a little larger than the rest.
func typeset(p *plot.Plot, size vg.Length) {
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	for _, s := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		*s = sans
	}
	p.Title.TextStyle.Font.Size = size + 2
	p.Title.Padding = vg.Points(8)
}

// plot returns f with its axes, its legend, and all that is in it.
func (f figure) plot() (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = f.title
	p.X.Label.Text, p.Y.Label.Text = f.xLabel, f.yLabel
	typeset(p, 15)
	p.Legend.Top, p.Legend.Left = true, true // the text may grow to the right
	p.Legend.XOffs = max(vg.Points(8), f.legendAt)
	p.Legend.ThumbnailWidth = vg.Points(34)
	for _, b := range f.bands {
		if err := b.draw(p, f.yMin, f.top()); err != nil {
			return nil, err
		}
	}
	p.Add(grid())
	for i, c := range f.curves {
		points := make(plotter.XYs, len(c.x))
		for j := range c.x {
			points[j] = plotter.XY{X: c.x[j], Y: max(c.y[j], f.yMin)}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.LineStyle = styles()[i%len(styles())]
		p.Add(line)
		p.Legend.Add(c.name, line)
	}
	for _, l := range f.levels {
		line, err := plotter.NewLine(plotter.XYs{{X: l.from, Y: l.y}, {X: l.to, Y: l.y}})
		if err != nil {
			return nil, err
		}
		line.LineStyle = draw.LineStyle{Color: color.Gray{90}, Width: vg.Points(1.2)}
		p.Add(line)
		p.Legend.Add(l.name, line)
	}
	f.scale(p)
	for _, x := range f.marks {
		mark, err := plotter.NewLine(plotter.XYs{{X: x, Y: p.Y.Min}, {X: x, Y: p.Y.Max}})
		if err != nil {
			return nil, err
		}
		mark.LineStyle = draw.LineStyle{Color: color.Gray{120}, Width: vg.Points(1), Dashes: []vg.Length{3, 3}}
		p.Add(mark)
	}
	return p, nil
}

// top is where the y axis ends, with room for the legend.
func (f figure) top() float64 {
	if f.yMin > 0 {
		return f.yMax
	}
	return f.yMax * (1.02 + 0.1*float64(len(f.curves)))
}

// scale sets the y axis.
func (f figure) scale(p *plot.Plot) {
	p.Y.Min, p.Y.Max = f.yMin, f.top()
	p.Y.Tick.Marker = plainTicks{}
	if f.yMin > 0 {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
}

func (b band) draw(p *plot.Plot, bottom, top float64) error {
	area, err := plotter.NewPolygon(plotter.XYs{
		{X: b.from, Y: bottom}, {X: b.to, Y: bottom}, {X: b.to, Y: top}, {X: b.from, Y: top},
	})
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = color.Gray{230}, 0
	p.Add(area)
	p.Legend.Add(b.name, area)
	return nil
}

// plainTicks are the usual ticks without the zeros behind the point.
type plainTicks struct{ plot.DefaultTicks }

func (t plainTicks) Ticks(low, high float64) []plot.Tick {
	ticks := t.DefaultTicks.Ticks(low, high)
	for i, tick := range ticks {
		if tick.Label != "" {
			ticks[i].Label = strconv.FormatFloat(tick.Value, 'g', 4, 64)
		}
	}
	return ticks
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Horizontal.Color, g.Vertical.Color = color.Gray{220}, color.Gray{220}
	return g
}
