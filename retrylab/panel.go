package retrylab

import (
	"image/color"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// panel is one of the plots of a chart, which stand below each other and share their x axis.
type panel struct {
	yLabel string
	top    float64       // of the y axis; 0: from the curves
	curves []plotter.XYs // one for each policy; nil is left out
}

func (f panel) plot(from, to float64, trouble [2]float64) (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.Y.Label.Text = f.yLabel
	typeset(p)
	p.Y.Tick.Marker, p.X.Tick.Marker = ticks{}, ticks{}
	top := f.yMax()
	if trouble[1] > trouble[0] {
		band, err := plotter.NewPolygon(plotter.XYs{
			{X: trouble[0], Y: 0}, {X: trouble[1], Y: 0}, {X: trouble[1], Y: top}, {X: trouble[0], Y: top},
		})
		if err != nil {
			return nil, err
		}
		band.Color, band.LineStyle.Width = shade, 0
		p.Add(band)
	}
	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = grid, grid
	p.Add(lines)
	for i, points := range f.curves {
		l, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		l.LineStyle = draw.LineStyle{Color: inks[lineOf(i)], Width: vg.Points(2), Dashes: dashes[lineOf(i)]}
		p.Add(l)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = from, to, 0, top // after Add, which changes them
	return p, nil
}

// yMax is where the y axis ends.
func (f panel) yMax() float64 {
	if f.top != 0 {
		return f.top
	}
	top := 0.0
	for _, points := range f.curves {
		for _, p := range points {
			top = max(top, p.Y)
		}
	}
	if top == 0 {
		return 1
	}
	return 1.05 * top
}

// typeset sets the fonts and the colors of the axes.
func typeset(p *plot.Plot) {
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(14)}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = ink, ink
		axis.Label.TextStyle.Color, axis.Tick.Label.Color = ink, ink
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = sans, sans
	}
}

// ticks are the usual ticks without the zeros behind the point.
type ticks struct{ plot.DefaultTicks }

func (t ticks) Ticks(low, high float64) []plot.Tick {
	all := t.DefaultTicks.Ticks(low, high)
	for i, tick := range all {
		if tick.Label != "" {
			all[i].Label = strconv.FormatFloat(tick.Value, 'g', 4, 64)
		}
	}
	return all
}
