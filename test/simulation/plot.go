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
	yMax           float64
	marks          []float64 // vertical lines
	bands          []band
	levels         []level
	legendAt       vg.Length // from the left; 0: at the axis
	curves         []curve
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
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = f.title
	p.X.Label.Text, p.Y.Label.Text = f.xLabel, f.yLabel
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, s := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		sans.Size = 15
		*s = sans
	}
	p.Title.TextStyle.Font.Size = 17
	p.Title.Padding = vg.Points(8)
	p.Legend.Top, p.Legend.Left = true, true // the text may grow to the right
	p.Legend.XOffs = max(vg.Points(8), f.legendAt)
	p.Y.Tick.Marker = plainTicks{}
	p.Legend.ThumbnailWidth = vg.Points(34)
	yMax := f.yMax * (1.02 + 0.1*float64(len(f.curves))) // room for the legend
	for _, b := range f.bands {
		if err := b.draw(p, yMax); err != nil {
			return err
		}
	}
	p.Add(grid())
	for i, c := range f.curves {
		points := make(plotter.XYs, len(c.x))
		for j := range c.x {
			points[j] = plotter.XY{X: c.x[j], Y: c.y[j]}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = styles()[i%len(styles())]
		p.Add(line)
		p.Legend.Add(c.name, line)
	}
	for _, l := range f.levels {
		line, err := plotter.NewLine(plotter.XYs{{X: l.from, Y: l.y}, {X: l.to, Y: l.y}})
		if err != nil {
			return err
		}
		line.LineStyle = draw.LineStyle{Color: color.Gray{90}, Width: vg.Points(1.2)}
		p.Add(line)
		p.Legend.Add(l.name, line)
	}
	p.Y.Min, p.Y.Max = 0, yMax
	for _, x := range f.marks {
		mark, err := plotter.NewLine(plotter.XYs{{X: x, Y: 0}, {X: x, Y: p.Y.Max}})
		if err != nil {
			return err
		}
		mark.LineStyle = draw.LineStyle{Color: color.Gray{120}, Width: vg.Points(1), Dashes: []vg.Length{3, 3}}
		p.Add(mark)
	}
	const width, height = 7 * vg.Inch, 4.8 * vg.Inch
	svg := vgsvg.New(width, height)
	canvas := draw.New(svg)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	p.Draw(draw.Crop(canvas, vg.Points(6), vg.Points(-20), vg.Points(6), vg.Points(-6)))
	var buf bytes.Buffer
	if _, err := svg.WriteTo(&buf); err != nil {
		return err
	}
	// Where the font is not installed, one of the same widths.
	text := bytes.ReplaceAll(buf.Bytes(),
		[]byte("Liberation Sans"), []byte("Liberation Sans, Arial, Helvetica, sans-serif"))
	return os.WriteFile(filepath.Join(dir, f.file), text, 0o644)
}

func (b band) draw(p *plot.Plot, yMax float64) error {
	area, err := plotter.NewPolygon(plotter.XYs{
		{X: b.from, Y: 0}, {X: b.to, Y: 0}, {X: b.to, Y: yMax}, {X: b.from, Y: yMax},
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
