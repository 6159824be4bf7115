package retrylab

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Invited is a service that sends everybody away for a while, with a 429 and a Retry-After that names the end of it. They all
// come back together. The service then has little room for more than its usual load, and sends the rest away
// with "Retry-After: 1".
type Invited struct {
	Load

	For time.Duration // in which everybody is sent away. 0: 2 s

	// Room is how many attempts the service takes afterwards, as a multiple of the Rate. 0 means 1.3.
	Room float64

	After time.Duration // from then to the last request. 0: 10 s
}

// Name returns "invited".
func (i Invited) Name() string { return "invited" }

// Validate implements Experiment.
func (i Invited) Validate() error { return validate(i) }

// Run implements Experiment.
func (i Invited) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, i, policy, others)
}

func (i Invited) plan() (plan, error) {
	i.Load = i.withDefaults()
	setDefault(&i.For, 2*time.Second)
	setDefault(&i.Room, 1.3)
	setDefault(&i.After, 10*time.Second)
	p := plan{
		Load: i.Load,
		reading: "The service asks for its retries, so none should be lost. Attempts above 1 were sent although the service had said when " +
			"to come. The peak is what comes back together.",
		more:    []Setting{{"For", i.For.String()}, {"Room", fmt.Sprint(i.Room)}, {"After", i.After.String()}},
		columns: []Column{colHit, colLost, colLater, colLoad, colPeakAfter, colP50, colP99, colFail50, colFail99},
		changes: []change{holdFirst, hold(30 * time.Second)},
		better:  fewer(colLost),
	}
	from := p.led()
	p.trouble = span{from, from + i.For}
	p.measured = p.trouble
	p.end = p.trouble.to + i.After
	p.peaks, p.settled = span{p.trouble.to, p.end}, span{p.end - i.After/3, p.end}
	p.service = func(t *trial) http.RoundTripper {
		work := new(engine.Workload)
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			at := t.attempted()
			wait := time.Second
			switch {
			case t.trouble.has(at):
				wait = (t.trouble.to - at + time.Second - 1) / time.Second * time.Second
			case at < t.trouble.from || work.Take(at, i.Room*i.Rate):
				return t.usually(req)
			}
			resp, err := engine.AnswerAfter(refusalTakes, req, http.StatusTooManyRequests)
			if err == nil {
				resp.Header.Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
			}
			return resp, err
		})
	}
	return p, errors.Join(
		i.check(), atLeast("For", i.For, Bin), positive("Room", i.Room, 1e3), atLeast("After", i.After, Bin),
	)
}
