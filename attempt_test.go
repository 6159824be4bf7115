package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
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
	for _, timeout := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			t.Log("attempt timeout", timeout)
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
			resp, err = retryhttp.New(noBody, retryhttp.Policy{AttemptTimeout: timeout}).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		})
	}
}

// busyTwice answers 503 twice and then 200. It appends each attempt's number to
// seen while the attempt is made.
func busyTwice(seen *[]int) *script.Transport {
	note := func(step script.Step) script.Step {
		return func(req *http.Request) (*http.Response, error) {
			type key struct{}
			*seen = append(*seen, retryhttp.AttemptOf(context.WithValue(req.Context(), key{}, "below")).Number)
			return step(req)
		}
	}
	return script.New(note(script.Status(503)), note(script.Status(503)), note(script.Status(200)))
}

func TestAttemptKnowsItsNumber(t *testing.T) {
	plain := func(method string, body io.Reader) func() *http.Request {
		return func() *http.Request {
			req, err := http.NewRequest(method, "http://host.example/", body)
			require.NoError(t, err)
			return req
		}
	}
	for name, tc := range map[string]struct {
		request func() *http.Request
		policy  retryhttp.Policy
	}{
		"no body":             {request: plain("GET", nil)},
		"a body with GetBody": {request: plain("PUT", strings.NewReader("upload"))},
		"a stream":            {request: plain("PUT", io.MultiReader(strings.NewReader("upload")))},
		"an added key":        {plain("POST", nil), retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey}},
		"a timeout":           {plain("GET", nil), retryhttp.Policy{AttemptTimeout: time.Minute}},
		"a marked body": {
			plain("POST", strings.NewReader("order")), retryhttp.Policy{RetryUnprocessed: true, Classify: unprocessed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var seen, retried []int
			tc.policy.Backoff = retryhttp.Constant(0)
			tc.policy.OnRetry = func(a retryhttp.Attempt) {
				assert.Equal(t, a.Number, retryhttp.AttemptOf(a.Request.Context()).Number)
				retried = append(retried, a.Number)
			}
			resp, err := retryhttp.New(busyTwice(&seen), tc.policy).RoundTrip(tc.request())
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, []int{1, 2, 3}, seen)
			assert.Equal(t, []int{1, 2}, retried)
			assert.Equal(t, 1, retryhttp.AttemptOf(resp.Request.Context()).Number, "of a request made with the response's context")
		})
	}
}

func unprocessed(a retryhttp.Attempt) retryhttp.Class {
	if a.Response.StatusCode == 503 {
		return retryhttp.Unprocessed
	}
	return retryhttp.Classify(a)
}

func TestAttemptsAreNumberedThroughNestedTransports(t *testing.T) {
	for name, classify := range map[string]func(retryhttp.Attempt) retryhttp.Class{
		"the inner one retries": nil,
		"the outer one retries": func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Final },
		"first the outer one": func(a retryhttp.Attempt) retryhttp.Class {
			if retryhttp.AttemptOf(a.Request.Context()).Number == 1 {
				return retryhttp.Final
			}
			return retryhttp.Classify(a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []int
			inner := noWait
			inner.Classify = classify
			rt := retryhttp.New(retryhttp.New(busyTwice(&seen), inner), noWait)
			resp, err := rt.RoundTrip(getURL(t, "http://host.example"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, []int{1, 2, 3}, seen)
		})
	}
}

func TestAttemptTimeoutEndsAtTheHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			for range 5 {
				time.Sleep(time.Second)
				_, _ = io.WriteString(w, "part ")
				_ = http.NewResponseController(w).Flush()
			}
		}))
		defer stop()
		resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Second / 2}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, "part part part part part ", string(body))
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
	slowBody := func(req *http.Request) (*http.Response, error) {
		return script.Respond(200, &bodies.Hooked{OnRead: func([]byte) (int, error) {
			<-req.Context().Done()
			return 0, req.Context().Err()
		}})(req)
	}
	hangs := func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	retries := retryhttp.Policy{Backoff: retryhttp.Constant(0)}
	buffers := retryhttp.Policy{BufferBytes: 1 << 10}
	for name, c := range map[string]struct {
		base  http.RoundTripper
		outer retryhttp.Policy
		want  string
	}{
		"a header":                      {script.New(hangs), retryhttp.Policy{}, "no response header within 1s"},
		"a body":                        {script.New(slowBody), buffers, "no whole response body within 1s"},
		"a header, below":               {retryhttp.New(script.New(hangs), retries), retryhttp.Policy{}, "no response header within 1s"},
		"a body, below":                 {retryhttp.New(script.New(slowBody), buffers), retryhttp.Policy{}, "no whole response body within 1s"},
		"a body, after it was buffered": {retryhttp.New(script.New(slowBody), buffers), buffers, "no whole response body within 1s"},
		"a retry's header, below": {
			retryhttp.New(script.New(script.Status(503), script.Fail(errBroken), hangs), retries), retryhttp.Policy{},
			"no response within 1s, in 3 attempts of a nested Transport",
		},
		"a body, after retries below": {
			retryhttp.New(script.New(script.Status(503), slowBody), retries), buffers,
			"no whole response body within 1s, in 2 attempts of a nested Transport",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.outer.AttemptTimeout, c.outer.MaxAttempts = time.Second, 1
				resp, err := retryhttp.New(c.base, c.outer).RoundTrip(get(t, t.Context()))
				if err == nil { // the response has what came of its body
					_, err = io.ReadAll(resp.Body)
				}
				assert.EqualError(t, err, c.want)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
		})
	}
}

func TestAttemptTimeoutClosesAResponseThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := bodies.NewSlow(0)
		rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second) // a base that ignores its context
			return script.Respond(200, body)(req)
		}), retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 1})
		_, err := rt.RoundTrip(get(t, t.Context()))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, int32(1), body.Closes.Load())
	})
}

func TestAttemptTimeoutYieldsToCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(hang))
		defer stop()
		cause := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, ctx))
		e := errorOf(t, err)
		assert.Equal(t, retryhttp.StopCanceled, e.Stop)
		assert.ErrorIs(t, err, cause)
		assert.ErrorIs(t, err, context.Canceled)
		assert.False(t, e.Timeout())
	})
}

func TestAttemptContextIsReleased(t *testing.T) {
	cases := []struct {
		name    string
		release func(*http.Response, context.CancelFunc)
	}{
		{"by closing the body", func(r *http.Response, _ context.CancelFunc) { _ = r.Body.Close() }},
		{"by reading it", func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }},
		{"with the caller's context", func(_ *http.Response, cancel context.CancelFunc) { cancel() }},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				base := script.New(script.Status(200))
				resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, ctx))
				require.NoError(t, err)
				attempt := base.Requests()[0].Context()
				time.Sleep(time.Hour)
				require.NoError(t, attempt.Err(), "the timer was stopped at the header")
				tc.release(resp, cancel)
				synctest.Wait()
				assert.Error(t, attempt.Err())
			})
		})
	}
}

func TestAttemptContextIsReleasedAfterAnError(t *testing.T) {
	base := script.New(script.Fail(errBroken))
	p := retryhttp.Policy{AttemptTimeout: time.Minute, MaxAttempts: 1}
	_, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
	assert.ErrorIs(t, err, errBroken)
	assert.Error(t, base.Requests()[0].Context().Err())
}

func TestAttemptContextIsReleasedAfterAPanicOfTheBase(t *testing.T) {
	var ctx context.Context
	base := script.Step(func(r *http.Request) (*http.Response, error) {
		ctx = r.Context()
		panic(http.ErrAbortHandler)
	})
	req, _ := http.NewRequest("GET", "http://server/", nil)
	assert.Panics(t, func() { retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Hour}).RoundTrip(req) })
	assert.Error(t, ctx.Err())
}

