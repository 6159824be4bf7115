package simulation

import (
	"image/color"

	"github.com/retryhttp/retryhttp/retrylab/simulation/sim"
)

func (r *report) escape() {
	r.add(`
Each cell is a service of 200 attempts a second, with a load and with a cost of what it rejects. The color is the goodput
against no retries. Then there is three times the load for 10 s. A cross means that the service stays down: 20 to 30 s
later it has less than half of the goodput that it had before. A dot means that it has less than nine tenths.

![Goodput, and what becomes of a service after a spike, by load and cost of a rejection](img/escape.svg)

Without a budget, retries keep down even services that can do twice their load. With the default policy, no service stays down
that comes back without retries. A service with room for a tenth, which spends two fifths of a success or more on each
rejection, loses a part of its goodput to retries, and keeps most of it. In a fleet of a hundred processes, it may take more
than half a minute to come back after a spike.`)
	r.add(r.making() + " makes this map.")
	m := heatMap{
		file: "escape.svg", xLabel: "cost of a rejection, of a success", yLabel: "load, of capacity",
		xs: tenths(0, 10), ys: tenths(5, 13), classes: escapeClasses,
	}
	capacity := 200.0
	if !r.full {
		m.xs, m.ys, capacity = tenths(5, 6), tenths(5, 6), 50
	}
	names := map[int]string{1: "1 process", 100: "100 processes"}
	none := map[int][][]sim.EscapeCell{}
	for _, c := range budgeting {
		var row []panel
		for _, processes := range []int{1, 100} {
			got := sim.Escape{
				Policy: c.policy, Processes: processes, Capacity: capacity, Loads: m.ys, Costs: m.xs, Seeds: 1,
			}.Run(r.t)
			if none[processes] == nil {
				none[processes] = got
			}
			row = append(row, escapePanel(c.name+", "+names[processes], got, none[processes]))
		}
		m.panels = append(m.panels, row)
	}
	r.draw(m)
}

// tenths returns the tenths from one to another.
func tenths(from, to int) (all []float64) {
	for i := from; i <= to; i++ {
		all = append(all, float64(i)/10)
	}
	return all
}

// escapeClasses are by the goodput as a part of the goodput without retries.
var escapeClasses = []class{
	{"down without, too", color.Gray{215}},
	{"< 0.5", color.RGBA{165, 0, 38, 255}},
	{"0.5 to 0.75", color.RGBA{244, 109, 67, 255}},
	{"0.75 to 0.9", color.RGBA{254, 224, 144, 255}},
	{"0.9 to 0.97", color.RGBA{171, 217, 233, 255}},
	{"0.97 or more", color.RGBA{69, 117, 180, 255}},
}

func escapePanel(title string, got, none [][]sim.EscapeCell) panel {
	p := panel{title: title}
	for i, row := range got {
		n := len(row)
		classes, crosses, dots := make([]int, n), make([]bool, n), make([]bool, n)
		for j, cell := range row {
			without := none[i][j]
			if without.Before < 0.1 {
				continue // not a service that retries could harm
			}
			classes[j] = 1
			for _, least := range []float64{0.5, 0.75, 0.9, 0.97} {
				if cell.Before >= least*without.Before {
					classes[j]++
				}
			}
			crosses[j], dots[j] = cell.Ending() == sim.Down, cell.Ending() == sim.Short
		}
		p.classes, p.crosses, p.dots = append(p.classes, classes), append(p.crosses, crosses), append(p.dots, dots)
	}
	return p
}
