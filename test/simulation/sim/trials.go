package sim

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// A Trial is an experiment that pays for a mechanism of the default policy: without the mechanism, its
// Cost is higher.
type Trial struct {
	Name  string
	About string // what Cost is
	Cost  func(t *testing.T, seeds int) float64
}

// steady is three Windows of the default budget, which is full then.
const steady = time.Minute

func defaults() retryhttp.Policy { return retryhttp.Policy{} }

// Trials lists the trials.
var Trials = []Trial{
	{"outage", "lost of 1,000/s in an outage of 1 s, in %", func(t *testing.T, seeds int) float64 {
		return 100 * trialOutage(1, time.Second, seeds).Run(t).Lost.Mean
	}},
	{"long outage", "lost of 1,000/s in an outage of 3 s, in %", func(t *testing.T, seeds int) float64 {
		return 100 * trialOutage(1, 3*time.Second, seeds).Run(t).Lost.Mean
	}},
	{"burst", "lost of 12 requests of a fresh process, refused for 600 ms, in %", func(t *testing.T, seeds int) float64 {
		return 100 * trialBurst(12, 600*time.Millisecond, 100*seeds).Run(t).Lost.Mean
	}},
	{"wait of a burst", "mean seconds of 12 requests of a fresh process, refused for 50 ms", func(t *testing.T, seeds int) float64 {
		return meanTime(trialBurst(12, 50*time.Millisecond, 100*seeds).Run(t).Took).Seconds()
	}},
	{"pair", "lost of 2 requests of a fresh process, refused for 600 ms, in %", func(t *testing.T, seeds int) float64 {
		return 100 * trialBurst(2, 600*time.Millisecond, 200*seeds).Run(t).Lost.Mean
	}},
	{"pair in a hang", "lost of 2 requests of a fresh process, without an answer for 3 s, in %", func(t *testing.T, seeds int) float64 {
		b := trialBurst(2, 0, 200*seeds)
		b.Service = silent(3 * time.Second)
		b.Policy = func() retryhttp.Policy { return retryhttp.Policy{AttemptTimeout: time.Second} }
		return 100 * b.Run(t).Lost.Mean
	}},
	{"page", "mean seconds of 5 requests of a fresh process, refused for a second", func(t *testing.T, seeds int) float64 {
		return meanTime(trialBurst(5, time.Second, 100*seeds).Run(t).Took).Seconds()
	}},
	{"waking", "lost of a request a minute to a service that wakes in 500 ms, in %", func(t *testing.T, seeds int) float64 {
		b := trialBurst(1, 0, 4*seeds)
		b.Service, b.Bursts, b.Every = waking(500*time.Millisecond), 500, time.Minute
		return 100 * b.Run(t).Lost.Mean
	}},
	{"cold starts", "lost of 60 requests, one a minute, whose first attempt fails, with an outage in the first ten, in %", func(t *testing.T, seeds int) float64 {
		b := trialBurst(1, 0, 4*seeds)
		b.Service, b.Bursts, b.Every = outageBefore(10*time.Minute, coldStarting(30*time.Second)), 60, time.Minute
		return 100 * b.Run(t).Lost.Mean
	}},
	{"sometimes cold", "lost of a request each 30 s of which 7 in 10 fail at first, for 7 h after 2 h of an outage, in %", func(t *testing.T, seeds int) float64 {
		b := trialBurst(1, 0, seeds)
		b.Service, b.Every = outageBefore(2*time.Hour, sometimesCold(7)), 30*time.Second
		b.Bursts = 9 * 120
		return 100 * (b.Run(t).Lost.Mean*9 - 2) / 7
	}},
	{"day of an outage", "attempts for each of 144 requests, one each 10 minutes, to a dead service", func(t *testing.T, seeds int) float64 {
		b := trialBurst(1, 0, seeds)
		b.Service, b.Bursts, b.Every = outageBefore(100*time.Hour, coldStarting(time.Minute)), 144, 10*time.Minute
		return b.Run(t).Load.Mean
	}},
	{"overload of small processes", "goodput that 1.2 times the capacity costs, of 3,000 processes with a request in 50 s, in %", func(t *testing.T, seeds int) float64 {
		o := Overloaded{
			Policy: defaults, Processes: 3000, Capacity: 50, Cost: 0.3, Load: 1.2, WarmUp: 20 * time.Second,
			Before: 600 * time.Second, Seeds: seeds / 2,
		}
		return 100 * (1 - o.Run(t).Steady(o))
	}},
	{"spike of a fleet", "seconds until a service has recovered from a spike of 1,000 processes", func(t *testing.T, seeds int) float64 {
		c := Collapse{Policy: defaults, Processes: 1000, Spike: 100, SpikeFor: 10 * time.Second, Until: 180 * time.Second, Seeds: seeds}
		return meanTime(c.Run(t).Recovery).Seconds()
	}},
	{"dead service", "mean seconds of 5 requests a minute to a dead service, after the first", func(t *testing.T, seeds int) float64 {
		b := trialBurst(5, Never, 4*seeds)
		b.Bursts, b.Every = 10, time.Minute
		return meanTime(b.Run(t).Later).Seconds()
	}},
	{"hang in a trouble", "lost of 50 requests in 500 ms of which a retry hangs, in %", func(t *testing.T, seeds int) float64 {
		b := trialBurst(50, 0, 8*seeds)
		b.Service = hanging(500*time.Millisecond, 51)
		return 100 * b.Run(t).Lost.Mean
	}},
	{"one of three dead", "lost of 1,000/s while one of three backends is dead, in %", func(t *testing.T, seeds int) float64 {
		return 100 * (1 - trialPartial(3, 1, seeds).Run(t).Success.Mean)
	}},
	{"nine of twenty dead", "lost of 1,000/s while nine of twenty backends are dead, in %", func(t *testing.T, seeds int) float64 {
		return 100 * (1 - trialPartial(20, 9, seeds).Run(t).Success.Mean)
	}},
	{"nine of twenty dead, for many", "lost of 4,000/s while nine of twenty backends are dead, in %", func(t *testing.T, seeds int) float64 {
		p := trialPartial(20, 9, seeds)
		p.Rate = 4000
		return 100 * (1 - p.Run(t).Success.Mean)
	}},
	{"streams that die", "lost of 50/s answers of 5 s that die with their connection, in %", func(t *testing.T, seeds int) float64 {
		return 100 * Reset{Policy: defaults, Rate: 50, Takes: 5 * time.Second, WarmUp: steady, Seeds: 2 * seeds}.Run(t).Lost.Mean
	}},
	{"overload", "goodput that 1.2 times the capacity costs, in % of it", func(t *testing.T, seeds int) float64 {
		return trialOverload(t, 1.2, 0, seeds)
	}},
	{"slight overload", "goodput that 1.05 times the capacity costs, in % of it", func(t *testing.T, seeds int) float64 {
		return trialOverload(t, 1.05, 0, seeds)
	}},
	{"overload of POSTs", "goodput that 1.2 times the capacity costs, four of five POSTs, in % of it", func(t *testing.T, seeds int) float64 {
		return trialOverload(t, 1.2, 0.8, seeds)
	}},
	{"spike", "goodput that is missing 16 s after a spike, in % of the capacity", func(t *testing.T, seeds int) float64 {
		o := Overloaded{
			Policy: defaults, Processes: 1, Capacity: 500, Cost: 0.5, Load: 1 / 1.1, WarmUp: 20 * time.Second,
			Before: time.Second, Spike: 3, SpikeFor: 10 * time.Second, After: 24 * time.Second, Seeds: seeds,
		}
		return 100 * (o.Load - o.Run(t).Settled(o))
	}},
	{"quota", "lost of 1,000 jobs of 50 workers at 20 a second, in %", func(t *testing.T, seeds int) float64 {
		return 100 * Quota{Policy: defaults, Allowed: 20, Workers: 50, Jobs: 1000, Seeds: 2 * seeds}.Run(t).Lost.Mean
	}},
	{"peak after a 429", "peak after a Retry-After of 2 s of a service with much room, of the usual load", func(t *testing.T, seeds int) float64 {
		c := trialThrottle(seeds)
		c.Capacity = 100_000
		return c.Run(t).Peak
	}},
	{"some limited", "mean seconds of a retried request while 3 of 100 get a 429 with a Retry-After of 1 s", trialLimited},
	{"peak after named waits", "peak after an outage of 1 s whose 503s name a second, of the usual load", func(t *testing.T, seeds int) float64 {
		return Invited{
			Policy: defaults, Rate: 1000, WarmUp: steady, For: time.Second, After: 10 * time.Second, Naming: 1,
			Capacity: 1300, Seeds: seeds,
		}.Run(t).Peak
	}},
	{"seldom", "lost of a request an hour of which a fifth fails, in %", func(t *testing.T, seeds int) float64 {
		return 100 * Seldom{Policy: defaults, Every: time.Hour, Requests: 24 * 10, Part: 0.2, Seeds: 4 * seeds}.Run(t).Lost
	}},
	{"workers", "lost of ten workers in an outage of 5 s, in %", func(t *testing.T, seeds int) float64 {
		return 100 * trialWorkers(10, seeds).Run(t).Lost.Mean
	}},
	{"loop", "attempts a second of a worker in a loop to a refused port", func(t *testing.T, seeds int) float64 {
		return Loop{Policy: defaults, Workers: 10, Takes: time.Millisecond, From: 10 * time.Second, For: 30 * time.Second, Seeds: 2 * seeds}.Run(t).PerSecond.Mean
	}},
	{"flapping", "lost while the service is down for 0.4 of each second, in %", func(t *testing.T, seeds int) float64 {
		return 100 * Flapping{
			Policy: defaults, Rate: 1000, WarmUp: steady, Down: 400 * time.Millisecond, Every: time.Second,
			For: 20 * time.Second, Capacity: 2000, Seeds: seeds,
		}.Run(t).Lost.Mean
	}},
	{"cold start", "lost of 5,000 requests at once of a fresh process, down for 200 ms, in %", func(t *testing.T, seeds int) float64 {
		return 100 * Fanout{Policy: defaults, Requests: 5000, For: 200 * time.Millisecond, Seeds: seeds}.Run(t).LostOfHit.Mean
	}},
	{"wait of half dead", "mean seconds of a request of 5/s that one dead backend of two has failed", func(t *testing.T, seeds int) float64 {
		return meanTime(Invited{
			Policy: defaults, Rate: 5, WarmUp: time.Minute, For: 5 * time.Minute, After: time.Second, Part: 0.5,
			Capacity: 1000, Seeds: seeds,
		}.Run(t).Took).Seconds()
	}},
	{"partly broken", "lost of 20/s of which 38 in 100 fail for ten minutes, of those hit, in %", func(t *testing.T, seeds int) float64 {
		return 100 * Invited{
			Policy: defaults, Rate: 20, WarmUp: time.Minute, For: 10 * time.Minute, After: time.Second, Part: 0.38,
			Capacity: 1000, Seeds: seeds,
		}.Run(t).LostOfHit.Mean
	}},
	{"longer outage of a large fleet", "lost of 1,000/s from 1,000 processes in an outage of 3 s, in %", func(t *testing.T, seeds int) float64 {
		return 100 * trialOutage(1000, 3*time.Second, seeds).Run(t).Lost.Mean
	}},
	{"lasting outage of a fleet", "lost of 1,000/s from 300 processes in an outage of 6 s, in %", func(t *testing.T, seeds int) float64 {
		return 100 * trialOutage(300, 6*time.Second, seeds).Run(t).Lost.Mean
	}},
	{"lasting outage", "mean seconds of a request to a service that is down for a minute", func(t *testing.T, seeds int) float64 {
		p := trialPartial(1, 1, seeds)
		p.Rate, p.For = 100, time.Minute
		return meanTime(p.Run(t).Failed).Seconds()
	}},
	{"lone request", "mean seconds of a request each 10 s to a dead service, after the first", func(t *testing.T, seeds int) float64 {
		b := trialBurst(1, Never, 4*seeds)
		b.Bursts, b.Every = 20, 10*time.Second
		return meanTime(b.Run(t).Later).Seconds()
	}},
	{"long flapping", "lost while the service is down for a second of three, for a minute, in %", func(t *testing.T, seeds int) float64 {
		return 100 * Flapping{
			Policy: defaults, Rate: 1000, WarmUp: steady, Down: time.Second, Every: 3 * time.Second,
			For: time.Minute, Capacity: 1300, Seeds: seeds,
		}.Run(t).Lost.Mean
	}},
	{"contention", "writes of 50 clients at one row", func(t *testing.T, seeds int) float64 {
		calls := 0.0
		all := Contend(t, 4*seeds, 50, retryhttp.FullJitter(10*time.Millisecond, 2*time.Second))
		for _, c := range all {
			calls += c.Calls
		}
		return calls / float64(len(all))
	}},
	{"herd", "fullest 10 ms of 1,000 clients with one Retry-After", func(t *testing.T, seeds int) float64 {
		return Herd{Policy: defaults, Clients: 1000, Asked: 5 * time.Second, Capacity: 200, Queue: 20, Seeds: seeds}.Run(t).Peak.Mean
	}},
}

