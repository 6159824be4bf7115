package sim

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// OpenLoop is a number of clients, each sending requests at its own Poisson rate
// and each with a Transport of its own.
type OpenLoop struct {
	Clients   int
	PerSecond float64 // of one client
	For       time.Duration
}

// BrookersClients is from "Fixing retries with token buckets and circuit
// breakers", Marc Brooker, 2022.
func BrookersClients(d time.Duration) OpenLoop { return OpenLoop{Clients: 100, PerSecond: 10, For: d} }

// Budgeted is what all requests cost the server and came to.
type Budgeted struct {
	// About the requests made in the last two thirds of the time, when the buckets have spent what
	// they held at the start.
	Requests      float64
	Load, Success float64 // per request

	// About single clients, over all the time.
	MostRetries float64 // by any one
	// MostUnearned is by how much, at any moment, any one client's retries
	// exceeded Ratio times its successes until then, and the overdraft that a
	// TokenBucket allows the retry of a long attempt.
	MostUnearned float64
}

// Budgets are the policies to be compared. Each makes one client's.
func Budgets() []struct {
	Name   string
	Policy func() (p retryhttp.Policy, ratio float64)
} {
	type named = struct {
		Name   string
		Policy func() (retryhttp.Policy, float64)
	}
	return []named{
		{"no retry", func() (retryhttp.Policy, float64) {
			return retryhttp.Policy{MaxAttempts: 1}, 0
		}},
		{"3 retries", func() (retryhttp.Policy, float64) {
			return retryhttp.Policy{Backoff: BrookersWait, Budget: retryhttp.Unlimited{}, Gate: noGate()}, 0
		}},
		{"bucket of 5", func() (retryhttp.Policy, float64) {
			return retryhttp.Policy{
				MaxAttempts: 3,
				Backoff:     BrookersWait,
				Budget:      &retryhttp.TokenBucket{Ratio: 0.1, Burst: 5, Window: -1},
				Gate:        noGate(),
			}, 0.1
		}},
		{"default", func() (retryhttp.Policy, float64) {
			return retryhttp.Policy{Budget: new(retryhttp.TokenBucket)}, 0.5 // what a nil Budget means
		}},
	}
}

// noGate is for a policy from a publication that knows no Gate.
func noGate() *retryhttp.Gate { return &retryhttp.Gate{Hold: -1} }

// BrookersWait is between the attempts of the comparison.
func BrookersWait(int, time.Duration) time.Duration { return 50 * time.Millisecond }

// PartialFailure sends the clients' requests to a server that fails each attempt with probability
// p, after a time with a mean of 10 ms.
func PartialFailure(
	t *testing.T, seeds int, load OpenLoop, p float64, policy func() (retryhttp.Policy, float64),
) []Budgeted {
	t.Helper()
	return engine.Runs(t, seeds, func(t *testing.T, rng *rand.Rand) Budgeted {
		server := &flaky{p: p, latency: 10 * time.Millisecond, rng: fork(rng)}
		var mu sync.Mutex
		var sum Budgeted
		var wg sync.WaitGroup
		var ledgers []*ledger
		for range load.Clients {
			pol, ratio := policy()
			books := &ledger{Budget: pol.Budget, ratio: ratio, perSecond: load.PerSecond}
			if pol.Budget != nil {
				pol.Budget = books
				ledgers = append(ledgers, books)
			}
			client, arrivals := retryhttp.New(server, pol), fork(rng)
			wg.Go(func() {
				engine.Poisson(arrivals, load.For, load.PerSecond, engine.Constantly(load.PerSecond), func(at time.Duration) {
					resp := ask(t, client, http.MethodGet)
					if at < load.For/3 {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					sum.Requests++
					sum.Load += float64(retryhttp.OutcomeOf(resp).Attempts)
					if resp.StatusCode == http.StatusOK {
						sum.Success++
					}
				})
			})
		}
		wg.Wait()
		sum.Load /= sum.Requests
		sum.Success /= sum.Requests
		for _, books := range ledgers {
			sum.MostRetries = max(sum.MostRetries, books.retries)
			sum.MostUnearned = max(sum.MostUnearned, books.unearned)
		}
		return sum
	})
}

// ledger is a Budget that compares what it grants with what was paid in.
type ledger struct {
	retryhttp.Budget
	ratio     float64
	perSecond float64 // the rate of the client's requests, and so the most successes that are usual

	mu                          sync.Mutex
	retries, deposits, unearned float64
}

func (l *ledger) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	l.mu.Lock() // over the grant too, so that no deposit comes between it and the count
	defer l.mu.Unlock()
	if cost, ok = l.Budget.Withdraw(r); ok {
		l.retries++
		overdraft := l.perSecond * r.Failed.Elapsed.Seconds()
		l.unearned = max(l.unearned, l.retries-l.ratio*l.deposits-overdraft)
	}
	return cost, ok
}

func (l *ledger) Deposit(req *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deposits++
	l.Budget.Deposit(req)
}

// LoadUnderBudget is the load when all that is earned is spent, and the attempts per request do
// not end the retries before that. Successes are (1-p) of the attempts, and retries are Ratio of
// the successes: hence 1/(1-ratio·(1-p)). This load is also the most that a budget allows in the
// long run.
func LoadUnderBudget(p, ratio float64) float64 { return 1 / (1 - ratio*(1-p)) }
