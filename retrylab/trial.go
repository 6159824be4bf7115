package retrylab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// Bounds of a single request. A request that exceeds one of them is taken for one that never ends.
const (
	mostAttempts = 10_000
	patience     = 2 * time.Hour // after the last arrival
)

// trial is one run of a plan: with one policy, and one seed.
type trial struct {
	plan
	fleet  func(*testing.T) func() retryhttp.Policy
	plain  bool                    // as in Policy
	policy func() retryhttp.Policy // of a process
	tb     *testing.T              // of the bubble
	says   string                  // what the policy has beside the defaults
	hedged bool                    // the policy has a Hedge

	ctx      context.Context // of all requests; canceled if something fails
	cancel   context.CancelFunc
	dice     *engine.Dice // the service's
	pick     *engine.Dice // picks the process of a request
	to       []http.RoundTripper
	start    time.Time
	leave    func()       // if not nil, waits for what the service still does
	progress atomic.Int64 // changes while something happens

	offered, attempts, successes engine.Series

	mu                                     sync.Mutex
	problem                                string // why the run failed; empty: it did not
	underWay                               int
	made, good                             float64 // requests and successes
	hit, lost, later, lostLater            float64
	asked, attemptsFor                     float64 // requests and attempts from measured.from on
	hedges, detours                        float64 // of these attempts
	settledMade, settledGood               float64
	ended                                  time.Duration
	successTimes, failureTimes, usualTimes []time.Duration
}

func newTrial(p plan, policy Policy) *trial {
	t := &trial{plan: p, fleet: policy.fleet(), plain: policy.plain}
	for _, s := range []*engine.Series{&t.offered, &t.attempts, &t.successes} {
		s.Width = Bin
	}
	return t
}

// run runs the trial in a bubble, in which tb is its test. It returns when all requests have ended, or
// when the trial has failed.
func (t *trial) run(tb *testing.T, rng *rand.Rand) {
	t.tb = tb
	t.ctx, t.cancel = context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.rescue()
		t.dice = engine.NewDice(rng)
		t.policy = t.policies(tb)
		service := t.service(t)
		t.pick = engine.NewDice(rng)
		t.to = t.makeClients(t, service)
		t.start = time.Now()
		if t.traffic != nil {
			t.traffic(t, rng)
		} else {
			t.arrivals(t, rng)
		}
		if t.leave != nil {
			t.leave()
		}
	}()
	select {
	case <-done:
	case <-time.After(t.before + t.end + patience):
		t.fail(fmt.Sprintf("%d requests had not ended %v after the last one was made", t.requestsUnderWay(), patience))
	}
	t.cancel()
	// What has lost against another attempt, or has been canceled, may still end.
	select {
	case <-done:
	case <-time.After(time.Second):
	}
	time.Sleep(time.Minute)
}

// policies returns what makes the policy of each process.
func (t *trial) policies(tb *testing.T) func() retryhttp.Policy {
	policy := t.fleet(tb)
	return func() retryhttp.Policy {
		p := policy()
		t.says, t.hedged = describe(p), p.Hedge != nil
		if t.edit != nil {
			p = t.edit(p)
		}
		return p
	}
}

// rescue records a panic.
func (t *trial) rescue() {
	if p := recover(); p != nil {
		t.fail(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
	}
}

// fail records the first reason for a failure, and ends all requests.
func (t *trial) fail(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.problem == "" {
		t.problem = reason
	}
	t.cancel()
}

func (t *trial) failed() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.problem
}

func (t *trial) requestsUnderWay() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.underWay
}

var errTrialFailed = retryhttp.Permanent(errors.New("the run has failed"))

// guard is the base of every Transport. It ends requests that make too many attempts.
func (t *trial) guard(next http.RoundTripper) http.RoundTripper {
	return engine.Server(func(req *http.Request) (*http.Response, error) {
		t.progress.Add(1)
		if n := retryhttp.AttemptOf(req.Context()).Number; n > mostAttempts {
			t.fail(fmt.Sprintf("a request made more than %d attempts", mostAttempts))
		}
		if t.ctx.Err() != nil {
			return nil, errTrialFailed
		}
		resp, err := next.RoundTrip(req)
		t.count(retryhttp.AttemptOf(req.Context()))
		return resp, err
	})
}

// count counts what an attempt was that has ended.
func (t *trial) count(a retryhttp.Attempt) {
	if !a.Hedge && !a.Detour || time.Since(t.start) < t.measured.from {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.Hedge {
		t.hedges++
	}
	if a.Detour {
		t.detours++
	}
}

// attempted counts an attempt at the service, and returns the time since the start.
func (t *trial) attempted() time.Duration {
	at := time.Since(t.start)
	t.attempts.Add(at, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if at >= t.measured.from {
		t.attemptsFor++
	}
	return at
}

// usually answers an attempt as a healthy service does.
func (t *trial) usually(req *http.Request) (*http.Response, error) {
	return engine.AnswerAfter(t.dice.Exponential(t.Latency), req, http.StatusOK)
}

const serviceURL = "http://service.test/"

func (t *trial) newRequest(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, serviceURL, nil)
	if err != nil {
		panic(err)
	}
	return req
}

// request makes a request at a time since the start, through a process at random.
func (t *trial) request(at time.Duration) {
	if t.ctx.Err() == nil {
		t.requestFrom(t.to[t.pick.IntN(len(t.to))], at)
	}
}

func (t *trial) requestFrom(client http.RoundTripper, at time.Duration) {
	defer t.rescue()
	t.begin(at)
	ctx := t.ctx
	if t.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.Deadline)
		defer cancel()
	}
	resp, err := client.RoundTrip(t.newRequest(ctx))
	ok, retried := false, true
	if err == nil {
		_ = resp.Body.Close()
		ok = resp.StatusCode == http.StatusOK
		retried = retryhttp.OutcomeOf(resp).Attempts > 1
	}
	t.record(at, ok, !ok || retried)
}

func (t *trial) begin(at time.Duration) {
	t.progress.Add(1)
	t.offered.Add(at, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underWay++
	t.made++
	if at >= t.measured.from {
		t.asked++
	}
	if t.settled.has(at) {
		t.settledMade++
	}
}

// record counts a request that was made at a time since the start, and has ended now.
func (t *trial) record(at time.Duration, ok, troubled bool) {
	t.progress.Add(1)
	end := time.Since(t.start)
	if ok {
		t.successes.Add(end, 1)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underWay--
	t.ended = max(t.ended, end-t.trouble.from)
	during := t.trouble.has(at)
	if ok {
		t.good++
		if t.settled.has(end) {
			t.settledGood++
		}
	}
	switch {
	case during && (troubled || t.everyone):
		t.recordHit(ok, end-at)
	case at < t.trouble.from && ok:
		t.usualTimes = append(t.usualTimes, end-at)
	case at >= t.trouble.to:
		t.later++
		if !ok {
			t.lostLater++
		}
	}
}

func (t *trial) recordHit(ok bool, took time.Duration) {
	t.hit++
	if ok {
		t.successTimes = append(t.successTimes, took)
		return
	}
	t.lost++
	t.failureTimes = append(t.failureTimes, took)
}