func trialOutage(processes int, length time.Duration, seeds int) Outage {
	return Outage{
		Policy: defaults, Processes: processes, Rate: 1000, WarmUp: steady, For: length, After: 10 * time.Second,
		Capacity: 1300, Seeds: seeds,
	}
}

func trialBurst(requests int, down time.Duration, seeds int) Burst {
	return Burst{Policy: defaults, Service: refusing(down), Requests: requests, Seeds: seeds}
}

func trialPartial(backends, dead, seeds int) Partial {
	return Partial{
		Policy: defaults, Processes: 1, Rate: 1000, Backends: backends, Dead: dead, WarmUp: 20 * time.Second,
		For: 20 * time.Second, Seeds: seeds,
	}
}

func trialOverload(t *testing.T, load, posts float64, seeds int) float64 {
	o := Overloaded{
		Policy: defaults, Processes: 1, Capacity: 500, Cost: 0.5, Load: load, Posts: posts, WarmUp: 20 * time.Second,
		Before: 40 * time.Second, Seeds: seeds,
	}
	return 100 * (1 - o.Run(t).Steady(o))
}

func trialThrottle(seeds int) Throttle {
	return Throttle{
		Policy: defaults, Rate: 1000, WarmUp: steady, Closed: 2 * time.Second, After: 10 * time.Second,
		Capacity: 1300, Seeds: seeds,
	}
}

