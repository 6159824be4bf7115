package retrylab

import (
	"fmt"
	"math"
	"net/http"
	"syscall"
	"testing"
	"time"

	"errors"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Outage is a service that fails for a while, and then has little room for more than its usual load.
type Outage struct {
	Load

	For    time.Duration // the length of the outage. 0: 3 s
	Part   float64       // of the attempts that fail in the outage, at random. 0: all
	Silent bool          // attempts get no answer in the outage, instead of a 503

	// Room is how many attempts the service takes afterwards, as a multiple of the Rate. It answers the
	// rest with 503. 0 means 1.3, and a negative value means any number.
	Room float64

	// Slowly is the time in which the room grows from half of Room to all of it. 0 or less: at once.
	Slowly time.Duration

	After time.Duration // from the outage's end to the last request. 0: 10 s
}

// Name returns "outage".
func (o Outage) Name() string { return "outage" }

// Validate implements Experiment.
func (o Outage) Validate() error { return validate(o) }

// Run implements Experiment.
func (o Outage) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, o, policy, others)
}

func (o Outage) plan() (plan, error) {
	o.Load = o.withDefaults()
	setDefault(&o.For, 3*time.Second)
	setDefault(&o.Part, 1)
	setDefault(&o.Room, 1.3)
	setDefault(&o.After, 10*time.Second)
	p := plan{
		Load: o.Load,
		reading: "Lost are requests that the outage hit and that failed in the end. Attempts above 1 are retries sent into " +
			"the outage, where they cannot help. A high peak, or requests lost later, means that retries hurt a service that has just come back.",
		more: []Setting{
			{"For", o.For.String()}, {"Part", fmt.Sprint(o.Part)}, {"Silent", fmt.Sprint(o.Silent)},
			{"Room", fmt.Sprint(o.Room)}, {"Slowly", max(o.Slowly, 0).String()}, {"After", o.After.String()},
		},
		columns: []Column{colHit, colLost, colLater, colLoad, colPeakAfter, colP50, colP99, colFail50, colFail99},
		changes: []change{hold(2 * o.For), ratio(0.5)},
		better:  fewer(colLost),
	}
	if o.Silent {
		p.changes = append(p.changes, attemptTimeout(max(20*o.Latency, Bin)))
	}
	from := p.led()
	p.trouble = span{from, from + o.For}
	p.measured = p.trouble
	p.end = p.trouble.to + o.After
	p.peaks = span{p.trouble.to, p.end}
	p.settled = span{p.end - o.After/3, p.end}
	p.service = func(t *trial) http.RoundTripper {
		work := new(engine.Workload)
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			at := t.attempted()
			if p.trouble.has(at) && (o.Part == 1 || t.dice.Float64() < o.Part) {
				return o.fail(req)
			}
			if after := at - p.trouble.to; after >= 0 && o.Room > 0 && !work.Take(after, o.roomAt(after)) {
				return engine.Answer(req, http.StatusServiceUnavailable)
			}
			return t.usually(req)
		})
	}
	return p, errors.Join(
		o.check(), atLeast("For", o.For, Bin), within("Part", o.Part, 0, 1), finite("Room", o.Room),
		atLeast("After", o.After, Bin),
	)
}

// silence is how long Linux goes on sending to a peer that has vanished (tcp_retries2).
const silence = 15 * time.Minute

func (o Outage) fail(req *http.Request) (*http.Response, error) {
	if !o.Silent {
		return engine.Answer(req, http.StatusServiceUnavailable)
	}
	if _, err := engine.AnswerAfter(silence, req, http.StatusOK); err != nil {
		return nil, err
	}
	return nil, timedOut()
}

// timedOut is the error of a connection whose peer has not answered for as long as the system waits.
func timedOut() error { return dialError("read", syscall.ETIMEDOUT) }

// roomAt is how many attempts per second the service takes at a time after the outage.
func (o Outage) roomAt(after time.Duration) float64 {
	if o.Slowly <= 0 {
		return o.Room * o.Rate
	}
	return o.Room * o.Rate * math.Min(1, 0.5+0.5*after.Seconds()/o.Slowly.Seconds())
}
