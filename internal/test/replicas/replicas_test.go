package replicas_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

var (
	well   = replicas.Well(20 * time.Millisecond)
	broken = replicas.Status(http.StatusServiceUnavailable)
)

// A trouble begins when a client has been at work for a while.
type trouble struct {
	of     int // replicas
	rate   float64
	lasts  time.Duration
	begins func(*replicas.World)
	hedge  bool
}

func all(h http.HandlerFunc) func(*replicas.World) {
	return func(w *replicas.World) {
		for _, r := range w.Replicas {
			r.Serve(h)
		}
	}
}

// busiest breaks the n replicas that the client uses most.
func busiest(n int, h http.HandlerFunc) func(*replicas.World) {
	return func(w *replicas.World) {
		for _, r := range w.Busiest()[:n] {
			r.Serve(h)
		}
	}
}

// inTurns serves each request with the next handler.
func inTurns(handlers ...http.HandlerFunc) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		handlers[int(n.Add(1)-1)%len(handlers)](w, r)
	}
}

// sometimes fails a share of the requests by chance.
func sometimes(share float64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if rand.Float64() < share {
			broken(w, r)
			return
		}
		well(w, r)
	}
}

// amongOthersThatFail breaks the replica that the client uses most, while the others fail a share of the requests.
func amongOthersThatFail(share float64) func(*replicas.World) {
	return func(w *replicas.World) {
		all(sometimes(share))(w)
		busiest(1, broken)(w)
	}
}

// hidden hides an http.Transport from New, which then makes no detours.
type hidden struct{ http.RoundTripper }

func (h hidden) CloseIdleConnections() { h.RoundTripper.(*http.Transport).CloseIdleConnections() }

// byChance returns a balancer that chooses by chance, in a way that a seed repeats.
func byChance(of int, seed uint64) func(int) int {
	chance := make([]int, 4096)
	random := rand.New(rand.NewPCG(seed, seed))
	for i := range chance {
		chance[i] = random.IntN(of)
	}
	return func(n int) int { return chance[n%len(chance)] }
}

func meet(t *testing.T, p replicas.Protocol, tr trouble, choose func(int) int, plain bool) (f replicas.Figures) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := replicas.New(p, tr.of)
		defer w.Close()
		if choose != nil {
			w.Choose = choose
		}
		policy := retryhttp.Policy{AttemptTimeout: 500 * time.Millisecond}
		if tr.hedge {
			policy = retryhttp.Policy{AttemptTimeout: 2 * time.Second, Hedge: &retryhttp.Hedge{}}
		}
		var base http.RoundTripper = w.Transport()
		if plain {
			base = hidden{base}
		}
		client := retryhttp.New(base, policy)
		defer client.CloseIdleConnections()
		w.Warm(client, tr.rate)
		load := replicas.Load{Rate: tr.rate, For: tr.lasts, Deadline: 5 * time.Second}
		if tr.hedge { // the quantile needs answers
			w.Drive(client, load)
		}
		tr.begins(w)
		f = w.Drive(client, load)
	})
	return f
}

// promise is what is asked of the Figures of a trouble.
type promise struct {
	trouble
	succeed, attempts float64
	p50, p95          time.Duration // 0: not asked
}

func (p promise) check(t *testing.T, name any, f replicas.Figures) {
	t.Helper()
	t.Logf("%v: %v", name, f)
	assert.GreaterOrEqual(t, f.Success(), p.succeed, name)
	assert.LessOrEqual(t, f.Attempts, p.attempts, name)
	if p.p50 > 0 {
		assert.LessOrEqual(t, f.P50, p.p50, name)
	}
	if p.p95 > 0 {
		assert.LessOrEqual(t, f.P95, p.p95, name)
	}
}

const usual = 20 * time.Millisecond

