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

// A heatMap is a figure of panels in rows and columns. Each panel has a color for each cell of the
// same grid.
type heatMap struct {
	file           string
	xLabel, yLabel string
	xs, ys         []float64 // the centers of the cells, equally far apart
	panels         [][]panel
	classes        []class // the last panel is their key
}

// A class is what a color stands for.
type class struct {
	name  string
	color color.Color
}

// A panel is a map with its cells. The first index is of ys, the second is of xs.
type panel struct {
	title   string
	classes [][]int
	crosses [][]bool // also marked with a cross
	dots    [][]bool // also marked with a dot
}

// cells makes a panel's classes a grid for the plotter.
type cells struct {
	xs, ys  []float64
	classes [][]int
}

func (c cells) Dims() (columns, rows int) { return len(c.xs), len(c.ys) }
func (c cells) Z(column, row int) float64 { return float64(c.classes[row][column]) }
func (c cells) X(column int) float64      { return c.xs[column] }
func (c cells) Y(row int) float64         { return c.ys[row] }

// Colors makes m a palette for the plotter.
func (m heatMap) Colors() (all []color.Color) {
	for _, c := range m.classes {
		all = append(all, c.color)
	}
	return all
}

// draw writes m into a directory as an SVG.
func (m heatMap) draw(dir string) error {
	svg := vgsvg.New(8.5*vg.Inch, 2.5*vg.Inch*vg.Length(len(m.panels))+keyHeight)
	m.paint(draw.New(svg))
	return save(svg, filepath.Join(dir, m.file))
}

const keyHeight = 0.9 * vg.Inch

func (m heatMap) paint(canvas draw.Canvas) {
	rows, columns := len(m.panels), len(m.panels[0])
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	plots := make([][]*plot.Plot, rows)
	for i, row := range m.panels {
		for _, p := range row {
			plots[i] = append(plots[i], m.plot(m.xs, m.ys, p))
		}
		plots[i][0].Y.Label.Text = m.yLabel
	}
	for _, p := range plots[rows-1] {
		p.X.Label.Text = m.xLabel
	}
	pad := vg.Points(12)
	inner := draw.Crop(canvas, vg.Points(6), vg.Points(-10), keyHeight, vg.Points(-6))
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: pad, PadY: pad}
	for i, row := range plot.Align(plots, tiles, inner) {
		for j, tile := range row {
			plots[i][j].Draw(tile)
		}
	}
	m.key().Draw(draw.Crop(canvas, vg.Points(40), vg.Points(-10), vg.Points(6), keyHeight-canvas.Max.Y))
}

// plot returns a map without the labels of its axes.
func (m heatMap) plot(xs, ys []float64, p panel) *plot.Plot {
	result := plot.New()
	result.BackgroundColor = color.White
	typeset(result, 12)
	result.Title.Text = p.title
	result.X.Tick.Marker, result.Y.Tick.Marker = plainTicks{}, plainTicks{}
	grid := plotter.NewHeatMap(cells{xs, ys, p.classes}, m)
	grid.Min, grid.Max = 0, float64(len(m.classes)-1)
	result.Add(grid)
	mark(result, xs, ys, p.crosses, draw.GlyphStyle{Shape: draw.CrossGlyph{}, Radius: vg.Points(4)})
	mark(result, xs, ys, p.dots, draw.GlyphStyle{Shape: draw.CircleGlyph{}, Radius: vg.Points(2)})
	return result
}

// mark draws a glyph in the cells that are marked.
func mark(p *plot.Plot, xs, ys []float64, marked [][]bool, glyph draw.GlyphStyle) {
	var points plotter.XYs
	for i, row := range marked {
		for j, is := range row {
			if is {
				points = append(points, plotter.XY{X: xs[j], Y: ys[i]})
			}
		}
	}
	glyph.Color = color.Black
	p.Add(&plotter.Scatter{XYs: points, GlyphStyle: glyph})
}

// key is a row with a cell for each class.
func (m heatMap) key() *plot.Plot {
	names, xs, row := make([]string, len(m.classes)), make([]float64, len(m.classes)), make([]int, len(m.classes))
	for i, c := range m.classes {
		names[i], xs[i], row[i] = c.name, float64(i), i
	}
	p := m.plot(xs, []float64{0}, panel{classes: [][]int{row}})
	p.NominalX(names...)
	p.HideY()
	return p
}
