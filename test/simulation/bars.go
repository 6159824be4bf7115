package simulation

import (
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// bars is a figure of panels below each other. Each panel has groups of bars, a bar for each series, and the
// number of each bar above it. The key of the series is the legend of the first panel.
type bars struct {
	file   string
	groups []string
	series []string
	panels []barPanel
}

// A barPanel has a number for each series and group. The first index is of the series.
type barPanel struct {
	title  string
	values [][]float64
	label  func(float64) string
	top    float64 // where the axis ends
}

// draw writes b into a directory as an SVG.
func (b bars) draw(dir string) error {
	column := make([][]*plot.Plot, 0, len(b.panels))
	for i, panel := range b.panels {
		p, err := b.plot(panel)
		if err != nil {
			return err
		}
		if i > 0 {
			p.Legend = plot.NewLegend()
		}
		column = append(column, []*plot.Plot{p})
	}
	svg := vgsvg.New(7.4*vg.Inch, vg.Length(len(column))*2.6*vg.Inch)
	canvas := draw.New(svg)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	inner := draw.Crop(canvas, vg.Points(6), vg.Points(-6), vg.Points(8), vg.Points(-8))
	tiles := draw.Tiles{Rows: len(column), Cols: 1, PadY: vg.Points(12)}
	for i, c := range plot.Align(column, tiles, inner) {
		column[i][0].Draw(c[0])
	}
	return save(svg, filepath.Join(dir, b.file))
}

func (b bars) plot(panel barPanel) (*plot.Plot, error) {
	const width = 28
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = panel.title
	typeset(p, 13)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.Padding = vg.Points(6), vg.Points(3)
	p.HideY() // each bar has its number
	p.NominalX(b.groups...)
	p.X.Tick.Length, p.X.Padding = 0, 0
	p.X.Min, p.X.Max = -0.5, float64(len(b.groups))-0.5
	p.Y.Min, p.Y.Max = 0, panel.top
	for i, values := range panel.values {
		chart, err := plotter.NewBarChart(plotter.Values(values), vg.Points(width))
		if err != nil {
			return nil, err
		}
		chart.Color, chart.LineStyle.Width = styles()[barStyle[i]].Color, 0
		chart.Offset = vg.Points((width + 6) * (float64(i) - float64(len(panel.values)-1)/2))
		p.Add(chart)
		p.Legend.Add(b.series[i], chart)
		if err := panel.number(p, values, chart.Offset); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// barStyle are the colors of the series, so that the last one, this library, stands out as in the plots.
var barStyle = []int{4, 1, 0}

// number puts the number of each bar above it.
func (panel barPanel) number(p *plot.Plot, values []float64, offset vg.Length) error {
	at := plotter.XYLabels{}
	for group, v := range values {
		at.XYs = append(at.XYs, plotter.XY{X: float64(group), Y: v})
		at.Labels = append(at.Labels, panel.label(v))
	}
	labels, err := plotter.NewLabels(at)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i] = p.Legend.TextStyle
		labels.TextStyle[i].Font.Size = 11
		labels.TextStyle[i].XAlign = draw.XCenter
	}
	labels.Offset = vg.Point{X: offset, Y: vg.Points(4)}
	p.Add(labels)
	return nil
}
