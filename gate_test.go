package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/pause"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// inGate runs f in a bubble, and checks that nothing is held in the end.
func inGate(t *testing.T, gate *retryhttp.Gate, f func(t *testing.T, g *gated)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, gate)
		f(t, g)
		g.ended.Wait()
		assert.Zero(t, g.held(), "held in the end")
		assert.Zero(t, retryhttp.InTrouble(gate, "host"), "counted in the end")
	})
}

func TestGateIsDownAfterEightFailuresIn100ms(t *testing.T) {
	for _, c := range []struct {
		failures int // the first of them the retry's own, the last at 90 ms
		backoff  time.Duration
		down     bool
	}{
		{8, 200 * ms, true},
		{7, 200 * ms, false},
		{8, 100 * ms, true},
		{100, 99 * ms, false},
	} {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			v := g.at(0, "/503,200", func(p *retryhttp.Policy) { p.Backoff = retryhttp.Constant(c.backoff) })
			g.every(45*ms, 45*ms/time.Duration(c.failures-2), c.failures-2, "/503")
			g.at(90*ms, "/503", once)
			g.ended.Wait()
			want := c.backoff
			if c.down {
				want = 90*ms + 250*ms // as a probe
			}
			assert.Equal(t, []time.Duration{0, want}, v.sent, "%+v", c)
			assert.Equal(t, want-c.backoff, v.outcome.Held, "%+v", c)
			assert.Equal(t, want, v.outcome.Waited, "it contains Held, %+v", c)
		})
	}
}

func TestGateCountsResults(t *testing.T) {
	retryAll := func(p *retryhttp.Policy) {
		p.Classify = func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Retryable }
	}
	make503 := func(p *retryhttp.Policy) { // of an error that an API answers with a 200
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			a.Response.StatusCode = http.StatusServiceUnavailable
			return retryhttp.Retryable
		}
	}
	buffer := func(p *retryhttp.Policy) { p.BufferBytes = 100 }
	const success, nothing, failure = 0, 1, 2 // the failures in a row, after one
	for _, c := range []struct {
		path string
		edit func(*retryhttp.Policy)
		want int
	}{
		{"/503", once, failure},
		{"/broken", once, failure},
		{"/503?Retry-After=1", once, failure},
		{"/200", once, success},
		{"/404", once, success},
		{"/429", once, nothing},
		{"/408", once, nothing},
		{"/permanent", once, nothing},
		{"/503@1h", once, nothing}, // until the caller has had enough
		{"/200", retryAll, nothing},
		{"/200", make503, failure},
		{"/499", retryAll, nothing},
		{"/500", retryAll, failure},
		{"/cut404", buffer, failure},
		{"/cut500", buffer, failure},
		{"/cut408", buffer, nothing},
		{"/cut429", buffer, nothing},
	} {
		inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
			g.at(0, "/503", once)
			ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
			defer cancel()
			g.with(ctx, 10*ms, c.path, once, c.edit)
			g.ended.Wait()
			assert.EqualValues(t, c.want, retryhttp.FailuresInARow(g.gate, "host"), c.path)
		})
	}
}

func TestGateCountsNothingOfANestedTransport(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.rt = retryhttp.New(retryhttp.New(script.Step(g.answer), retryhttp.Policy{
			MaxAttempts: 1, Gate: &retryhttp.Gate{Hold: -1},
		}), g.policy)
		g.every(0, 10*ms, 20, "/503")
		g.ended.Wait()
		assert.Zero(t, retryhttp.FailuresInARow(g.gate, "host"))
	})
}

func TestGateKeepsTheTokenOfWhatItHolds(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		v := g.at(90*ms, "/503,503")
		g.wait(300 * ms)
		assert.Equal(t, 1, g.held())
		assert.Equal(t, 1, g.budget.withdrawn, "before the wait")
		g.ended.Wait()
		assert.Len(t, v.sent, 2)
		assert.Equal(t, 1, g.budget.withdrawn)
		assert.Zero(t, g.budget.refunded)
	})
}

