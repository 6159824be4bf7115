package retryhttp_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

type gateCase struct {
	vector
	Gate struct {
		HoldMs int64 `json:"hold_ms"`
		First  bool  `json:"first"`
	} `json:"gate"`
	Requests []gateRequest `json:"requests"`
	Expect   []struct {
		Request int          `json:"request"`
		SentMs  [][2]float64 `json:"sent_ms"`
	} `json:"expect"`
}

type gateRequest struct {
	AtMs         int64      `json:"at_ms"`
	Answers      []string   `json:"answers"`
	LatencyMs    []int64    `json:"latency_ms"`
	Headers      fieldLines `json:"headers"`
	Credentials  fieldLines `json:"request_headers"`
	BackoffMs    int64      `json:"backoff_ms"`
	MaxAttempts  int        `json:"max_attempts"`
	MaxElapsedMs int64      `json:"max_elapsed_ms"`
	DeadlineMs   int64      `json:"deadline_ms"`
	CanceledMs   int64      `json:"canceled_ms"`
	Repeat       int        `json:"repeat"`
	EveryMs      int64      `json:"every_ms"`
}

func testGateVectors(t *testing.T) {
	for _, c := range vectors[gateCase](t, "gate.json").Cases {
		t.Run(c.Name, func(t *testing.T) { synctest.Test(t, c.run) })
	}
}

func (c *gateCase) run(t *testing.T) {
	g := newGated(t, &retryhttp.Gate{Hold: millis(c.Gate.HoldMs), First: c.Gate.First})
	visits := make([]*visit, len(c.Requests))
	for i, r := range c.Requests {
		for n := range max(r.Repeat, 1) {
			visits[i] = r.send(t, g, r.AtMs+int64(n)*r.EveryMs)
		}
	}
	g.ended.Wait()
	for _, want := range c.Expect {
		sent := visits[want.Request].sent
		require.Len(t, sent, len(want.SentMs), "request %d; %s", want.Request, c.Because)
		for i, bounds := range want.SentMs {
			assert.GreaterOrEqual(t, sent[i], inMillis(bounds[0])[0], "request %d, attempt %d; %s", want.Request, i+1, c.Because)
			assert.LessOrEqual(t, sent[i], inMillis(bounds[1])[0], "request %d, attempt %d; %s", want.Request, i+1, c.Because)
		}
	}
}

func (r *gateRequest) send(t *testing.T, g *gated, at int64) *visit {
	path := "/"
	for i, answer := range r.Answers {
		if answer == "error" {
			answer = "broken"
		}
		latency := int64(0)
		if i < len(r.LatencyMs) {
			latency = r.LatencyMs[i]
		}
		path += fmt.Sprintf("%s@%dms,", answer, latency)
	}
	query := url.Values{}
	for _, line := range r.Headers {
		query.Add(line[0], line[1])
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	if r.DeadlineMs > 0 {
		ctx, cancel = context.WithDeadline(ctx, g.start.Add(millis(at+r.DeadlineMs)))
		t.Cleanup(cancel)
	}
	if r.CanceledMs > 0 {
		time.AfterFunc(millis(r.CanceledMs), cancel)
	}
	g.header = r.Credentials.received()
	return g.with(ctx, millis(at), path[:len(path)-1]+"?"+query.Encode(), func(p *retryhttp.Policy) {
		p.Backoff = retryhttp.Constant(millis(r.BackoffMs))
		p.MaxElapsed = millis(r.MaxElapsedMs)
		if p.MaxAttempts = r.MaxAttempts; r.MaxAttempts == 0 {
			p.MaxAttempts = 2
		}
	})
}
