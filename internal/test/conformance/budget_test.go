package conformance_test

import (
	"math"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

type bucketSpec struct {
	Ratio        float64 `json:"ratio"`
	HealthyRatio float64 `json:"healthy_ratio"`
	Burst        int     `json:"burst"`
	WindowMs     int64   `json:"window_ms"`
	MinPerSecond float64 `json:"min_per_second"`
	OneForAll    bool    `json:"one_for_all"`
}

func (s *bucketSpec) build() *retryhttp.TokenBucket {
	b := &retryhttp.TokenBucket{
		Ratio: s.Ratio, HealthyRatio: s.HealthyRatio, Burst: s.Burst, Window: millis(s.WindowMs), MinPerSecond: s.MinPerSecond,
	}
	if s.OneForAll {
		b.Key = func(*http.Request) string { return "all" }
	}
	return b
}

type budgetCase struct {
	vector
	Bucket bucketSpec   `json:"bucket"`
	Steps  []budgetStep `json:"steps"`
}

type budgetStep struct {
	AtMs      int64    `json:"at_ms"`
	Op        string   `json:"op"`
	Times     *int     `json:"times"`
	EveryMs   int64    `json:"every_ms"`
	Host      string   `json:"host"`
	Request   string   `json:"request"`
	Granted   *int     `json:"granted"`
	Balance   *float64 `json:"balance"`
	Tolerance float64  `json:"tolerance"`
}

func (c *budgetCase) run(t *testing.T, exact float64) {
	b, began := c.Bucket.build(), time.Now()
	requests := map[[2]string]*http.Request{}
	for i, step := range c.Steps {
		key := [2]string{step.Host, step.Request}
		if requests[key] == nil {
			requests[key] = &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: step.Host, Path: "/"}}
		}
		req := requests[key]
		time.Sleep(millis(step.AtMs) - time.Since(began))
		granted := step.do(t, b, req)
		require.Equal(t, step.Op == "withdraw", step.Granted != nil,
			"step %d: a withdrawal expects how many are granted", i+1)
		if step.Granted != nil {
			assert.Equal(t, *step.Granted, granted, "step %d: granted; %s", i+1, c.Because)
		}
		if step.Balance != nil {
			assert.InDelta(t, *step.Balance, b.Status(req).Tokens, math.Max(step.Tolerance, exact),
				"step %d: balance; %s", i+1, c.Because)
		}
	}
}

func (s *budgetStep) do(t *testing.T, b *retryhttp.TokenBucket, req *http.Request) (granted int) {
	t.Helper()
	times := 1
	if s.Times != nil {
		times = *s.Times
	}
	for range times {
		switch s.Op {
		case "withdraw":
			if _, ok := b.Withdraw(retryhttp.Retry{Request: req}); ok {
				granted++
			}
		case "deposit":
			b.Deposit(req)
		case "refund":
			b.Refund(req, 1)
		case "read":
			require.NotNil(t, s.Balance)
		default:
			require.Fail(t, "no such operation", s.Op)
		}
		time.Sleep(millis(s.EveryMs))
	}
	return granted
}
