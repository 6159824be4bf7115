package retrylab

import (
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Reset is a connection that dies once, with all answers that are under way on it. The service is well:
// attempts that are sent afterwards, on another connection, are answered.
type Reset struct {
	Load

	Takes time.Duration // each answer; the Latency of the Load is not used. 0: 5 s
}

// Name returns "reset".
func (r Reset) Name() string { return "reset" }

// Validate implements Experiment.
func (r Reset) Validate() error { return validate(r) }

// Run implements Experiment.
func (r Reset) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, r, policy, others)
}

func (r Reset) plan() (plan, error) {
	r.Load = r.withDefaults()
	setDefault(&r.Takes, 5*time.Second)
	dies := r.Uptime + r.Takes // the first answers are there after Takes
	reading := "Every retry would succeed here, so only a budget loses requests. The longer an answer takes, the more " +
		"requests are under way when the connection dies, and the more tokens their retries need at once."
	if 0 < r.Deadline && r.Deadline < 2*r.Takes {
		reading = "No policy can help all requests here: their Deadline is shorter than two answers take, so a retry that is " +
			"sent when the connection dies has no time for its own answer. Set a Deadline above twice Takes, or look at the other figures."
	}
	p := plan{
		Load:     r.Load,
		reading:  reading,
		changes:  []change{bursts(max(int(r.Rate*r.Takes.Seconds()), 1))},
		better:   fewer(colLost),
		more:     []Setting{{"Takes", r.Takes.String()}},
		unused:   []string{"Latency"},
		columns:  []Column{colHit, colLost, colLater, colLoad, colPeakAfter, colP50, colP99, colFail50},
		trouble:  span{r.Uptime, dies},
		measured: span{dies, dies + 2*r.Takes},
		peaks:    span{dies, dies + 2*r.Takes},
		settled:  span{dies + r.Takes, dies + 2*r.Takes},
		end:      dies + 2*r.Takes,
	}
	p.service = func(t *trial) http.RoundTripper {
		dead := make(chan struct{})
		time.AfterFunc(dies, func() { close(dead) })
		return engine.Server(func(req *http.Request) (*http.Response, error) {
			if t.attempted() >= dies {
				return engine.AnswerAfter(r.Takes, req, http.StatusOK)
			}
			timer := time.NewTimer(r.Takes)
			defer timer.Stop()
			select {
			case <-timer.C:
				return engine.Answer(req, http.StatusOK)
			case <-dead:
				return nil, dialError("read", syscall.ECONNRESET)
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		})
	}
	return p, errors.Join(r.check(), atLeast("Takes", r.Takes, Bin))
}
