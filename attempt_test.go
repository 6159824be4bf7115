package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

func TestBaseThatBreaksTheRules(t *testing.T) {
	inBubbles(t, map[string]time.Duration{
		"AttemptTimeout": time.Minute, "no AttemptTimeout": 0,
	}, func(t *testing.T, timeout time.Duration) {
		nothing := script.New(func(*http.Request) (*http.Response, error) { return nil, nil })
		_, err := retryhttp.New(nothing, retryhttp.Policy{AttemptTimeout: timeout}).RoundTrip(get(t, t.Context()))
		e := errorOf(t, err)
		assert.Equal(t, 4, e.Attempts, "neither a response nor an error is retried")
		assert.ErrorContains(t, err, "neither a response nor an error")

		body := bodies.NewSlow(0)
		both := script.New(func(req *http.Request) (*http.Response, error) {
			resp, _ := script.Respond(200, body)(req)
			return resp, errBroken
		})
		p := retryhttp.Policy{AttemptTimeout: timeout, MaxAttempts: 1}
		resp, err := retryhttp.New(both, p).RoundTrip(get(t, t.Context()))
		assert.Nil(t, resp)
		assert.ErrorIs(t, err, errBroken)
		assert.Equal(t, int32(1), body.Closes.Load())

		noBody := script.New(script.Respond(503, nil), script.Respond(200, nil))
		resp = opened(t, noBody, retryhttp.Policy{AttemptTimeout: timeout})
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
	})
}

func TestAttemptTimeoutIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(hang))
		defer stop()
		client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 1})}
		_, err := client.Get("http://server/") //nolint:bodyclose // there is none
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, context.Canceled)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())
		assert.True(t, temporary(timeout))
		assert.ErrorContains(t, err, "no response header within 1s")
	})
}

// The text names what was missing, which a nested Transport may know better.
func TestAttemptTimeoutNamesWhatWasMissing(t *testing.T) {
	slowBody := stallsAfter("", context.Canceled)
	below := func(p retryhttp.Policy, answers ...script.Step) http.RoundTripper {
		return retryhttp.New(script.New(answers...), p)
	}
	busy, broken := script.Status(503), script.Fail(errBroken)
	buffers := retryhttp.Policy{BufferBytes: 1 << 10}
	type testCase struct {
		base  http.RoundTripper
		outer retryhttp.Policy
		want  string
	}
	inBubbles(t, map[string]testCase{
		"a body":                        {script.New(slowBody), buffers, "no whole response body within 1s"},
		"a header, below":               {below(noWait, untilItEnds), noWait, "no response header within 1s"},
		"a body, below":                 {below(buffers, slowBody), noWait, "no response header within 1s"},
		"a body, after it was buffered": {below(buffers, slowBody), buffers, "no whole response body within 1s"},
		"a retry's header, below": {below(noWait, busy, broken, untilItEnds), noWait,
			"gave up after 3 attempts in 1s (nested): no response header within 1s"},
		"a body, after retries below": {below(noWait, busy, slowBody), buffers,
			"gave up after 2 attempts in 1s (nested): no whole response body within 1s"},
	}, func(t *testing.T, c testCase) {
		c.outer.AttemptTimeout, c.outer.MaxAttempts = time.Second, 1
		resp, err := retryhttp.New(c.base, c.outer).RoundTrip(get(t, t.Context()))
		if err == nil { // the response has what came of its body
			_, err = io.ReadAll(resp.Body)
		}
		assert.EqualError(t, err, c.want)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAttemptTimeoutClosesAResponseThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := bodies.NewSlow(0)
		ignorant := edited(script.Respond(200, body), func(*http.Response) { time.Sleep(2 * time.Second) })
		rt := retryhttp.New(ignorant, retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 1})
		_, err := rt.RoundTrip(get(t, t.Context()))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, int32(1), body.Closes.Load())
	})
}

func TestAttemptContextIsReleased(t *testing.T) {
	inBubbles(t, map[string]func(*http.Response, context.CancelFunc){
		"by closing the body":       func(r *http.Response, _ context.CancelFunc) { _ = r.Body.Close() },
		"by reading it":             func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) },
		"with the caller's context": func(_ *http.Response, cancel context.CancelFunc) { cancel() },
	}, func(t *testing.T, release func(*http.Response, context.CancelFunc)) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		base := script.New(script.Status(200))
		resp := responseTo(t, base, retryhttp.Policy{AttemptTimeout: time.Minute}, get(t, ctx))
		attempt := base.Requests()[0].Context()
		time.Sleep(time.Hour)
		require.NoError(t, attempt.Err(), "the timer was stopped at the header")
		release(resp, cancel)
		synctest.Wait()
		assert.Error(t, attempt.Err())
	})
}

