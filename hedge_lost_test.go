package retryhttp_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A caller may use its reader again once its request's body is closed and the response has
// come: icholy/digest sends the request again then.
func TestHedgeThatHasLostLeavesTheCallersReaderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := strings.NewReader("content")
		req := get(t, t.Context())
		req.Method, req.Body, req.ContentLength = "QUERY", io.NopCloser(content), 7
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := content.Seek(0, io.SeekStart)
			return io.NopCloser(content), err
		}
		uploaded := func(req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
		}
		slowly := func(req *http.Request) {
			_, _ = req.Body.Read(make([]byte, 1))
			time.Sleep(100 * ms)
			_, _ = io.Copy(io.Discard, req.Body)
		}
		r := newTrack(lap{after: 60 * ms, code: 200, proto: 1, do: uploaded}, lap{code: 200, do: slowly})
		f := r.runOn(t, hedging(), req)
		assert.Equal(t, 1, f.out.Hedges)
		assert.False(t, f.out.HedgeWon)
		assert.Equal(t, 6, content.Len(), "left of the caller's reader")
	})
}

// The memory of a body is the caller's again, too, when both are closed.
func TestHedgeThatHasLostDoesNotReadTheCallersMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := []byte("content")
		read := make(chan error, 1)
		slowly := func(req *http.Request) {
			time.Sleep(100 * ms)
			_, err := io.Copy(io.Discard, req.Body)
			read <- err
		}
		req := get(t, t.Context())
		req.Method, req.Body = "QUERY", io.NopCloser(bytes.NewReader(memory))
		req.GetBody = inMemoryRequest(t, memory).GetBody
		f := newTrack(lap{after: 60 * ms, code: 200, proto: 1}, lap{code: 200, do: slowly}).runOn(t, hedging(), req)
		require.Equal(t, 1, f.out.Hedges)
		assert.Error(t, <-read)
	})
}

func inMemoryRequest(t *testing.T, content []byte) *http.Request {
	t.Helper()
	req, err := http.NewRequest("QUERY", "http://host.example/", bytes.NewReader(content))
	require.NoError(t, err)
	return req
}

// A hedge that waits for a connection would take the first attempt's, and nobody would want
// its answer.
func TestHedgeThatHasLostBeforeItHadAConnectionIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var paths []string
		network, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			paths = append(paths, r.URL.Path)
			mu.Unlock()
			time.Sleep(200 * ms)
			_, _ = io.WriteString(w, "whole") // else net/http gives the connection away before it returns
		}, false)
		defer stop()
		base.MaxConnsPerHost = 1
		p := hedging()
		p.Hedge.Share = 1
		rt := retryhttp.New(base, p)
		start := time.Now()
		for _, path := range []string{"/1", "/2"} {
			resp, err := rt.RoundTrip(getURL(t, "http://host.example"+path))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 1, retryhttp.OutcomeOf(resp).Hedges)
		}
		assert.Equal(t, 400*ms, time.Since(start))
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []string{"/1", "/2"}, paths)
		assert.Equal(t, 1, network.Dials())
	})
}

// A body that the hedge has open is closed when the first attempt has won. Its panic surfaces
// in the caller, which can recover it.
func TestPanicOfTheRequestBodysCloseDoesNotEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closesNow := func(req *http.Request) { _ = req.Body.Close() } // or there is no hedge
		leaves := func(req *http.Request) {
			body := req.Body
			_, _ = body.Read(make([]byte, 1))
			req.Body = nil // the base closes it late
			go func() {
				time.Sleep(time.Second)
				_ = body.Close()
			}()
		}
		req := get(t, t.Context())
		req.Method, req.Body = "QUERY", io.NopCloser(strings.NewReader("content"))
		req.GetBody = func() (io.ReadCloser, error) { return panickingBody{strings.NewReader("content")}, nil }
		tr := newTrack(lap{after: 60 * ms, code: 200, proto: 1, do: closesNow},
			lap{after: time.Second, code: 200, deaf: true, do: leaves})
		assert.PanicsWithValue(t, "closed", func() { tr.runOn(t, hedging(), req) })
		assert.Len(t, tr.attempts(), 2)
		time.Sleep(2 * time.Second)
	})
}

// panickingBody panics when it is closed.
type panickingBody struct{ io.Reader }

func (panickingBody) Close() error { panic("closed") }

// A key that is new again does not start with a hedge, or each of many keys would always have
// one.
func TestMoreKeysThanAHedgeKnowsKeepToTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, rounds = 4200, 2
		p := hedging()
		p.Budget = retryhttp.Unlimited{}
		rt := retryhttp.New(script.Step(lap{after: 60 * ms, code: 200, proto: 2}.run), p)
		hedges := 0
		for range rounds {
			for i := range keys {
				resp, err := rt.RoundTrip(getURL(t, fmt.Sprintf("http://host%d.example/", i)))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				hedges += retryhttp.OutcomeOf(resp).Hedges
			}
		}
		assert.LessOrEqual(t, hedges, keys+keys*rounds/20)
		time.Sleep(time.Second)
	})
}