func TestRequestCancelEndsTheRetries(t *testing.T) {
	closed := make(chan struct{})
	base := script.New(func(req *http.Request) (*http.Response, error) {
		close(closed)
		return nil, errBroken
	})
	req := get(t, t.Context())
	req.Cancel = closed //lint:ignore SA1019 some still use it
	_, err := retryhttp.New(base, noWait).RoundTrip(req)
	e := errorOf(t, err)
	assert.Equal(t, 1, e.Attempts)
	assert.Equal(t, retryhttp.StopCanceled, e.Stop)
	assert.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, "connection broken")
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
		assert.Equal(t, 1, e.Attempts)
		assert.Equal(t, retryhttp.StopCanceled, e.Stop)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// http.Client.Timeout closes Request.Cancel, too, and that ends the attempt a
// moment before the context notices.
func TestClientTimeoutDuringAnAttemptIsCanceled(t *testing.T) {
	var log bytes.Buffer
	for range 50 {
		var stop retryhttp.Stop
		var failure error
		base := script.New(func(req *http.Request) (*http.Response, error) {
			<-req.Cancel //lint:ignore SA1019 http.Client sets it
			return nil, errBroken
		})
		client := &http.Client{Timeout: 2 * time.Millisecond, Transport: retryhttp.New(base, retryhttp.Policy{
			Backoff: retryhttp.Constant(time.Hour),
			Logger:  slog.New(slog.NewTextHandler(&log, nil)),
			OnDone:  func(_ retryhttp.Attempt, o retryhttp.Outcome) { stop = o.Stop },
		})}
		_, failure = client.Get("http://host.example/") //nolint:bodyclose // there is none
		require.Error(t, failure)
		require.Equal(t, retryhttp.StopCanceled, stop)
	}
	assert.Empty(t, log.String())
}

func TestDeadlineOfTheCallerDuringAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(hang))
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(get(t, ctx))
		e := errorOf(t, err)
		assert.Equal(t, retryhttp.Outcome{Attempts: 1, Elapsed: 2 * time.Second, Stop: retryhttp.StopCanceled}, e.Outcome)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.True(t, e.Timeout())
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
	assert.True(t, e.Timeout())
}

// lateContext has a deadline that it does not keep.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

func TestAttemptIsHeldAsLongAsTheRequest(t *testing.T) {
	inGate(t, new(retryhttp.Gate), func(t *testing.T, g *gated) {
		var before, after, inLine time.Duration
		var last retryhttp.Attempt
		g.policy.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) {
			if a.Request.URL.Path == "/503,200" {
				last = a
			}
		}
		g.rt = retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			switch {
			case req.URL.Path != "/503,200":
			case retryhttp.AttemptOf(req.Context()).Number == 1:
				before = retryhttp.AttemptOf(req.Context()).Held
			default:
				a := retryhttp.AttemptOf(req.Context())
				after, inLine = a.Held, a.InLine
			}
			return g.answer(req)
		}), g.policy)
		g.down()
		held := g.at(90*ms, "/503,200")
		g.ended.Wait()
		assert.Zero(t, before)
		assert.NotZero(t, after)
		assert.Zero(t, inLine, "it had a token")
		assert.Equal(t, held.outcome.Held, after)
		assert.Equal(t, after, last.Held, "as observers see it")
	})
}

func TestHeldOfAResumption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := resumes
		p.Gate = &retryhttp.Gate{}
		base := script.New(cutAfter(10), rest(10))
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		failOnce(t, p, script.Status(429, "Retry-After", "3"))
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		a := retryhttp.AttemptOf(base.Requests()[1].Context())
		assert.Equal(t, base.Waits()[0], a.Held)
		assert.Zero(t, a.InLine)
	})
}