// A request that ends says nothing about its host, whatever comes of its attempt.
func TestGateIsNotDownByRequestsThatHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := retryhttp.Policy{Gate: new(retryhttp.Gate)}
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
				cancel()
				return script.Status(503)(req)
			}), p)
			assert.Equal(t, retryhttp.StopCanceled, retryhttp.OutcomeOf(answerTo(t, rt, get(t, ctx))).Stop)
			time.Sleep(20 * ms)
		}
		assert.False(t, p.Gate.Status(get(t, t.Context())).Down)
	})
}

func TestGateNeverHoldsAFirstAttemptOfAHostThatIsDown(t *testing.T) {
	inGate(t, &retryhttp.Gate{HoldFirst: true}, func(t *testing.T, g *gated) {
		g.down()
		visits := append(g.every(150*ms, 10*ms, 50, "/503"), g.at(700*ms, "/200"))
		g.ended.Wait()
		for _, v := range visits {
			assert.Zero(t, v.outcome.Held)
		}
	})
}

func TestGateNeverHoldsALoneRequest(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		v := g.at(time.Second, "/503", func(p *retryhttp.Policy) { p.MaxAttempts = 30 })
		g.ended.Wait()
		assert.Len(t, v.sent, 30)
		assert.Zero(t, v.outcome.Held)
		assert.Equal(t, 29*200*ms, v.outcome.Waited)
	})
}

func TestGateBeginsAnOutageWithAPauseOf250ms(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		g.at(90*ms, "/503,503") // after which the pause is 500 ms
		g.at(400*ms, "/200")
		g.every(1000*ms, 15*ms, 8, "/503")
		v := g.at(1090*ms, "/503,200")
		g.ended.Wait()
		assert.Equal(t, 1105*ms+250*ms, v.sent[1])
	})
}

func TestGateForgetsAFailureOfLongAgo(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.at(0, "/503", once)
		v := g.at(10*time.Second, "/503,200", func(p *retryhttp.Policy) { p.Backoff = retryhttp.Constant(50 * ms) })
		g.every(10*time.Second+ms, 1*ms, 10, "/503") // one connection dies
		g.ended.Wait()
		assert.Equal(t, 10*time.Second+50*ms, v.sent[1])
	})
}

func TestGateReleasesAQuarterForEachSuccess(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		held := g.hold(10, "/503,200@1h")
		g.every(300*ms, 10*ms, 11, "/200")
		g.wait(450 * ms)
		assert.Equal(t, 8, g.held())
		g.mu.Lock()
		defer g.mu.Unlock()
		assert.Equal(t, inMillis(80, 330), held[0].sent, "the oldest first, by the fourth")
		assert.Equal(t, inMillis(81, 370), held[1].sent)
	})
}

func TestGateReleasesTwoForEachReleaseIfNoFirstAttemptSucceeds(t *testing.T) {
	// The first attempts are one at 11 ms.
	for first, want := range map[string][]time.Duration{
		"/503":       inMillis(350, 410, 410, 470, 470, 470, 470),
		"/200@290ms": inMillis(551, 551+60+125, 736+60), // until 701 ms, a quarter
	} {
		inGate(t, &retryhttp.Gate{Hold: time.Hour}, func(t *testing.T, g *gated) {
			g.down()
			held := g.hold(len(want), "/503,200@60ms")
			g.at(11*ms, first, once)
			g.ended.Wait()
			for i, want := range want {
				assert.Equal(t, want, held[i].sent[1], "%s, %d", first, i)
			}
		})
	}
}

func TestGateHoldsNoLongerThanHold(t *testing.T) {
	inGate(t, &retryhttp.Gate{Hold: 2 * time.Second}, func(t *testing.T, g *gated) {
		g.down()
		g.every(150*ms, 20*ms, 400, "/503@30ms") // no time for a probe
		v := g.at(90*ms, "/503")
		g.ended.Wait()
		assert.Equal(t, 503, v.status, "the last response is not missed")
		assert.Equal(t, retryhttp.Outcome{
			Attempts: 2, Elapsed: 2200 * ms, Waited: 2200 * ms, Held: 2 * time.Second, Stop: retryhttp.StopAttempts,
		}, v.outcome)
	})
}

