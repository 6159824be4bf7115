package retrylab

import (
	"fmt"
	"math"
)

// Column is a figure of a Row, with its name and unit.
type Column struct {
	Name    string
	Unit    string // "%", "s" or "": a ratio or a count
	Meaning string
	Of      func(Row) Number
}

// Text returns the mean of a row's figure with its unit. Except for times, half the width of the mean's
// 95 % confidence interval follows if there are several runs. Without a figure, Text returns a dash.
func (c Column) Text(r Row) string {
	n := c.Of(r)
	spread := 1.96 * n.Error
	switch {
	case math.IsNaN(n.Mean):
		return "–"
	case c.Unit == "%":
		return withSpread("%.1f", 100*n.Mean, 100*spread) + " %"
	case c.Unit == "s" && n.Mean < 0.1:
		return fmt.Sprintf("%.0f ms", 1000*n.Mean)
	case c.Unit == "s":
		return fmt.Sprintf("%.1f s", n.Mean)
	case n.Mean >= 100:
		return withSpread("%.0f", n.Mean, spread)
	}
	return withSpread("%.2f", n.Mean, spread)
}

// withSpread leaves out a spread that the format would show as 0.
func withSpread(format string, mean, spread float64) string {
	if s := fmt.Sprintf(format, spread); s != fmt.Sprintf(format, 0.0) {
		return fmt.Sprintf(format, mean) + " ± " + s
	}
	return fmt.Sprintf(format, mean)
}

// The columns of all experiments.
var (
	colSucceeded = Column{"succeeded", "%", "of all requests", func(r Row) Number { return r.Succeeded }}
	colHit       = Column{"hit", "", "requests whose first attempt failed in the trouble", func(r Row) Number { return r.Hit }}
	colLost      = Column{"lost", "%", "of the requests that were hit", func(r Row) Number { return r.Lost }}
	colLater     = Column{"lost later", "%", "of the requests made after the trouble", func(r Row) Number { return r.LostLater }}
	colLoad      = Column{"attempts", "", "at the service per request, in the trouble", func(r Row) Number { return r.Load }}
	colHedges    = Column{"hedges", "", "sent per request, from the trouble's beginning on", func(r Row) Number { return r.Hedges }}
	colDetours   = Column{"detours", "", "attempts per request on a connection beside the pool", func(r Row) Number { return r.Detours }}
	colPeakAfter = Column{"peak", "", "fullest 100 ms after the trouble, against the mean", func(r Row) Number { return r.Peak }}
	colPeak      = Column{"peak", "", "fullest 100 ms, against the mean", func(r Row) Number { return r.Peak }}
	colGoodput   = Column{"goodput", "%", "successes per request made, in the settled part of the run", func(r Row) Number { return r.Goodput }}
	colP50       = Column{"success p50", "s", "until a request that was hit succeeded", func(r Row) Number { return r.Success }}
	colP99       = Column{"success p99", "s", "until a request that was hit succeeded", func(r Row) Number { return r.SuccessP99 }}
	colFail50    = Column{"failure p50", "s", "until a request that was hit failed", func(r Row) Number { return r.Failure }}
	colFail99    = Column{"failure p99", "s", "until a request that was hit failed", func(r Row) Number { return r.FailureP99 }}
	colUsual99   = Column{"usual p99", "s", "of requests made before the trouble", func(r Row) Number { return r.UsualP99 }}
	colTook      = Column{"took", "s", "until the last request ended", func(r Row) Number { return r.Took }}
)
