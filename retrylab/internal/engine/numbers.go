package engine

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Series counts events over time, in bins of equal width.
type Series struct {
	Width time.Duration

	mu   sync.Mutex
	bins []float64
}

// Add counts n events at a time since the start.
func (s *Series) Add(at time.Duration, n float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := int(at / s.Width)
	for len(s.bins) <= i {
		s.bins = append(s.bins, 0)
	}
	s.bins[i] += n
}

// UpTo returns the bins that end by a time, in events per second.
func (s *Series) UpTo(end time.Duration) []float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	rates := make([]float64, end/s.Width)
	copy(rates, s.bins)
	for i := range rates {
		rates[i] /= s.Width.Seconds()
	}
	return rates
}

// PerSecond returns the rate in each bin, up to the last bin with an event.
func (s *Series) PerSecond() []float64 {
	s.mu.Lock()
	end := time.Duration(len(s.bins)) * s.Width
	s.mu.Unlock()
	return s.UpTo(end)
}

// Between returns the mean rate from one time to another.
func (s *Series) Between(from, to time.Duration) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := 0.0
	for i := int(from / s.Width); i < int(to/s.Width) && i < len(s.bins); i++ {
		sum += s.bins[i]
	}
	return sum / (to - from).Seconds()
}

// MeanBins returns the mean of the runs' series, bin by bin. The series are equally long.
func MeanBins(runs [][]float64) []float64 {
	mean := make([]float64, len(runs[0]))
	for _, bins := range runs {
		for i, v := range bins {
			mean[i] += v / float64(len(runs))
		}
	}
	return mean
}

// Total returns the sum of the bins.
func Total(bins []float64) float64 {
	sum := 0.0
	for _, v := range bins {
		sum += v
	}
	return sum
}

// Number is a figure over the runs of an experiment, one for each seed.
type Number struct {
	Mean        float64 // NaN if no run has the figure
	Error       float64 // the standard error of the mean. 0: a single run
	Least, Most float64 // of the runs
}

// String returns the mean and the half width of its 95 % confidence interval.
func (n Number) String() string { return fmt.Sprintf("%.4g ± %.2g", n.Mean, 1.96*n.Error) }

// NumberOf returns what value gives for each run, over the runs. A run for which value is NaN is left
// out.
func NumberOf[R any](runs []R, value func(R) float64) Number {
	var values []float64
	for _, r := range runs {
		if v := value(r); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Number{math.NaN(), 0, math.NaN(), math.NaN()}
	}
	var sum, squares float64
	for _, v := range values {
		sum += v
		squares += v * v
	}
	n := float64(len(values))
	mean := sum / n
	variance := max(squares/n-mean*mean, 0) * n / max(n-1, 1)
	return Number{mean, math.Sqrt(variance / n), slices.Min(values), slices.Max(values)}
}

// Quantile returns the value that a part of the values does not exceed, or 0 if there are none. The
// values are in order.
func Quantile(values []time.Duration, part float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	return values[int(part*float64(len(values)-1))]
}
