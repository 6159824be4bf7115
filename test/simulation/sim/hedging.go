package sim

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Hedging is one process whose service has a long tail of latencies (see leafLatency), and
// has trouble for a while. It shows what hedges save, and what they cost the service. The
// capacity of the service has no limit.
//
// Until something fails, runs with the same seed have the same arrivals, and the same
// latencies of first attempts, whatever the Hedger. The latencies are fitted to "The Tail at
// Scale", Dean and Barroso, 2013. The experiment is this project's own.
type Hedging struct {
	Hedger
	Rate   float64       // requests per second
	WarmUp time.Duration // which is not measured
	Before time.Duration // from then to the trouble; this and the next two in whole seconds
	For    time.Duration // the length of the trouble
	After  time.Duration // from its end to the end of a run
	Seeds  int

	// The trouble. An outage fails the attempts under way as well.
	Slower         float64       // latencies are so many times as long. 0: an outage
	AttemptTimeout time.Duration // in the outage attempts get no answer, until then. 0: they get a 503
}

// outageAnswer is how long a 503 takes in an outage.
const outageAnswer = time.Millisecond

// HedgingResult is what requests cost and how long they took. Periods are in seconds from
// the beginning of the trouble; before it, they are negative.
type HedgingResult struct {
	runs []*hedgingRun
}

// hedgingRun is one run. Its series begin after the warm-up.
type hedgingRun struct {
	Hedging
	start         time.Time
	first, second *engine.Dice // for latencies of first attempts and retries, and of hedges
	requests      engine.Series
	hedges        engine.Series

	mu       sync.Mutex
	took     [][]time.Duration // requests, by the second in which they began
	counted  int               // hedges of the whole run, by the service
	reported int               // the same, by the Outcomes
}

func (h Hedging) Run(t *testing.T) HedgingResult {
	t.Helper()
	return HedgingResult{engine.Runs(t, h.Seeds, func(t *testing.T, rng *rand.Rand) *hedgingRun {
		r := &hedgingRun{
			Hedging: h, start: time.Now(), first: engine.NewDice(rng), second: engine.NewDice(rng),
			requests: engine.Series{Width: time.Second}, hedges: engine.Series{Width: time.Second},
			took: make([][]time.Duration, (h.Before+h.For+h.After)/time.Second),
		}
		policy := retryhttp.Policy{AttemptTimeout: h.AttemptTimeout, OnDone: r.done}
		client, req := h.client(engine.Server(r.serve), policy), get(t)
		engine.Poisson(rng, h.WarmUp+h.Before+h.For+h.After, h.Rate, engine.Constantly(h.Rate), func(at time.Duration) {
			ctx := context.WithValue(req.Context(), underWay{}, new(atomic.Int64))
			if resp, err := client.RoundTrip(req.WithContext(ctx)); err == nil {
				_ = resp.Body.Close()
			}
			r.record(at)
		})
		time.Sleep(time.Second) // hedges that have lost may take a while to end
		return r
	})}
}

// underWay is the key of the number of attempts that a request has under way.
type underWay struct{}

// serve is the service. A model's attempt is a hedge if another one of its request is under way.
// The library's own says that it is one: a hedge that is ended so that a retry can be sent may
// end a moment after the retry has begun.
func (r *hedgingRun) serve(req *http.Request) (*http.Response, error) {
	attempts := req.Context().Value(underWay{}).(*atomic.Int64)
	latencies := r.first
	if beside := attempts.Add(1) > 1; beside && r.Model != nil || retryhttp.AttemptOf(req.Context()).Hedge {
		latencies = r.second
		r.countHedge()
	}
	defer attempts.Add(-1)

	takes := engine.LeafLatency(1 - latencies.Float64())
	in := time.Since(r.start) - r.WarmUp - r.Before
	during, outage := in >= 0 && in < r.For, r.Slower == 0
	switch {
	case outage && during:
		return r.fail(req, outageAnswer)
	case outage && in < 0 && in+takes >= 0:
		return r.fail(req, -in)
	case during:
		takes = time.Duration(float64(takes) * r.Slower)
	}
	return engine.AnswerAfter(takes, req, http.StatusOK)
}

// fail ends an attempt in an outage.
func (r *hedgingRun) fail(req *http.Request, after time.Duration) (*http.Response, error) {
	if r.AttemptTimeout > 0 {
		after = Never
	}
	return engine.AnswerAfter(after, req, http.StatusServiceUnavailable)
}

func (r *hedgingRun) countHedge() {
	if at := time.Since(r.start) - r.WarmUp; at >= 0 {
		r.hedges.Add(at, 1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted++
}

func (r *hedgingRun) done(_ retryhttp.Attempt, o retryhttp.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported += o.Hedges
}

// record notes how long a request took that was made at a time since the start, and has ended.
func (r *hedgingRun) record(at time.Duration) {
	took := time.Since(r.start) - at
	at -= r.WarmUp
	if at < 0 {
		return
	}
	r.requests.Add(at, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	second := at / time.Second
	r.took[second] = append(r.took[second], took)
}

// between returns how many events of a series a period has.
func (r *hedgingRun) between(s *engine.Series, from, to int) float64 {
	begin := r.Before + time.Duration(from)*time.Second
	length := time.Duration(to-from) * time.Second
	return s.Between(begin, begin+length) * length.Seconds()
}

// Hedges returns how many hedges were sent in a period, at most of all runs.
func (r HedgingResult) Hedges(from, to int) int {
	most := 0.0
	for _, run := range r.runs {
		most = max(most, run.between(&run.hedges, from, to))
	}
	return int(most)
}

// Extra returns hedges per request in a period, of all runs.
func (r HedgingResult) Extra(from, to int) float64 {
	var hedges, requests float64
	for _, run := range r.runs {
		hedges += run.between(&run.hedges, from, to)
		requests += run.between(&run.requests, from, to)
	}
	return hedges / max(requests, 1)
}

// Most returns the most hedges per request in any second of a period, of any run.
func (r HedgingResult) Most(from, to int) float64 {
	most := 0.0
	for _, run := range r.runs {
		for second := from; second < to; second++ {
			most = max(most, HedgingResult{[]*hedgingRun{run}}.Extra(second, second+1))
		}
	}
	return most
}

// Quantile returns how long a part of the requests took at most that began in a period, of
// all runs.
func (r HedgingResult) Quantile(part float64, from, to int) time.Duration {
	var took []time.Duration
	for _, run := range r.runs {
		lead := int(run.Before / time.Second)
		took = append(took, slices.Concat(run.took[lead+from:lead+to]...)...)
	}
	slices.Sort(took)
	return engine.Quantile(took, part)
}
