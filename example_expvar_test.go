package retryhttp_test

import (
	"expvar"
	"fmt"
	"net/http"

	"github.com/retryhttp/retryhttp"
)

// watch publishes what a person on call asks about the requests to a host. The handler of package
// expvar shows it under /debug/vars.
func watch(p retryhttp.Policy, budget *retryhttp.TokenBucket, gate *retryhttp.Gate, host *http.Request) retryhttp.Policy {
	requests := expvar.NewMap("requests")
	p.Budget, p.Gate = budget, gate
	p.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) {
		requests.Add("attempts", int64(o.Attempts))
		requests.Add(string(o.Stop), 1) // there are only nine
		requests.AddFloat("waited", o.Waited.Seconds())
		requests.AddFloat("held", o.Held.Seconds())
		if o.Ambiguous {
			requests.Add("ambiguous", 1)
		}
	}
	expvar.Publish("host", expvar.Func(func() any {
		g, b := gate.Status(host), budget.Status(host)
		return map[string]any{
			"down": g.Down, "closed": g.Closed.Seconds(), "held": g.Held, "tokens": b.Tokens, "sparing": b.Sparing,
		}
	}))
	return p
}

// Without OpenTelemetry, expvar shows the same figures.
func ExamplePolicy_expvar() {
	server := serverAnswering(503, 200)
	defer server.Close()
	host, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	policy := watch(retryhttp.Policy{Backoff: retryhttp.Constant(0)}, new(retryhttp.TokenBucket), new(retryhttp.Gate), host)
	client := &http.Client{Transport: retryhttp.New(nil, policy)}
	show(client.Get(server.URL))

	requests := expvar.Get("requests").(*expvar.Map)
	fmt.Println("attempts:", requests.Get("attempts"), "final:", requests.Get("final"))
	fmt.Println("host:", expvar.Get("host"))
	// Output:
	// 200 OK at attempt 2
	// attempts: 2 final: 1
	// host: {"closed":0,"down":false,"held":0,"sparing":false,"tokens":4.5}
}
