package sim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRetriesKeepNoServiceDownThatComesBackWithoutThem(t *testing.T) {
	for _, processes := range []int{1, 100} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			e := Escape{
				Policy: once, Processes: processes, Capacity: 200,
				Loads: []float64{0.8, 0.9, 1.1}, Costs: []float64{0.3, 0.5, 0.8}, Seeds: 2,
			}
			none := e.Run(t)
			e.Policy = defaults
			for i, row := range e.Run(t) {
				for j, cell := range row {
					if none[i][j].Ending() == Back {
						assert.NotEqual(t, Down, cell.Ending(), "load %v, cost %v: %+v", e.Loads[i], e.Costs[j], cell)
					}
				}
			}
		})
	}
	t.Run("without a budget, retries keep down what has room for two thirds more", func(t *testing.T) {
		e := Escape{
			Policy: ungated(unlimited), Processes: 1, Capacity: 100,
			Loads: []float64{0.6}, Costs: []float64{0.1, 0.6}, Seeds: 1,
		}
		cells := e.Run(t)
		assert.Equal(t, Back, cells[0][0].Ending())
		assert.Equal(t, Down, cells[0][1].Ending())
	})
}