func TestGateOfCanceledRequest(t *testing.T) {
	cause := errors.New("enough")
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		ctx, cancel := context.WithCancelCause(t.Context())
		v := g.with(ctx, 90*ms, "/503")
		next := g.at(95*ms, "/503,200")
		g.wait(310 * ms)
		require.Equal(t, 2, g.held())
		cancel(cause)
		synctest.Wait()
		assert.Equal(t, 310*ms, v.done, "at once")
		assert.Equal(t, retryhttp.StopCanceled, v.outcome.Stop)
		assert.Equal(t, 20*ms, v.outcome.Held)
		assert.ErrorIs(t, v.err, cause)
		assert.ErrorContains(t, v.err, "503")
		assert.Equal(t, 1, g.budget.refunded)
		assert.Equal(t, 1, g.held())
		g.ended.Wait()
		assert.Equal(t, 350*ms, next.sent[1], "it probes in the other's place")
	})
}

// A request that is canceled just after its release passes its turn on, and so does one whose Logger
// panics: the Logger runs between the release and the attempt.
func TestGatePassesOnTheTurnOfACanceledRequest(t *testing.T) {
	cancels := func(cancel func()) { cancel() }
	panics := func(func()) { panic(http.ErrAbortHandler) }
	for _, c := range []struct {
		name      string
		log       func(cancel func())
		successes int
		released  time.Duration
	}{
		{"released by successes", cancels, 4, 330 * ms},
		{"released as a probe", cancels, 0, 350 * ms},
		{"panics after its release", panics, 0, 350 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
				g.down()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := g.with(ctx, 90*ms, "/503", func(p *retryhttp.Policy) {
					p.Logger = slog.New(whenHeld(func() { c.log(cancel) }))
				})
				next, last := g.at(95*ms, "/503,200@1s"), g.at(96*ms, "/503,200")
				g.every(300*ms, 10*ms, c.successes, "/200")
				g.ended.Wait()
				assert.Len(t, ended.sent, 1)
				assert.Equal(t, c.released, ended.done)
				assert.Equal(t, 1, g.budget.refunded)
				assert.Equal(t, c.released, next.sent[1])
				assert.Greater(t, last.sent[1], c.released)
			})
		})
	}
}

// What is under way after a success belongs to no trouble, and no probe waits for it.
func TestRetryThatHangsAfterASuccessHoldsUpNobody(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.at(0, "/200@7s", once)
		g.every(100*ms, 500*ms, 12, "/503")
		g.at(6500*ms, "/503,200@30s?Retry-After=1")
		v := g.at(6*time.Second, "/503,200?Retry-After=3")
		g.ended.Wait()
		assert.LessOrEqual(t, v.outcome.Held, time.Second)
	})
}

func TestGateForgetsNoKeyThatHoldsAndHasRoomForNoMoreThan4096(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		g.down()
		v := g.at(90*ms, "/503,200")
		for i := range 4200 {
			g.at(250*ms, "//h"+strconv.Itoa(i)+"/503", once)
		}
		g.wait(300 * ms)
		assert.Equal(t, 4096, retryhttp.Keys(g.gate))
		assert.Equal(t, 1, g.held())
		g.ended.Wait()
		assert.Equal(t, 350*ms, v.sent[1])

		// "host" is well, and makes room for one. The others may be forgotten 10 s after their
		// failure, which is looked for once a second.
		g.at(10*time.Second, "//the-4096th/503", once)
		g.at(10*time.Second+300*ms, "//has-no-gate/503", once)
		g.wait(10*time.Second + 500*ms)
		assert.Equal(t, 4096, retryhttp.Keys(g.gate))
		assert.Zero(t, retryhttp.FailuresInARow(g.gate, "has-no-gate"))
		g.at(11*time.Second, "//the-second/503", once)
		g.at(11*time.Second, "//only-succeeds/200", once)
		g.wait(11*time.Second + ms)
		assert.Equal(t, 2, retryhttp.Keys(g.gate))
	})
}