func TestAttemptContextIsReleasedAfterAnErrorOrAPanicOfTheBase(t *testing.T) {
	panics := func(*http.Request) (*http.Response, error) { panic(http.ErrAbortHandler) }
	for name, answer := range map[string]script.Step{"an error": script.Fail(errBroken), "a panic": panics} {
		base := script.New(answer)
		endOfCall(func() {
			p := retryhttp.Policy{AttemptTimeout: time.Hour, MaxAttempts: 1}
			_, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
			assert.ErrorIs(t, err, errBroken)
		})
		assert.Error(t, base.Requests()[0].Context().Err(), name)
	}
}

// The field is deprecated, so no goroutine watches it during a wait.
func TestRequestCancelEndsTheRetriesAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503))
		canceled := make(chan struct{})
		rt := retryhttp.New(base, retryhttp.Policy{
			Backoff: retryhttp.Constant(time.Second),
			OnRetry: func(retryhttp.Attempt) { time.AfterFunc(time.Millisecond, func() { close(canceled) }) },
		})
		req := get(t, t.Context())
		req.Cancel = canceled //lint:ignore SA1019 some still use it
		start := time.Now()
		_, err := rt.RoundTrip(req)
		e := errorOf(t, err)
		assert.EqualError(t, err, "the request's Cancel channel was closed: the last response was 503 Service Unavailable")
		assert.Equal(t, 1, e.Attempts)
		assert.Equal(t, retryhttp.StopCanceled, e.Stop)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// A deadline counts from its moment, even if the context has not noticed it.
func TestDeadlineThatHasPassedIsCanceled(t *testing.T) {
	ctx := lateContext{t.Context(), time.Now().Add(-time.Second)}
	req := get(t, ctx)
	_, err := retryhttp.New(script.New(script.Fail(errBroken)), noWait).RoundTrip(req)
	e := errorOf(t, err)
	assert.Equal(t, retryhttp.StopCanceled, e.Stop)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, "connection broken")
	assert.True(t, e.Timeout())
}

// lateContext has a deadline that it does not keep.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

func TestAttemptIsHeldAsLongAsTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := new(retryhttp.Gate)
		_, err := download(t, script.Status(429, "Retry-After", "3"), retryhttp.Policy{Gate: gate, MaxAttempts: 1})
		require.NoError(t, err)
		var last retryhttp.Attempt
		var judged []time.Duration
		p := noWait
		p.Gate, p.PeekBytes = gate, 100
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			judged = append(judged, a.Held)
			return retryhttp.Classify(a)
		}
		p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { last = a }
		base := script.New(script.Status(503), script.Status(200))
		held := retryhttp.OutcomeOf(opened(t, base, p)).Held
		assert.NotZero(t, held)
		assert.Equal(t, []time.Duration{0, held}, judged, "the second while it peeks")
		assert.Zero(t, retryhttp.AttemptOf(base.Requests()[0].Context()).Held)
		retry := retryhttp.AttemptOf(base.Requests()[1].Context())
		assert.Equal(t, held, retry.Held)
		assert.Zero(t, retry.InLine, "it had a token")
		assert.Equal(t, held, last.Held, "as observers see it")
	})
}

// A request may be made with the context of another's attempt, and says nothing about that attempt.
func TestHeldIsNotWrittenIntoACallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := script.New(script.Fail(errBroken))
		_, err := retryhttp.New(failing, retryhttp.Policy{MaxAttempts: 2}).RoundTrip(requestTo("other"))
		require.Error(t, err)
		retry := failing.Requests()[1].Context()
		base := script.New(script.Status(429, "Retry-After", "2"), script.Status(200))
		p := retryhttp.Policy{Gate: &retryhttp.Gate{HoldFirst: true}, MaxAttempts: 1}
		for range 2 {
			_, err := readAll(t, base, p, requestTo("host").WithContext(retry))
			require.NoError(t, err)
		}
		held := retryhttp.AttemptOf(base.Requests()[1].Context())
		assert.NotZero(t, held.Held)
		assert.Equal(t, 2, held.Number)
		assert.Zero(t, retryhttp.AttemptOf(retry).Held)
	})
}

// deadlineIn returns how far away the deadline of ctx is, or 0 if there is none.
func deadlineIn(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return time.Until(deadline)
}

