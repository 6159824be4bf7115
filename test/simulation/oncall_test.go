package simulation

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/retrylab"
)

// TestPicturesForThePersonOnCall draws what docs/operating.md shows, as TestReport writes the report.
func TestPicturesForThePersonOnCall(t *testing.T) {
	dir, seeds := *directory, 5
	if dir == "" {
		dir, seeds = t.TempDir(), 1
	}
	if *only != "" {
		t.Skip("only a section of the report is wanted")
	}
	r := newReport(t, dir, *directory != "")
	load := retrylab.Load{Rate: 200, Latency: 50 * time.Millisecond, Seeds: seeds}
	for _, trouble := range []struct {
		file, title, band string
		experiment        retrylab.Experiment
		until             time.Duration
	}{
		{"oncall-deploy.svg", "A deployment of four backends", "backends are replaced",
			retrylab.Deploy{Load: load}, 20 * time.Second},
		{"oncall-partial.svg", "One backend of three is dead", "the backend is dead",
			retrylab.DeadBackend{Load: load}, 20 * time.Second},
		{"oncall-overload.svg", "The service gets a fifth more than it can do", "overload",
			retrylab.Overload{Load: load}, 20 * time.Second},
		{"oncall-outage.svg", "An outage of ten seconds", "every attempt fails",
			retrylab.Outage{Load: load, For: 10 * time.Second}, 20 * time.Second},
		{"oncall-limit.svg", "50 workers, and 40 attempts a second are allowed", "the limit is in force",
			retrylab.RateLimit{Load: load, Workers: 50, Jobs: 800, Allowed: 40}, 20 * time.Second},
	} {
		got := retrylab.Comparison{
			Experiments: []retrylab.Experiment{trouble.experiment}, Policies: []retrylab.Policy{{Name: "policy", New: defaults}}, Alone: true,
		}.Run(t).Results[0]
		row := got.Rows[0]
		r.draw(onCall(trouble.file, trouble.title, trouble.band, got, row, trouble.until))
		require.NotEmpty(t, row.Attempts)
	}
}

// onCall is requests, attempts and successes over time, as a dashboard has them.
func onCall(file, title, during string, got retrylab.Result, row retrylab.Row, until time.Duration) figure {
	f := figure{
		file: file, title: title, xLabel: "time since the trouble began (s)", yLabel: "per second",
		bands: []band{{0, min(got.TroubleFor, until).Seconds(), during}},
	}
	const each = 5 // bins, of half a second together
	for _, c := range []struct {
		name string
		bins []float64
	}{{"requests", row.Offered}, {"attempts", row.Attempts}, {"successes", row.Successes}} {
		var x, y []float64
		for bins := range slices.Chunk(c.bins, each) {
			at := got.SeriesFrom + time.Duration(len(x)*each+each/2)*retrylab.Bin
			if at > until {
				break
			}
			sum := 0.0
			for _, v := range bins {
				sum += v
			}
			x, y = append(x, at.Seconds()), append(y, sum/float64(len(bins)))
		}
		f.yMax = max(f.yMax, slices.Max(y))
		f.curves = append(f.curves, curve{c.name, x, y})
	}
	return f
}
