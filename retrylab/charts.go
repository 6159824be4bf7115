package retrylab

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot/plotter"
)

// timeline draws attempts and successes over time.
func (r Result) timeline() (*chart, error) {
	bins := 0
	for _, row := range r.Rows {
		bins = max(bins, len(row.Attempts))
	}
	if bins == 0 {
		return nil, nil
	}
	from, width := r.SeriesFrom.Seconds(), Bin.Seconds()
	to := from + float64(bins)*width
	load, good := panel{yLabel: "attempts per s"}, panel{yLabel: "successes per s"}
	for _, row := range r.Rows {
		load.curves = append(load.curves, smoothed(row.Attempts, from))
		good.curves = append(good.curves, smoothed(row.Successes, from))
	}
	// One axis for both, so that what is sent in vain is seen.
	load.top = max(load.yMax(), good.yMax())
	good.top = load.top
	c := new(chart)
	trouble := [2]float64{0, min(r.TroubleFor.Seconds(), to)}
	if err := c.draw("seconds from the beginning of the trouble", from, to, trouble, []panel{load, good}); err != nil {
		return nil, err
	}
	for k := range min(mostZones, bins) {
		first, last := part(k, bins)
		z := zone{Range: fmt.Sprintf("%.1f to %.1f s", from+float64(first)*width, from+float64(last)*width)}
		for _, row := range r.Rows {
			z.Values = append(z.Values, value{row.Name, fmt.Sprintf("%s attempts and %s successes per s",
				mean(row.Attempts, first, last), mean(row.Successes, first, last))})
		}
		c.Zones = append(c.Zones, z)
	}
	return c, nil
}

// part returns the bins of zone k, of which there are as many as fit.
func part(k, bins int) (first, last int) {
	zones := min(mostZones, bins)
	return k * bins / zones, (k + 1) * bins / zones
}

// mean is the text of the mean of some bins.
func mean(bins []float64, first, last int) string {
	last = min(last, len(bins))
	if first >= last {
		return "no"
	}
	sum := 0.0
	for _, v := range bins[first:last] {
		sum += v
	}
	return strconv.FormatFloat(math.Round(10*sum/float64(last-first))/10, 'g', -1, 64)
}

// smoothed returns the curve of a series that begins at a time.
func smoothed(bins []float64, from float64) (points plotter.XYs) {
	n := (len(bins) + mostPoints - 1) / mostPoints
	for i := 0; i < len(bins); i += n {
		last := min(i+n, len(bins))
		sum := 0.0
		for _, v := range bins[i:last] {
			sum += v
		}
		middle := from + Bin.Seconds()*float64(i+last)/2
		points = append(points, plotter.XY{X: middle, Y: sum / float64(last-i)})
	}
	return points
}

// succeededBy draws the part of the requests that were hit and have succeeded, by the time that they took.
func (r Result) succeededBy() (*chart, error) {
	longest := time.Duration(0)
	for _, row := range r.Rows {
		longest = max(longest, row.SuccessTimes.Quantile(0.995))
	}
	if longest == 0 {
		return nil, nil
	}
	p := panel{yLabel: "succeeded, %", top: 100}
	for _, row := range r.Rows {
		var points plotter.XYs
		for i := range mostPoints + 1 {
			took := longest * time.Duration(i) / mostPoints
			points = append(points, plotter.XY{X: took.Seconds(), Y: 100 * row.succeededWithin(took)})
		}
		p.curves = append(p.curves, points)
	}
	c := new(chart)
	if err := c.draw("seconds that a request took", 0, longest.Seconds(), [2]float64{}, []panel{p}); err != nil {
		return nil, err
	}
	for k := range mostZones {
		took := longest * time.Duration(k+1) / mostZones
		z := zone{Range: fmt.Sprintf("within %.2f s", took.Seconds())}
		for _, row := range r.Rows {
			z.Values = append(z.Values, value{row.Name, fmt.Sprintf("%.1f %%", 100*row.succeededWithin(took))})
		}
		c.Zones = append(c.Zones, z)
	}
	return c, nil
}

// succeededWithin returns the part of the requests that were hit and succeeded within a time, or 0 if none
// was hit.
func (r Row) succeededWithin(took time.Duration) float64 {
	all := len(r.SuccessTimes) + len(r.FailureTimes)
	if all == 0 {
		return 0
	}
	n, _ := slices.BinarySearch(r.SuccessTimes, took+1) // those of exactly this time included
	return float64(n) / float64(all)
}