// endingIn returns a context that ends after d, or never if d is 0.
func endingIn(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// If a body is buffered, the header is not the end.
func TestAttemptsContextHasTheDeadlineOfAttemptTimeoutUntilTheHeader(t *testing.T) {
	type testCase struct {
		caller         time.Duration
		timeout        time.Duration
		buffer         int64
		first, retried time.Duration   // deadlines of the two attempts
		read           []time.Duration // and of each Read, of one byte
	}
	inBubbles(t, map[string]testCase{
		"no deadline of the caller": {0, 10 * time.Second, 0, 10 * time.Second, 10 * time.Second, seconds(0, 0)},
		"one in the retry":          {72 * time.Second, 70 * time.Second, 0, 70 * time.Second, 66 * time.Second, seconds(65, 65)},
		"no AttemptTimeout":         {time.Hour, 0, 0, time.Hour, time.Hour - 6*time.Second, seconds(3593, 3593)},
		"a body that is longer than its buffer": {
			time.Hour, time.Minute, 1, time.Minute, time.Minute, seconds(59, 59, 3593, 3593),
		},
	}, func(t *testing.T, c testCase) {
		var sent []context.Context
		var had, read []time.Duration
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			derived, cancel := context.WithCancel(req.Context())
			defer cancel()
			sent, had = append(sent, req.Context()), append(had, deadlineIn(derived))
			time.Sleep(time.Second)
			if len(sent) == 1 {
				return script.Response(req, 503), nil
			}
			return script.Respond(200, &bodies.Hooked{OnRead: func(p []byte) (int, error) {
				if read = append(read, deadlineIn(req.Context())); len(read) == len(c.read) {
					return 0, io.EOF
				}
				return 1, nil
			}})(req)
		})
		ctx, cancel := endingIn(t.Context(), c.caller)
		defer cancel()
		p := retryhttp.Policy{AttemptTimeout: c.timeout, BufferBytes: c.buffer, Backoff: retryhttp.Constant(5 * time.Second)}
		_, err := readAll(t, base, p, get(t, ctx))
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{c.first, c.retried}, had)
		assert.Equal(t, c.read, read)
		want, _ := ctx.Deadline()
		for _, sent := range sent {
			got, ok := sent.Deadline()
			assert.Equal(t, want, got)
			assert.Equal(t, c.caller > 0, ok)
		}
	})
}

// A limiter refuses what it could not let pass in time. Without the deadline, it would reserve a
// place and wait for the AttemptTimeout.
func TestLimiterBelowRefusesAnAttemptAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(rate.Every(10*time.Second), 1)
		limited := script.Step(func(req *http.Request) (*http.Response, error) {
			if err := limiter.Wait(req.Context()); err != nil {
				return nil, err
			}
			return script.Response(req, 200), nil
		})
		p := retryhttp.Policy{AttemptTimeout: 2 * time.Second, MaxAttempts: 5, Backoff: retryhttp.Constant(3 * time.Second)}
		p.OnRetry = func(a retryhttp.Attempt) {
			assert.ErrorContains(t, a.Err, "would exceed context deadline")
			assert.Zero(t, a.Elapsed)
		}
		began := time.Now()
		for _, attempts := range []int{1, 4} {
			assert.Equal(t, attempts, retryhttp.OutcomeOf(opened(t, limited, p)).Attempts)
		}
		assert.InDelta(t, 10*time.Second, time.Since(began), float64(time.Microsecond), "three refusals, and a second in the limiter")
	})
}

// The retries of a Transport below a hedge belong to the hedge.
func TestAttemptOfARetryBelowAHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(untilItEnds, script.Status(503), script.Status(200))
		resp, err := retryhttp.New(retryhttp.New(base, noWait), hedging()).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		var sent []retryhttp.Attempt
		for _, req := range base.Requests() {
			sent = append(sent, retryhttp.AttemptOf(req.Context()))
		}
		assert.Equal(t, []retryhttp.Attempt{{Number: 1}, {Number: 2, Hedge: true}, {Number: 3, Hedge: true}}, sent)
	})
}

func TestDeadlineThroughNestedTransports(t *testing.T) {
	type testCase struct{ outer, inner, want time.Duration }
	inBubbles(t, map[string]testCase{
		"the outer is earlier": {time.Second, time.Minute, time.Second},
		"the inner is earlier": {time.Minute, time.Second, time.Second},
		"the inner alone":      {0, time.Second, time.Second},
	}, func(t *testing.T, c testCase) {
		var had time.Duration
		var sent context.Context
		base := script.New(func(req *http.Request) (*http.Response, error) {
			sent, had = req.Context(), deadlineIn(req.Context())
			return script.Response(req, 200), nil
		})
		inner := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: c.inner})
		resp := opened(t, inner, retryhttp.Policy{AttemptTimeout: c.outer})
		assert.Equal(t, c.want, had)
		assert.Zero(t, deadlineIn(sent))
		time.Sleep(time.Hour)
		assert.NoError(t, sent.Err())
		require.NoError(t, resp.Body.Close())
	})
}