// A request may be made with the context of another's attempt, and says nothing about that attempt.
func TestHeldIsNotWrittenIntoACallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var retry, held *http.Request
		_, err := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			retry = req
			return nil, errBroken
		}), retryhttp.Policy{MaxAttempts: 2}).RoundTrip(requestTo("other"))
		require.Error(t, err)
		answers := script.New(script.Status(429, "Retry-After", "2"), script.Status(200))
		rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			held = req
			return answers.RoundTrip(req)
		}), retryhttp.Policy{Gate: &retryhttp.Gate{HoldFirst: true}, MaxAttempts: 1})
		for range 2 {
			resp, err := rt.RoundTrip(requestTo("host").WithContext(retry.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		assert.NotZero(t, retryhttp.AttemptOf(held.Context()).Held)
		assert.Equal(t, 2, retryhttp.AttemptOf(held.Context()).Number)
		assert.Zero(t, retryhttp.AttemptOf(retry.Context()).Held)
	})
}

func TestInLineCountsWhatWaitsForAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil)
		for _, path := range []string{"/503,200,1", "/503,200,2", "/503,200,3"} {
			l.at(0, path)
		}
		time.Sleep(150 * ms) // their backoff is over
		assert.Equal(t, 3, l.gate.Status(l.request("/")).InLine)
		assert.Equal(t, 3, l.gate.Status(l.request("/")).Held)
		l.others.Wait()
		assert.Zero(t, l.gate.Status(l.request("/")).InLine)
		assert.Zero(t, new(retryhttp.Gate).Status(nil).InLine)
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

func TestAttemptsContextHasTheDeadlineOfAttemptTimeoutUntilTheHeader(t *testing.T) {
	for name, c := range map[string]struct {
		caller         time.Duration
		timeout        time.Duration
		first, retried time.Duration // deadlines of the two attempts
		later          time.Duration // after a minute
	}{
		"no deadline of the caller": {0, 10 * time.Second, 10 * time.Second, 10 * time.Second, 0},
		"a later one":               {time.Hour, 10 * time.Second, 10 * time.Second, 10 * time.Second, 59 * time.Minute},
		"one in the retry":          {72 * time.Second, 70 * time.Second, 70 * time.Second, 66 * time.Second, 6 * time.Second},
		"an earlier one":            {62 * time.Second, 70 * time.Second, 62 * time.Second, 56 * time.Second, -4 * time.Second},
		"no AttemptTimeout":         {time.Hour, 0, time.Hour, time.Hour - 6*time.Second, 59*time.Minute - 6*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []context.Context
				var had []time.Duration
				base := script.Step(func(req *http.Request) (*http.Response, error) {
					derived, cancel := context.WithCancel(req.Context())
					defer cancel()
					sent, had = append(sent, req.Context()), append(had, deadlineIn(derived))
					time.Sleep(time.Second)
					return script.Response(req, 503-303*(len(sent)-1)), nil
				})
				ctx, cancel := endingIn(t.Context(), c.caller)
				defer cancel()
				p := retryhttp.Policy{AttemptTimeout: c.timeout, Backoff: retryhttp.Constant(5 * time.Second)}
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, ctx))
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Equal(t, 200, resp.StatusCode)
				assert.Equal(t, []time.Duration{c.first, c.retried}, had)
				want, _ := ctx.Deadline()
				for _, sent := range sent {
					got, ok := sent.Deadline()
					assert.Equal(t, want, got)
					assert.Equal(t, c.caller > 0, ok)
				}
			})
		})
	}
}

func TestAttemptsContextHasTheDeadlineOfAttemptTimeoutWhileABodyIsBuffered(t *testing.T) {
	for name, length := range map[string]int{"the whole body": 4, "a long body": 12} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var deadlines []time.Duration // since the start
				base := script.New(func(req *http.Request) (*http.Response, error) {
					time.Sleep(time.Second)
					return script.Respond(200, &bodies.Hooked{OnRead: func(p []byte) (int, error) {
						deadline, _ := req.Context().Deadline()
						deadlines = append(deadlines, deadline.Sub(began))
						if len(deadlines) > length {
							return 0, io.EOF
						}
						return copy(p, "x"), nil
					}})(req)
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				p := retryhttp.Policy{AttemptTimeout: 10 * time.Second, BufferBytes: 6}
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, ctx))
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				assert.Len(t, got, length)
				for i, d := range deadlines {
					assert.Equal(t, map[bool]time.Duration{true: 10 * time.Second, false: time.Hour}[i < 7], d)
				}
			})
		})
	}
}