// The promises of docs/design.md about replicas, for the default policy and an AttemptTimeout of 500 ms,
// or a Hedge.
var promises = map[string]promise{
	"one of three answers 503":  {trouble{3, 100, 8 * time.Second, busiest(1, broken), false}, 0.98, 1.15, 2 * usual, 0},
	"one of three resets":       {trouble{3, 100, 8 * time.Second, busiest(1, replicas.Reset), false}, 0.98, 1.15, 2 * usual, 0},
	"one of three hangs":        {trouble{3, 100, 8 * time.Second, busiest(1, replicas.Hang), false}, 0.98, 1.15, 2 * usual, 0},
	"two of three answer 503":   {trouble{3, 100, 16 * time.Second, busiest(2, broken), false}, 0.97, 1.3, 0, 0},
	"two of three reset":        {trouble{3, 100, 16 * time.Second, busiest(2, replicas.Reset), false}, 0.97, 1.3, 0, 0},
	"two of three hang":         {trouble{3, 100, 16 * time.Second, busiest(2, replicas.Hang), false}, 0.97, 1.3, 0, 0},
	"one request a second, 503": {trouble{3, 1, 60 * time.Second, busiest(1, broken), false}, 0.98, 1.3, 0, 0},
	"one a second, one hangs":   {trouble{3, 1, 60 * time.Second, busiest(1, replicas.Hang), false}, 0.98, 1.3, 0, 0},
	"connections die silently":  {trouble{3, 100, 8 * time.Second, (*replicas.World).Freeze, false}, 0.99, 1.05, 0, 0},
	"one of two answers 503":    {trouble{2, 100, 8 * time.Second, busiest(1, broken), false}, 0.98, 1.15, 2 * usual, 0},
	"one of ten answers 503":    {trouble{10, 100, 8 * time.Second, busiest(1, broken), false}, 0.98, 1.15, 2 * usual, 0},
	"one fails every second":    {trouble{3, 100, 8 * time.Second, busiest(1, inTurns(well, broken)), false}, 0.98, 1.15, 2 * usual, 0},
	"one is slow, with a Hedge": {trouble{3, 100, 8 * time.Second, busiest(1, replicas.Well(30*usual)), true}, 0.98, 1.08, 2 * usual, 10 * usual},
	// Some requests fail on every replica.
	"one answers 503, the others to one in ten":  {trouble{3, 100, time.Minute, amongOthersThatFail(0.1), false}, 0.98, 1.25, 0, 0},
	"one answers 503, the others to one in five": {trouble{3, 100, time.Minute, amongOthersThatFail(0.2), false}, 0.9, 1.45, 0, 0},
	"one a second, one 503, others one in five":  {trouble{3, 1, 10 * time.Minute, amongOthersThatFail(0.2), false}, 0.9, 1.45, 0, 0},
	"a thousand a second":                        {trouble{3, 1000, 4 * time.Second, busiest(1, broken), false}, 0.97, 1.3, 2 * usual, 0},
}

var protocols = []replicas.Protocol{replicas.HTTP1, replicas.HTTP2}

func TestRetryAsksAnotherReplica(t *testing.T) {
	for name, asked := range promises {
		t.Run(name, func(t *testing.T) {
			for _, p := range protocols {
				asked.check(t, p, meet(t, p, asked.trouble, nil, false))
			}
		})
	}
}

// A balancer that chooses by chance may choose the broken replica for the first three detours. The
// median client fares as with a balancer of turns, with few more attempts.
func TestRetryAsksAnotherReplicaOfABalancerByChance(t *testing.T) {
	for _, name := range []string{"one of three answers 503", "one a second, one hangs", "one fails every second"} {
		asked := promises[name]
		t.Run(name, func(t *testing.T) {
			for _, p := range protocols {
				var all []replicas.Figures
				for seed := range uint64(7) {
					all = append(all, meet(t, p, asked.trouble, byChance(asked.of, seed), false))
				}
				slices.SortFunc(all, func(a, b replicas.Figures) int { return a.Succeeded - b.Succeeded })
				asked.attempts = max(asked.attempts, 1.2)
				asked.check(t, p, all[len(all)/2])
			}
		})
	}
}
