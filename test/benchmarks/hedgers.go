package benchmarks

import (
	"net/http"
	"time"

	"github.com/cristalhq/hedgedhttp"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"resty.dev/v3"

	"github.com/retryhttp/retryhttp"
)

// hedge is what all that hedge are given alike. Each sends one hedge at most.
type hedge struct {
	after     time.Duration // from the first attempt to the hedge
	all       bool          // no bound on the extra load: the experiment is about hedging every request
	successes bool          // have only a success win, where that is an option
}

// hedgers are the peers that hedge, with a fixed delay, which all of them have. The first is
// ours.
var hedgers = []peer{
	{
		// Share and the budget bound the extra load. They are off where all asks for that.
		name: "retryhttp",
		build: func(base http.RoundTripper, s settings) doer {
			p := retryhttp.Policy{Hedge: &retryhttp.Hedge{After: s.hedge.after}}
			if s.hedge.all {
				p.Hedge.Share, p.Budget = 1, retryhttp.Unlimited{}
			}
			return &http.Client{Transport: retryhttp.New(base, p)}
		},
	},
	{
		// It has no option that bounds the extra load, except a function that is called for
		// each request.
		name: "hedgedhttp",
		build: func(base http.RoundTripper, s settings) doer {
			c, err := hedgedhttp.New(hedgedhttp.Config{Transport: base, Upto: 2, Delay: s.hedge.after})
			if err != nil {
				panic(err) // no delay is negative
			}
			return &http.Client{Transport: c}
		},
	},
	{
		// The RoundTripper that SetHedging installs, so that resty's own costs are left out.
		// By default it hedges at most 3 times a second, or so its documentation says.
		name: "resty",
		build: func(base http.RoundTripper, s settings) doer {
			h := resty.NewHedging().SetDelay(s.hedge.after).SetMaxRequest(2)
			if s.hedge.all {
				h.SetMaxRequestPerSecond(0)
			}
			h.SetTransport(base)
			return &http.Client{Transport: h}
		},
	},
	{
		// By default any result wins.
		name: "failsafe-go", noFailure: "CancelIf",
		build: func(base http.RoundTripper, s settings) doer {
			b := hedgepolicy.NewBuilderWithDelay[*http.Response](s.hedge.after)
			if s.hedge.successes {
				b = b.CancelIf(func(resp *http.Response, err error) bool { return err == nil && resp.StatusCode < 500 })
			}
			return &http.Client{Transport: failsafehttp.NewRoundTripper(base, b.Build())}
		},
	},
}

// These hedge at a quantile of the latencies, or bound the extra load with an option.
var (
	oursAtTheQuantile = peer{
		name: "retryhttp, at the quantile",
		build: func(base http.RoundTripper, s settings) doer {
			h := &retryhttp.Hedge{Min: s.hedge.after}
			return &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{Hedge: h})}
		},
	}
	failsafeAtTheQuantile = peer{
		name: "failsafe-go, at the quantile",
		build: func(base http.RoundTripper, _ settings) doer {
			p := hedgepolicy.NewWithDelayQuantile[*http.Response](0.95, 100, 100)
			return &http.Client{Transport: failsafehttp.NewRoundTripper(base, p)}
		},
	}
	failsafeWithBudget = peer{
		name: "failsafe-go, with a budget",
		build: func(base http.RoundTripper, s settings) doer {
			p := hedgepolicy.NewBuilderWithDelay[*http.Response](s.hedge.after).WithBudget(budget.New()).Build()
			return &http.Client{Transport: failsafehttp.NewRoundTripper(base, p)}
		},
	}
)