// The race detector checks that Deadline may be called at any time.
func TestDeadlineMayBeReadWhileTheHeaderArrives(t *testing.T) {
	for range 200 {
		var reading sync.WaitGroup
		var done atomic.Bool
		base := script.New(func(req *http.Request) (*http.Response, error) {
			reading.Go(func() {
				for !done.Load() {
					_ = deadlineIn(req.Context())
					_ = fmt.Sprint(req.Context())
				}
			})
			return script.Response(req, 200), nil
		})
		_, err := download(t, base, retryhttp.Policy{AttemptTimeout: time.Minute})
		require.NoError(t, err)
		done.Store(true)
		reading.Wait()
	}
}

// stalling serves the object, and stalls after n bytes of the first response.
// The rest it serves at once.
func stalling(n int) http.HandlerFunc {
	first := true
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		if first {
			first = false
			w.Header().Set("Content-Length", "36")
			stalls(200, object[:n])(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(object))
	}
}

// A base may lose the attempt's context. Its body is net/http's all the same.
func TestStallEndsARead(t *testing.T) {
	for _, kind := range []struct{ http2, forgets bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		synctest.Test(t, func(t *testing.T) {
			n, base, stop := memnet.ServeProtocol(stalling(9), kind.http2)
			defer stop()
			rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
				if kind.forgets {
					req = req.WithContext(context.WithoutCancel(req.Context()))
				}
				return base.RoundTrip(req)
			}), retryhttp.Policy{StallTimeout: time.Second})
			resp, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			time.Sleep(time.Minute) // a caller that takes its time is no stall
			_, err = io.ReadFull(resp.Body, make([]byte, 5))
			require.NoError(t, err)
			time.Sleep(time.Minute)
			began := time.Now()
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, time.Second, time.Since(began))
			assert.Equal(t, object[5:9], string(got))
			assert.EqualError(t, err, "the response body stalled for 1s")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			assert.True(t, timeout.Timeout())
			assert.True(t, temporary(timeout))
			_, err = resp.Body.Read(make([]byte, 1))
			assert.EqualError(t, err, "the response body stalled for 1s")
			require.NoError(t, resp.Body.Close())

			_, err = download(t, rt, retryhttp.Policy{})
			require.NoError(t, err)
			dials := map[bool]int{false: 2, true: 1}[kind.http2]
			assert.Equal(t, dials, n.Dials(), "it costs the connection, or the stream")
		})
	}
}

func TestTrickleIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trickle := script.Respond(200, trickles(999*time.Millisecond, io.EOF))
		requireBodyIs(t, object, opened(t, trickle, retryhttp.Policy{StallTimeout: time.Second}))
	})
}

func TestStallTimeoutLeavesA101Alone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			return script.Respond(101, &conn{Reader: &bodies.Hooked{OnRead: func([]byte) (int, error) {
				select {
				case <-req.Context().Done():
					return 0, req.Context().Err()
				case <-time.After(time.Hour):
					return 1, nil
				}
			}}})(req)
		})
		resp := opened(t, base, retryhttp.Policy{StallTimeout: time.Second})
		n, err := resp.Body.Read(make([]byte, 1))
		assert.NoError(t, err)
		assert.Equal(t, 1, n)
	})
}

// stallsAfter answers with a body that brings text, and then nothing until its attempt ends.
func stallsAfter(text string, end error) script.Step {
	return func(req *http.Request) (*http.Response, error) {
		silence := &bodies.Hooked{OnRead: func([]byte) (int, error) {
			<-req.Context().Done()
			return 0, end
		}}
		return script.Respond(200, io.NopCloser(io.MultiReader(strings.NewReader(text), silence)))(req)
	}
}

// A body that the Transport itself has ended is not whole, however it ends.
func TestCleanEndAfterATimeLimitIsNoEnd(t *testing.T) {
	inBubbles(t, map[string]retryhttp.Policy{
		"stall":                      {StallTimeout: time.Second},
		"stall of a buffered body":   {StallTimeout: time.Second, BufferBytes: 100, MaxAttempts: 1},
		"timeout of a buffered body": {AttemptTimeout: time.Second, BufferBytes: 100, MaxAttempts: 1},
	}, func(t *testing.T, p retryhttp.Policy) {
		budget := &countingBudget{}
		p.Budget = budget
		got, err := download(t, stallsAfter(object[:9], io.EOF), p)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, object[:9], got)
		if p.BufferBytes > 0 {
			assert.Zero(t, budget.deposit)
		}
	})
}

func TestPanicOfCloseAtAStallIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := edited(stallsAfter("", errLost), func(r *http.Response) {
			body := &mayClose{Hooked: bodies.Hooked{OnRead: r.Body.Read}, closable: true}
			body.OnClose = func() { panic("no") }
			r.Body = body
		})
		_, err := opened(t, base, retryhttp.Policy{StallTimeout: time.Second}).Body.Read(make([]byte, 1))
		assert.EqualError(t, err, "the response body stalled for 1s")
		synctest.Wait()
	})
}
