package retrylab

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
	"github.com/retryhttp/retryhttp/retrytest"
)

// Replicas is a service of several replicas behind a balancer of connections: each new connection goes to the next
// replica, and all requests on it meet this replica. Some replicas break. A net/http server stands for each, in memory.
//
// Each policy is run with a base whose retries take other connections, and with a base that keeps them from it, as
// any RoundTripper does that is neither an http.Transport nor wraps a retryhttp.Base.
type Replicas struct {
	Load

	Replicas int // 0: 3

	// Broken is how many of them break, and stay broken. 0 means 1. The first connection of the first process
	// is to one of them.
	Broken int

	Hang  bool          // a broken replica does not answer, instead of a 503
	HTTP2 bool          // a process has one connection for all its requests
	For   time.Duration // from the moment at which they break to the last request. 0: 20 s
}

// Name returns "replicas".
func (r Replicas) Name() string { return "replicas" }

// Validate implements Experiment.
func (r Replicas) Validate() error { return validate(r) }

// Run implements Experiment.
func (r Replicas) Run(t *testing.T, policy func() retryhttp.Policy, others ...Policy) Result {
	t.Helper()
	return run(t, r, policy, others)
}

func (r Replicas) plan() (plan, error) {
	r.Load = r.withDefaults()
	setDefault(&r.Replicas, 3)
	setDefault(&r.Broken, 1)
	setDefault(&r.For, 20*time.Second)
	p := plan{
		Load: r.Load,
		reading: "Attempts on one connection meet one replica, whatever the policy. Compare the rows with and without detours: with them, " +
			"a retry asks another replica. A replica that hangs is found by an AttemptTimeout, and not without one.",
		more: []Setting{
			{"Replicas", fmt.Sprint(r.Replicas)}, {"Broken", fmt.Sprint(r.Broken)}, {"Hang", fmt.Sprint(r.Hang)},
			{"HTTP2", fmt.Sprint(r.HTTP2)}, {"For", r.For.String()},
		},
		columns:  []Column{colSucceeded, colLost, colLoad, colDetours, colP50, colP99, colFail50, colFail99},
		clients:  r.clients,
		variants: withAndWithoutDetours,
		changes:  []change{attemptTimeout(500 * time.Millisecond)},
		better:   more(colSucceeded),
		service:  func(*trial) http.RoundTripper { return nil }, // each process has its own
	}
	from := p.led()
	p.trouble = span{from, from + r.For}
	p.measured, p.peaks, p.settled, p.end = p.trouble, p.trouble, p.trouble, p.trouble.to
	err := errors.Join(
		r.check(), within("Replicas", float64(r.Replicas), 1, 1e3), atLeast("Broken", r.Broken, 0), atLeast("For", r.For, Bin),
	)
	if r.Broken > r.Replicas {
		err = errors.Join(err, fmt.Errorf("%s is %d, and must be at most Replicas, which is %d", "Broken", r.Broken, r.Replicas))
	}
	return p, err
}

// clients makes processes that have been well, with a base each.
func (r Replicas) clients(t *trial, _ http.RoundTripper) []http.RoundTripper {
	bases := make([]http.RoundTripper, r.Processes)
	for i := range bases {
		bases[i] = t.guard(r.base(t, i))
	}
	return t.healthyOn(bases)
}

// base has the connections of a process. Its first connection goes to the replica of its number.
func (r Replicas) base(t *trial, process int) http.RoundTripper {
	handlers := make([]http.Handler, r.Replicas)
	for i := range handlers {
		handlers[i] = r.replica(t, (process+i)%r.Replicas < r.Broken)
	}
	connections := retrytest.Serve(t.tb, handlers...)
	connections.MaxIdleConnsPerHost = 100
	if r.HTTP2 {
		connections.Protocols = new(http.Protocols)
		connections.Protocols.SetUnencryptedHTTP2(true)
	}
	if t.plain {
		return connections // behind guard, which is no Base
	}
	return retryhttp.NewBase(connections)
}

func (r Replicas) replica(t *trial, breaks bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		at := t.attempted()
		broken := breaks && at >= t.trouble.from // for good
		takes := t.dice.Exponential(t.Latency)
		switch {
		case broken && r.Hang:
			takes = silence
		case broken:
			takes = refusalTakes
		}
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
		}
		if broken {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

// withAndWithoutDetours puts beside each policy what it is on a base that hides its connections.
func withAndWithoutDetours(_ *testing.T, policies []Policy) (all []Policy) {
	for _, p := range policies {
		plain := p
		plain.Name, plain.plain = p.Name+", without detours", true
		all = append(all, p, plain)
	}
	return all
}

// healthyOn returns a Transport for each of the bases, which have been well.
func (t *trial) healthyOn(bases []http.RoundTripper) []http.RoundTripper {
	req := t.newRequest(t.ctx)
	transports := engine.HealthyOn(bases, t.policy, t.before, t.Rate, func() *http.Request { return req })
	clients := make([]http.RoundTripper, len(transports))
	for i, c := range transports {
		clients[i] = c
	}
	return clients
}
