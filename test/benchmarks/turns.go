package benchmarks

import (
	"math/rand/v2"
	"slices"
)

// inTurns has the contenders take short turns in many rounds, and returns the
// lower quartile of each contender's turns.
//
// The turns are short and interleaved because the machine changes its speed from
// one second to the next: each contender then has its share of the slow seconds.
// The order is drawn for each round, so that no contender always follows the
// same one.
//
// The rest of the machine only ever adds to a turn. A mean or a median moves with
// how busy the machine is. The minimum rests on one lucky turn. The lower
// quartile leaves out every turn that was interrupted, as long as a quarter of
// the turns was not, and still rests on many turns.
func inTurns[C any](rounds int, contenders []C, turn func(C) (cost, error)) ([]cost, error) {
	turns := make([][]cost, len(contenders))
	random := rand.New(rand.NewPCG(1, 2))
	for round := range rounds + 1 { // the first round warms up
		for _, i := range random.Perm(len(contenders)) {
			got, err := turn(contenders[i])
			if err != nil {
				return nil, err
			}
			if round > 0 {
				turns[i] = append(turns[i], got)
			}
		}
	}
	quartiles := make([]cost, len(contenders))
	for i, costs := range turns {
		quartiles[i] = lowerQuartiles(costs)
	}
	return quartiles, nil
}

func lowerQuartiles(costs []cost) cost {
	of := func(field func(cost) float64) float64 {
		var values []float64
		for _, c := range costs {
			values = append(values, field(c))
		}
		slices.Sort(values)
		return values[len(values)/4]
	}
	return cost{
		ns:     of(func(c cost) float64 { return c.ns }),
		cpu:    of(func(c cost) float64 { return c.cpu }),
		allocs: of(func(c cost) float64 { return c.allocs }),
		bytes:  of(func(c cost) float64 { return c.bytes }),
	}
}

// minus is what c costs more than floor.
func (c cost) minus(floor cost) cost {
	return cost{c.ns - floor.ns, c.cpu - floor.cpu, c.allocs - floor.allocs, c.bytes - floor.bytes}
}
