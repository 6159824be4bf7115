package conformance_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/pause"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

type gateCase struct {
	vector
	Gate struct {
		HoldMs    int64 `json:"hold_ms"`
		HoldFirst bool  `json:"hold_first"`
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
	gate := &retryhttp.Gate{Hold: millis(c.Gate.HoldMs), HoldFirst: c.Gate.HoldFirst}
	began := time.Now()
	visits := make([]*visit, len(c.Requests))
	var ended sync.WaitGroup
	for i, r := range c.Requests {
		for n := range max(r.Repeat, 1) {
			v := &visit{gateRequest: r, t: t, began: began, due: millis(r.AtMs + int64(n)*r.EveryMs)}
			ended.Go(func() { v.make(gate) })
			visits[i] = v // the last visit of a repeated request
		}
	}
	ended.Wait()
	for _, want := range c.Expect {
		sent := visits[want.Request].sent
		require.Len(t, sent, len(want.SentMs), "request %d; %s", want.Request, c.Because)
		for i, bounds := range want.SentMs {
			assert.GreaterOrEqual(t, sent[i], fractional(bounds[0]), "request %d, attempt %d; %s", want.Request, i+1, c.Because)
			assert.LessOrEqual(t, sent[i], fractional(bounds[1]), "request %d, attempt %d; %s", want.Request, i+1, c.Because)
		}
	}
}

func fractional(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// visit is one request, and the base that answers its attempts.
type visit struct {
	gateRequest
	t     *testing.T
	began time.Time // the case
	due   time.Duration
	sent  []time.Duration // when its attempts were sent
}

// make makes the request when it is due.
func (v *visit) make(gate *retryhttp.Gate) {
	ctx, cancel := v.context()
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host.example/", nil)
	if !assert.NoError(v.t, err) {
		return
	}
	req.Header = v.Credentials.received()
	policy := retryhttp.Policy{
		Gate: gate, Budget: retryhttp.Unlimited{}, Backoff: retryhttp.Constant(millis(v.BackoffMs)),
		MaxAttempts: v.MaxAttempts, MaxElapsed: millis(v.MaxElapsedMs),
	}
	if policy.MaxAttempts == 0 {
		policy.MaxAttempts = 2
	}
	time.Sleep(v.due - time.Since(v.began))
	resp, err := retryhttp.New(v, policy).RoundTrip(req)
	if err != nil {
		assert.ErrorAs(v.t, err, new(*retryhttp.Error))
		return
	}
	assert.NoError(v.t, resp.Body.Close())
}

func (v *visit) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(v.t.Context())
	if v.DeadlineMs > 0 {
		ctx, cancel = context.WithDeadline(ctx, v.began.Add(v.due+millis(v.DeadlineMs)))
	}
	if v.CanceledMs > 0 {
		time.AfterFunc(millis(v.CanceledMs), cancel)
	}
	return ctx, cancel
}

func (v *visit) RoundTrip(req *http.Request) (*http.Response, error) {
	v.sent = append(v.sent, time.Since(v.began))
	i := min(len(v.sent), len(v.Answers)) - 1
	latency := time.Duration(0)
	if i < len(v.LatencyMs) {
		latency = millis(v.LatencyMs[i])
	}
	if pause.For(req.Context(), latency) != nil {
		return nil, req.Context().Err()
	}
	if v.Answers[i] == "error" {
		return nil, errUnknown
	}
	code, err := strconv.Atoi(v.Answers[i])
	if !assert.NoError(v.t, err) {
		return nil, err
	}
	resp := script.Response(req, code)
	resp.Header = v.Headers.received()
	return resp, nil
}