func trialWorkers(workers, seeds int) Workers {
	return Workers{Policy: defaults, Workers: workers, WarmUp: steady, For: 5 * time.Second, After: 10 * time.Second, Seeds: 2 * seeds}
}

// trialLimited is a service that refuses 3 of 100 attempts, and names a wait each time.
func trialLimited(t *testing.T, seeds int) float64 {
	t.Helper()
	runs := engine.Runs(t, seeds, func(t *testing.T, rng *rand.Rand) (took []time.Duration) {
		dice := engine.NewDice(rng)
		client := retryhttp.New(engine.Server(func(req *http.Request) (*http.Response, error) {
			resp, err := engine.AnswerAfter(outageLatency, req, http.StatusOK)
			if err == nil && dice.IntN(100) < 3 {
				resp.StatusCode = http.StatusTooManyRequests
				resp.Header.Set("Retry-After", "1")
			}
			return resp, err
		}), defaults())
		var mu sync.Mutex
		engine.Poisson(rng, 20*time.Second, 100, engine.Constantly(100), func(time.Duration) {
			start := time.Now()
			resp := ask(t, client, http.MethodGet)
			if retryhttp.OutcomeOf(resp).Attempts > 1 {
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(start))
			}
		})
		return took
	})
	return meanTime(slices.Concat(runs...)).Seconds()
}
