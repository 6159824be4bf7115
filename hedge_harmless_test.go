package retryhttp_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// A trial is a request that is sent twice: once without a Hedge, and once with a Hedge. The first
// attempt and each retry end in the same way in both runs, whatever the hedge meets. How they end depends
// on how many attempts that are not hedges came before, and on nothing else.
//
// The claim is that a request that has a Final response without a Hedge has a Final response with
// the Hedge, and no later. There are three conditions. MaxAttempts is one more with the Hedge, which
// counts for it. The Budget has a token more, which pays for the hedge. And the hedge's response has
// no Retry-After, which the retries would obey.
type trial struct {
	body     int // an index of trialBodies
	attempts int
	timeout  time.Duration
	elapsed  time.Duration // MaxElapsed
	deadline time.Duration
	tokens   int
	after    time.Duration // of the Hedge
	elders   [5]trialLeg   // the first attempt and the retries
	hedge    trialLeg
}

// trialLeg is what an attempt meets.
type trialLeg struct {
	ending  trialEnding
	latency time.Duration
	asked   time.Duration // by a Retry-After
	body    time.Duration // until the end of the response body
}

type trialEnding int

const (
	answered trialEnding = iota
	notFound
	overloaded
	severed
	refused    // by a limiter below, with a Permanent error
	distrusted // with a certificate that is not valid
	silent     // until its context ends
	deaf       // for 5 s, whatever its context says
)

// rewinding is a GetBody that returns one reader each time.
func rewinding(_ *testing.T, req *http.Request) {
	content := bytes.NewReader([]byte(raceContent))
	req.Body, req.ContentLength = io.NopCloser(content), content.Size()
	req.GetBody = func() (io.ReadCloser, error) {
		_, err := content.Seek(0, io.SeekStart)
		return io.NopCloser(content), err
	}
}

var trialBodies = []func(*testing.T, *http.Request){
	nil, nil,
	func(_ *testing.T, req *http.Request) {
		made, _ := http.NewRequest("QUERY", "http://host.example/", bytes.NewReader([]byte(raceContent)))
		req.Body, req.GetBody, req.ContentLength = made.Body, made.GetBody, made.ContentLength
	},
	func(t *testing.T, req *http.Request) { req.Body = bodies.File(t, raceContent) },
	rewinding,
}

// trialOf makes a trial of random data.
func trialOf(data []byte) trial {
	next := func() (b byte) {
		if len(data) > 0 {
			b, data = data[0], data[1:]
		}
		return b
	}
	odd := time.Duration(0)
	duration := func(unit time.Duration) time.Duration {
		odd += 7919
		return time.Duration(next())*unit + odd%(997*time.Microsecond) + 1
	}
	maybe := func(one byte, unit time.Duration) time.Duration {
		if next()%one > 0 {
			return 0
		}
		return duration(unit)
	}
	leg := func() trialLeg {
		return trialLeg{trialEnding(next() % 8), duration(3 * ms), maybe(4, 8*ms).Truncate(ms), maybe(2, 2*ms)}
	}
	c := trial{
		body:     int(next()) % len(trialBodies),
		attempts: 1 + int(next()+3)%5,
		timeout:  maybe(3, 6*ms),
		elapsed:  maybe(6, 20*ms),
		deadline: maybe(4, 30*ms),
		tokens:   int(next() % 5),
		after:    duration(ms),
	}
	for i := range c.elders {
		c.elders[i] = leg()
	}
	c.hedge = leg()
	c.hedge.asked = 0
	return c
}

// trialRun is one of the two runs.
type trialRun struct {
	t     *testing.T
	trial *trial

	mu     sync.Mutex
	elders int
}

func (r *trialRun) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	meets := &r.trial.hedge
	if !retryhttp.AttemptOf(req.Context()).Hedge {
		meets = &r.trial.elders[r.elders]
		r.elders++
	}
	r.mu.Unlock()
	if req.Body != nil {
		content, err := io.ReadAll(req.Body)
		assert.NoError(r.t, err)
		assert.Equal(r.t, raceContent, string(content))
		assert.NoError(r.t, req.Body.Close())
	}
	return meets.meet(req)
}

func (f *trialLeg) meet(req *http.Request) (*http.Response, error) {
	ctx, latency := req.Context(), f.latency
	switch f.ending {
	case silent:
		latency = time.Hour
	case deaf:
		ctx, latency = context.WithoutCancel(ctx), 5*time.Second
	}
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	code := map[trialEnding]int{answered: 200, notFound: 404, overloaded: 503, deaf: 200, silent: 200}[f.ending]
	switch f.ending {
	case severed:
		return nil, errBroken
	case refused:
		return nil, retryhttp.Permanent(errors.New("over the limit"))
	case distrusted:
		return nil, httperr.Untrusted(x509.CertificateInvalidError{Reason: x509.Expired})
	}
	resp := script.Response(req, code)
	if f.asked > 0 && code == 503 {
		resp.Header.Set("Retry-After-Ms", fmt.Sprint(f.asked.Milliseconds()))
	}
	resp.ProtoMajor = 1
	resp.Body = &timedBody{ctx: req.Context(), end: time.Now().Add(f.body), closed: make(chan struct{})}
	return resp, nil
}

// verdictOf is how a run ended for its caller.
type verdictOf struct {
	final bool
	took  time.Duration
	out   retryhttp.Outcome
	err   error
	body  error
}

// run sends the request, with a Hedge or without.
func (c *trial) run(t *testing.T, hedge *retryhttp.Hedge) (v verdictOf) {
	synctest.Test(t, func(t *testing.T) {
		budget, tokens := new(grantingBudget), c.tokens
		if hedge != nil {
			tokens++
		}
		budget.grant(tokens)
		p := retryhttp.Policy{
			MaxAttempts: c.attempts, AttemptTimeout: c.timeout, MaxElapsed: c.elapsed,
			Backoff: func(n int, _ time.Duration) time.Duration { return raceBackoff(n) },
			Budget:  budget, Gate: &retryhttp.Gate{Hold: -1}, Hedge: hedge,
		}
		if hedge != nil {
			p.MaxAttempts++
		}
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if c.deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.deadline)
		}
		defer cancel()
		req := get(t, ctx)
		if makeBody := trialBodies[c.body]; makeBody != nil {
			req.Method = "QUERY"
			makeBody(t, req)
		}
		began := time.Now()
		resp, err := retryhttp.New(&trialRun{t: t, trial: c}, p).RoundTrip(req)
		v = verdictOf{took: time.Since(began), err: err, out: retryhttp.OutcomeOf(resp)}
		if resp != nil {
			v.final = resp.StatusCode == 200 || resp.StatusCode == 404
			_, v.body = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		time.Sleep(time.Minute)
		budget.mu.Lock()
		defer budget.mu.Unlock()
		assert.LessOrEqual(t, budget.refunded, budget.withdrawn)
	})
	return v
}

// Hedging helps, or it does nothing.
func FuzzHedgingFailsNoRequestThatWouldSucceed(f *testing.F) {
	addRandom(f, 5000, 30, 70)
	f.Fuzz(func(t *testing.T, data []byte) {
		c := trialOf(data)
		without := c.run(t, nil)
		with := c.run(t, &retryhttp.Hedge{After: c.after, Share: 1})
		if without.final {
			about := fmt.Sprintf("%+v:\n%+v without a Hedge,\n%+v with one", c, without, with)
			require.True(t, with.final, about)
			require.LessOrEqual(t, with.took, without.took, about)
		}
	})
}