// closableBody may be closed while it is read.
type closableBody struct{ *bodies.Hooked }

func (closableBody) ClosableWhileRead() bool { return true }

// A Logger may take long. The first attempt answers meanwhile.
func TestHedgeThatHasLostBeforeItBeganHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Logger = slog.New(slowHandler{slog.DiscardHandler})
		r := newTrack(lap{after: 60 * ms, code: 200, proto: 1}, lap{after: ms, code: 200, do: func(req *http.Request) {
			assert.ErrorIs(t, context.Cause(req.Context()), retryhttp.ErrSuperseded)
		}})
		f := r.begin(t, p, get(t, t.Context()))
		f.read(t)
		assert.Equal(t, 60*ms, f.at)
		time.Sleep(time.Minute)
		assert.Len(t, r.attempts(), f.out.Attempts)
	})
}

// The Budget may take long as well. A hedge that is not sent is not reported.
func TestHedgeIsNotSentAfterTheFirstAttemptHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		p := hedging()
		budget := &slowBudget{takes: 20 * ms}
		p.Budget = budget
		p.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		r := newTrack(lap{after: 60 * ms, code: 200})
		f := r.runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 60*ms, f.at)
		assert.Equal(t, 1, f.out.Attempts)
		time.Sleep(time.Minute)
		assert.Len(t, r.attempts(), 1)
		assert.EqualValues(t, 1, budget.refunded.Load())
		assert.Empty(t, logged.String())
	})
}

type slowHandler struct{ slog.Handler }

func (slowHandler) Enabled(context.Context, slog.Level) bool { return true }

func (slowHandler) Handle(context.Context, slog.Record) error {
	time.Sleep(100 * time.Millisecond)
	return nil
}

// A hedge that has lost reads no more of its response than its connection is worth.
func TestHedgeThatHasLostDoesNotReadALongBody(t *testing.T) {
	for name, c := range map[string]struct {
		header time.Duration // after which the hedge's comes; the first attempt wins after 10 ms
		most   int
	}{
		"it is being buffered":        {5 * ms, 6},
		"its header comes afterwards": {20 * ms, 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				p.BufferBytes = 1 << 20
				var read atomic.Int64
				body := &counting{read: &read, each: 16 << 10}
				if c.header < 10*ms {
					body.each, body.pause = 1, ms
				}
				started := func(req *http.Request) { body.ctx = req.Context() }
				r := newTrack(lap{after: 60 * ms, code: 200, proto: 1}, lap{after: c.header, code: 200, body: body, do: started})
				f := r.runOn(t, p, get(t, t.Context()))
				require.False(t, f.out.HedgeWon)
				assert.Positive(t, read.Load())
				assert.LessOrEqual(t, int(read.Load()), c.most)
			})
		})
	}
}

// Its connection is worth that.
func TestHedgeThatHasLostWhileItIsBufferedReadsAShortBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.BufferBytes = 1 << 10
		body := &late{pause: 50 * ms, text: "hedge"}
		hedge := lap{after: 5 * ms, code: 200, body: body, do: func(req *http.Request) { body.attempt = req.Context() }}
		r := newTrack(lap{after: 60 * ms, code: 200, proto: 1}, hedge)
		f := r.runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 60*ms, f.at)
		assert.False(t, f.out.HedgeWon)
		synctest.Wait()
		assert.Empty(t, body.text)
		r.requireClosed(t)
	})
}

// counting is a body of 1 MiB, which its context ends sooner.
type counting struct {
	ctx   context.Context
	read  *atomic.Int64
	each  int
	pause time.Duration
}

func (c *counting) Read(p []byte) (int, error) {
	time.Sleep(c.pause)
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	if c.read.Load() >= 1<<20 {
		return 0, io.EOF
	}
	n := min(len(p), c.each)
	c.read.Add(int64(n))
	return n, nil
}

// So its connection can be reused.
func TestResponseOfAFirstAttemptThatFailedIsReadWhenTheHedgeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := strings.NewReader("sorry")
		r := newTrack(lap{after: 60 * ms, code: 503, body: body}, lap{after: 50 * ms, code: 200})
		assert.True(t, r.runOn(t, hedging(), get(t, t.Context())).out.HedgeWon)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, body.Len())
		r.requireClosed(t)
	})
}

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
	elders   [6]trialLeg   // the first attempt and the retries: one more if no hedge is sent
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