func TestStatusAndGaugesOfARequestWithoutAURL(t *testing.T) {
	var key func(*http.Request) string
	for range 2 {
		gate, bucket, hedge := &retryhttp.Gate{Key: key}, &retryhttp.TokenBucket{Key: key}, &retryhttp.Hedge{Key: key}
		_, err := retryhttp.New(script.New(script.Fail(errBroken)), retryhttp.Policy{Gate: gate, MaxAttempts: 1}).
			RoundTrip(requestTo("host")) // a Gate without results looks at nothing
		require.Error(t, err)
		for _, req := range []*http.Request{nil, {}} {
			assert.Zero(t, gate.Status(req))
			assert.EqualValues(t, 5, bucket.Status(req).Tokens)
			_, known := hedge.Delay(req)
			assert.False(t, known)
		}
		key = func(req *http.Request) string { return req.URL.Path }
	}
}

// The panic comes while the Gate holds a retry, and leaves it as it is.
func TestKeyThatPanicsPanicsInTheCallerOfStatusAlone(t *testing.T) {
	panics := func(req *http.Request) string {
		if req.URL.Path == "/panic" {
			panic("no key")
		}
		return req.URL.Host
	}
	inGate(t, &retryhttp.Gate{Key: panics}, func(t *testing.T, g *gated) {
		g.down()
		held := g.at(90*ms, "/503,200")
		g.wait(295 * ms)
		bad := requestTo("host")
		bad.URL.Path = "/panic"
		assert.PanicsWithValue(t, "no key", func() { g.gate.Status(bad) })
		assert.Equal(t, retryhttp.GateStatus{Down: true, Held: 1}, g.gate.Status(requestTo("host")))
		g.ended.Wait()
		assert.Equal(t, 200, held.status)
		assert.Zero(t, g.gate.Status(requestTo("host")))
	})
}

// Retries wait in line because their budget is spent. Seven failures do not make their host down.
func TestStatusIsNotDownWhileOnlyALineWaits(t *testing.T) {
	for failures, want := range map[int]bool{7: false, 8: true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLining(t, nil)
			for i := range failures {
				l.at(time.Duration(i)*20*ms, "/503,200")
			}
			time.Sleep(300 * ms)
			s := l.gate.Status(l.request("/"))
			assert.Greater(t, s.Held, 4)
			assert.Equal(t, retryhttp.GateStatus{Down: want, Held: s.Held, InLine: s.Held}, s, "after %d failures", failures)
			l.others.Wait()
		})
	}
}

// gated makes requests through a Transport with a Gate, in a bubble. The path of a request says what its
// attempts meet, one after the other; the last holds for all that follow: "/503,200". "503@1s" comes after
// a second. "broken" is an error, and "cut200" a response whose body breaks off. The query is what a
// response has in its header.
type gated struct {
	t      *testing.T
	start  time.Time
	gate   *retryhttp.Gate
	budget *countingBudget
	policy retryhttp.Policy
	rt     http.RoundTripper
	header http.Header          // of the requests that are made next
	upload io.ReadCloser        // the body of the next request, which is then a PUT
	body   func() io.ReadCloser // of a 503; nil: a short text
	ended  sync.WaitGroup

	mu sync.Mutex // guards what its visits have sent
}

// visit is one request.
type visit struct {
	sent    []time.Duration // its attempts
	outcome retryhttp.Outcome
	status  int
	text    string // of the response, unless it breaks off
	err     error
	done    time.Duration
}

// newGated has retries wait for 200 ms, and as many as the Gate lets through.
func newGated(t *testing.T, gate *retryhttp.Gate) *gated {
	g := &gated{t: t, start: time.Now(), gate: gate, budget: new(countingBudget)}
	g.policy = retryhttp.Policy{
		Gate: gate, Budget: g.budget, Backoff: retryhttp.Constant(200 * ms), MaxAttempts: 2,
	}
	g.rt = retryhttp.New(script.Step(g.answer), g.policy)
	return g
}

type visitKey struct{}