// A limiter refuses what it could not let pass in time. Without the deadline, it would reserve a
// place and wait for the AttemptTimeout.
func TestLimiterBelowRefusesAnAttemptAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(rate.Every(10*time.Second), 1)
		base := script.New(script.Status(200))
		limited := script.Step(func(req *http.Request) (*http.Response, error) {
			if err := limiter.Wait(req.Context()); err != nil {
				return nil, err
			}
			return base.RoundTrip(req)
		})
		p := retryhttp.Policy{AttemptTimeout: 2 * time.Second, MaxAttempts: 5, Backoff: retryhttp.Constant(3 * time.Second)}
		var failures []retryhttp.Attempt
		p.OnRetry = func(a retryhttp.Attempt) { failures = append(failures, a) }
		rt := retryhttp.New(limited, p)
		began := time.Now()
		for _, attempts := range []int{1, 4} {
			resp, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			assert.Equal(t, attempts, retryhttp.OutcomeOf(resp).Attempts)
		}
		assert.InDelta(t, 10*time.Second, time.Since(began), float64(time.Microsecond), "three refusals, and a second in the limiter")
		for _, a := range failures {
			assert.ErrorContains(t, a.Err, "would exceed context deadline")
			assert.Zero(t, a.Elapsed)
		}
	})
}

// propagating is a base that passes on how much time is left, as gRPC does.
type propagating struct{ base http.RoundTripper }

func (p propagating) RoundTrip(req *http.Request) (*http.Response, error) {
	own := req.Clone(req.Context())
	own.Header.Set("Timeout", deadlineIn(req.Context()).String())
	return p.base.RoundTrip(own)
}

func TestDeadlineIsPassedOnPerAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503), script.Status(503), script.Status(200))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		p := retryhttp.Policy{AttemptTimeout: time.Second, Backoff: retryhttp.Constant(1200 * ms)}
		resp, err := retryhttp.New(propagating{base}, p).RoundTrip(get(t, ctx))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		var timeouts []string
		for _, req := range base.Requests() {
			timeouts = append(timeouts, req.Header.Get("Timeout"))
		}
		assert.Equal(t, []string{"1s", "1s", "600ms"}, timeouts)
	})
}

func TestDeadlineThroughNestedTransports(t *testing.T) {
	for name, c := range map[string]struct{ outer, inner, want time.Duration }{
		"the outer is earlier": {time.Second, time.Minute, time.Second},
		"the inner is earlier": {time.Minute, time.Second, time.Second},
		"the outer alone":      {time.Second, 0, time.Second},
		"the inner alone":      {0, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var had time.Duration
				var sent context.Context
				base := script.New(func(req *http.Request) (*http.Response, error) {
					sent, had = req.Context(), deadlineIn(req.Context())
					return script.Respond(200, &bodies.Hooked{OnRead: strings.NewReader("x").Read})(req)
				})
				inner := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: c.inner})
				resp, err := retryhttp.New(inner, retryhttp.Policy{AttemptTimeout: c.outer}).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				assert.Equal(t, c.want, had)
				assert.Zero(t, deadlineIn(sent))
				time.Sleep(time.Hour)
				assert.NoError(t, sent.Err())
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// The race detector checks that Deadline may be called at any time.
func TestDeadlineMayBeReadWhileTheHeaderArrives(t *testing.T) {
	for range 200 {
		var reading sync.WaitGroup
		done := make(chan struct{})
		base := script.New(func(req *http.Request) (*http.Response, error) {
			reading.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						_ = deadlineIn(req.Context())
						_ = fmt.Sprint(req.Context())
					}
				}
			})
			return script.Response(req, 200), nil
		})
		resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		close(done)
		reading.Wait()
	}
}
