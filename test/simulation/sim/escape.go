package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
)

// An Escape is a map of Overloaded services. They differ in their load and in the cost of a
// rejection. Each has a spike of three times the load. The map shows which services escape from
// their clients' retries, and what the retries cost before the spike.
type Escape struct {
	Policy    func() retryhttp.Policy // of a process
	Processes int
	Capacity  float64   // attempts per second
	Loads     []float64 // as parts of the Capacity
	Costs     []float64 // of a rejection, as parts of the work of a success
	Seeds     int
}

// EscapeCell is one service of the map. The goodput is in parts of the Capacity.
type EscapeCell struct {
	Before float64 // goodput before the spike
	After  float64 // goodput from 20 to 30 s after the spike
}

// Ending is what became of a service.
type Ending int

const (
	Back  Ending = iota // it has nine tenths of the goodput that it had before the spike
	Short               // it has half of that
	Down                // it has less, or next to nothing
)

// Ending returns what became of the service.
func (c EscapeCell) Ending() Ending {
	const nextToNothing = 0.05
	switch {
	case c.After < nextToNothing || c.After < 0.5*c.Before:
		return Down
	case c.After < 0.9*c.Before:
		return Short
	}
	return Back
}

// Run returns the map. The first index is of Loads, the second is of Costs.
func (e Escape) Run(t *testing.T) [][]EscapeCell {
	t.Helper()
	cells := make([][]EscapeCell, len(e.Loads))
	t.Run("map", func(t *testing.T) {
		for i, load := range e.Loads {
			cells[i] = make([]EscapeCell, len(e.Costs))
			for j, cost := range e.Costs {
				t.Run(fmt.Sprintf("load %v, cost %v", load, cost), func(t *testing.T) {
					t.Parallel()
					o := Overloaded{
						Policy: e.Policy, Processes: e.Processes, Capacity: e.Capacity, Cost: cost, Load: load,
						WarmUp: 20 * time.Second, Before: 20 * time.Second,
						Spike: 3, SpikeFor: 10 * time.Second, After: 30 * time.Second, Seeds: e.Seeds,
					}
					r := o.Run(t)
					cells[i][j] = EscapeCell{Before: r.Steady(o), After: r.Settled(o)}
				})
			}
		}
	})
	return cells
}