func (g *gated) answer(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	v := req.Context().Value(visitKey{}).(*visit)
	g.mu.Lock()
	v.sent = append(v.sent, time.Since(g.start))
	n := len(v.sent) // a hedge may be sent meanwhile
	g.mu.Unlock()
	answers := strings.Split(strings.Trim(req.URL.Path, "/"), ",")
	answer, latency, _ := strings.Cut(answers[min(n, len(answers))-1], "@")
	if d, err := time.ParseDuration(latency); err == nil {
		if pause.For(req.Context(), d) != nil {
			return nil, req.Context().Err()
		}
	}
	switch answer {
	case "broken":
		return nil, errBroken
	case "permanent":
		return nil, retryhttp.Permanent(errBroken)
	case "panic":
		panic(http.ErrAbortHandler)
	}
	status, cut := strings.CutPrefix(answer, "cut")
	code, err := strconv.Atoi(status)
	require.NoError(g.t, err)
	resp := script.Response(req, code)
	if cut {
		resp.Body, resp.ContentLength = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)), 10
	}
	if code == 503 && g.body != nil {
		resp.Body = g.body()
	}
	for name, values := range req.URL.Query() {
		resp.Header[http.CanonicalHeaderKey(name)] = values
	}
	return resp, nil
}

// at makes a request at a time since the start, of a host "host" unless the path begins
// with another: "//other/503".
func (g *gated) at(at time.Duration, path string, edits ...func(*retryhttp.Policy)) *visit {
	return g.with(context.Background(), at, path, edits...)
}

func (g *gated) with(ctx context.Context, at time.Duration, path string, edits ...func(*retryhttp.Policy)) *visit {
	for _, edit := range edits {
		ctx = retryhttp.WithPolicy(ctx, edit)
	}
	req, v := g.visit(ctx, path)
	g.ended.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				assert.Equal(g.t, http.ErrAbortHandler, p)
				v.done = time.Since(g.start)
			}
		}()
		time.Sleep(at - time.Since(g.start))
		resp, err := g.rt.RoundTrip(req)
		v.done, v.err = time.Since(g.start), err
		if err != nil {
			v.outcome = errorOf(g.t, err).Outcome
			return
		}
		defer resp.Body.Close()
		v.outcome, v.status = retryhttp.OutcomeOf(resp), resp.StatusCode
		if text, err := io.ReadAll(resp.Body); err == nil {
			v.text = string(text)
		}
	})
	return v
}

// visit returns a request that is not made yet.
func (g *gated) visit(ctx context.Context, path string) (*http.Request, *visit) {
	if !strings.HasPrefix(path, "//") {
		path = "//host" + path
	}
	u, err := url.Parse("http:" + path)
	require.NoError(g.t, err)
	v := new(visit)
	req := &http.Request{Method: http.MethodGet, URL: u, Header: g.header}
	if g.upload != nil {
		req.Method, req.Body, req.ContentLength, g.upload = http.MethodPut, g.upload, 1, nil
	}
	return req.WithContext(context.WithValue(ctx, visitKey{}, v)), v
}

// once has a request that is not retried.
func once(p *retryhttp.Policy) { p.MaxAttempts = 1 }

// every makes n requests in equal intervals, which are not retried.
func (g *gated) every(first, interval time.Duration, n int, path string) (visits []*visit) {
	for i := range n {
		visits = append(visits, g.at(first+time.Duration(i)*interval, path, once))
	}
	return visits
}

// down makes eight requests fail, the first at 0, the last at 100 ms. So the host is down from 100
// ms on.
func (g *gated) down() {
	g.every(0, 100*ms/7, 7, "/503")
	g.at(100*ms, "/503", once)
}

// hold makes n requests whose retries are held from 280 ms on, one after the other, if the host is down.
func (g *gated) hold(n int, path string, edits ...func(*retryhttp.Policy)) (held []*visit) {
	for i := range n {
		held = append(held, g.at(80*ms+time.Duration(i)*ms, path, edits...))
	}
	return held
}

// wait waits until all that happens until a time since the start has happened.
func (g *gated) wait(until time.Duration) {
	time.Sleep(until - time.Since(g.start))
	synctest.Wait()
}

// held is how many of the requests to "host" are held now.
func (g *gated) held() int {
	return g.gate.Status(requestTo("host")).Held
}

func inMillis(list ...float64) (durations []time.Duration) {
	for _, n := range list {
		durations = append(durations, time.Duration(n*float64(ms)))
	}
	return durations
}

// whenHeld is for a Logger, and is called when a request was held.
type whenHeld func()

func (f whenHeld) Enabled(context.Context, slog.Level) bool { return true }
func (f whenHeld) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f whenHeld) WithGroup(string) slog.Handler            { return f }

func (f whenHeld) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "held request" {
		f()
	}
	return nil
}
