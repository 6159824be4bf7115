package otelretry_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

const hedgeAfter = 10 * time.Millisecond

// hedging hedges each request that takes longer than hedgeAfter.
func hedging() retryhttp.Policy {
	policy := noBudget()
	policy.Hedge = &retryhttp.Hedge{After: hedgeAfter, Share: 1}
	return policy
}

// answer is the result of an attempt, and when it comes.
type answer struct {
	after  time.Duration
	status int   // 0: err
	err    error // nil: no error comes, and the attempt ends with its context
}

// never is an answer that does not come.
var never = answer{after: time.Hour}

// attempts is a base that gives each attempt an answer.
func attempts(answers ...answer) roundTripperFunc {
	return func(req *http.Request) (*http.Response, error) {
		a := answers[retryhttp.AttemptOf(req.Context()).Number-1]
		if a.after > 0 {
			select {
			case <-time.After(a.after):
			case <-req.Context().Done():
				return nil, context.Cause(req.Context())
			}
		}
		if a.status == 0 {
			return nil, a.err
		}
		header := http.Header{"Location": {"/next"}}
		return &http.Response{StatusCode: a.status, ProtoMajor: 1, Header: header, Body: http.NoBody, Request: req}, nil
	}
}

// inOrder returns the spans of attempts by their resend_count.
func (tel *telemetry) inOrder() []tracetest.SpanStub {
	spans := tel.named("HTTP GET")
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int {
		return cmp.Compare(resends([]tracetest.SpanStub{a})[0], resends([]tracetest.SpanStub{b})[0])
	})
	return spans
}

// with returns for each span whether it has an attribute.
func with(key attribute.Key, spans []tracetest.SpanStub) []bool {
	var has []bool
	for _, s := range spans {
		has = append(has, slices.Contains(s.Attributes, key.Bool(true)))
	}
	return has
}

const (
	hedge      = attribute.Key("retryhttp.hedge")
	superseded = attribute.Key("retryhttp.superseded")
)

func TestEachOfTwoAttemptsAtOnceHasASpan(t *testing.T) {
	broken := errors.New("broken")
	isBroken := sdktrace.Status{Code: codes.Error, Description: "broken"}
	for name, tt := range map[string]struct {
		answers  []answer
		err      error
		lost     []bool
		statuses []sdktrace.Status
	}{
		"the hedge wins": {
			[]answer{never, {0, 200, nil}},
			nil,
			[]bool{true, false},
			[]sdktrace.Status{{}, {}},
		},
		"the first wins": {
			[]answer{{2 * hedgeAfter, 200, nil}, {3 * hedgeAfter, 200, nil}},
			nil,
			[]bool{false, true},
			[]sdktrace.Status{{}, {}},
		},
		"the first wins, and the hedge never ends": {
			[]answer{{2 * hedgeAfter, 200, nil}, never},
			nil,
			[]bool{false, true},
			[]sdktrace.Status{{}, {}},
		},
		"the hedge wins after the first failed": {
			[]answer{{2 * hedgeAfter, 503, nil}, {3 * hedgeAfter, 200, nil}},
			nil,
			[]bool{false, false},
			[]sdktrace.Status{failed, {}},
		},
		"the first wins after the hedge failed": {
			[]answer{{3 * hedgeAfter, 200, nil}, {0, 0, broken}},
			nil,
			[]bool{false, false},
			[]sdktrace.Status{{}, isBroken},
		},
		"both fail, and a retry wins": {
			[]answer{{2 * hedgeAfter, 503, nil}, {2 * hedgeAfter, 0, broken}, {0, 200, nil}},
			nil,
			[]bool{false, false, false},
			[]sdktrace.Status{failed, isBroken, {}},
		},
		"a final error of the first": {
			[]answer{{2 * hedgeAfter, 0, retryhttp.Permanent(broken)}, never},
			broken,
			[]bool{false, true},
			[]sdktrace.Status{isBroken, {}},
		},
		"a final error of the hedge": {
			[]answer{{2 * hedgeAfter, 200, nil}, {0, 0, retryhttp.Permanent(broken)}},
			nil,
			[]bool{false, false},
			[]sdktrace.Status{{}, isBroken},
		},
	} {
		for where, ask := range map[string]func(*testing.T, *telemetry, func(context.Context)){
			"within a span":  func(t *testing.T, tel *telemetry, f func(context.Context)) { tel.inSpan(t, f) },
			"outside of one": func(t *testing.T, _ *telemetry, f func(context.Context)) { f(t.Context()) },
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tel := newTelemetry()
					policy := hedging()
					policy.Backoff = retryhttp.Constant(5 * hedgeAfter) // the hedge may end within
					rt := otelretry.New(attempts(tt.answers...), policy, tel.options()...)
					ask(t, tel, func(ctx context.Context) {
						_, err := send(t, ctx, rt, "GET", shop)
						assert.ErrorIs(t, err, tt.err)
					})
					time.Sleep(time.Second) // a hedge may be left to finish
					spans := tel.inOrder()
					require.Len(t, spans, len(tt.answers))
					assert.Equal(t, []int64{-1, 1, 2}[:len(spans)], resends(spans))
					assert.Equal(t, []bool{false, true, false}[:len(spans)], with(hedge, spans))
					assert.Equal(t, tt.lost, with(superseded, spans))
					assert.Equal(t, tt.statuses, statuses(spans))
					requireLinked(t, spans)
					requireOneTrace(t, tel, spans)
					for i, s := range spans {
						assert.Equal(t, tt.statuses[i].Description != "", hasErrorType(s), i)
					}
				})
			})
		}
	}
}

// requireOneTrace requires that the parent of all spans is the caller's. Without a caller's span, it
// is the first of them, except for a hedge: a hedge overlaps that span, and has no parent.
func requireOneTrace(t *testing.T, tel *telemetry, spans []tracetest.SpanStub) {
	t.Helper()
	var parent tracetest.SpanStub
	callers := tel.named("caller")
	if len(callers) > 0 {
		parent = callers[0]
	} else {
		parent, spans = spans[0], spans[1:]
		assert.False(t, parent.Parent.IsValid())
	}
	for _, s := range spans {
		assert.Equal(t, parent.SpanContext.TraceID(), s.SpanContext.TraceID())
		if len(callers) == 0 && with("retryhttp.hedge", []tracetest.SpanStub{s})[0] {
			assert.False(t, s.Parent.HasSpanID())
		} else {
			assert.Equal(t, parent.SpanContext.SpanID(), s.Parent.SpanID())
		}
	}
}

// hasErrorType reports whether a span says which Go type its error had.
func hasErrorType(s tracetest.SpanStub) bool {
	return slices.ContainsFunc(s.Attributes, func(attr attribute.KeyValue) bool {
		return attr.Key == "error.type" && attr.Value.AsString() != "503"
	})
}

func TestTheSpanOfAHedgeThatHasLostEndsWithIt(t *testing.T) {
	for name, tt := range map[string]struct {
		hedge answer
		ends  time.Duration // after the response
	}{
		"when it is answered": {answer{5 * hedgeAfter, 200, nil}, 4 * hedgeAfter},
		"when it fails":       {answer{5 * hedgeAfter, 0, errors.New("broken")}, 4 * hedgeAfter},
		"when it is canceled": {never, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				rt := otelretry.New(attempts(answer{2 * hedgeAfter, 200, nil}, tt.hedge), hedging(), tel.options()...)
				ctx, cancel := context.WithCancel(t.Context())
				_, err := send(t, ctx, rt, "GET", shop)
				cancel() // as callers do
				require.NoError(t, err)
				answered := time.Now()
				assert.Len(t, tel.named("HTTP GET"), 1)
				time.Sleep(time.Second)
				spans := tel.inOrder()
				assert.Equal(t, []bool{false, true}, with(superseded, spans))
				assert.Equal(t, []sdktrace.Status{{}, {}}, statuses(spans))
				assert.Equal(t, tt.ends, spans[1].EndTime.Sub(answered))
			})
		})
	}
}

// No attempt has won when the caller cancels.
func TestTheSpansOfAttemptsThatTheCallerCancelsAreErrors(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			tel := newTelemetry()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := send(t, ctx, otelretry.New(attempts(never, never), hedging(), tel.options()...), "GET", shop)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			synctest.Wait()
			ended := sdktrace.Status{Code: codes.Error, Description: "context deadline exceeded"}
			spans := tel.inOrder()
			assert.Equal(t, []sdktrace.Status{ended, ended}, statuses(spans))
			assert.Equal(t, []bool{false, false}, with(superseded, spans))
		})
	}
}

func TestEachOfTwoAttemptsAtOnceSendsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		var mu sync.Mutex
		sent := make(map[string]string) // traceparent and baggage
		both := attempts(never, answer{0, 200, nil})
		base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			sent[req.Header.Get("Traceparent")] = req.Header.Get("Baggage")
			mu.Unlock()
			return both(req)
		})
		rt := otelretry.New(base, hedging(), tel.options(otelhttp.WithPropagators(
			propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})))...)
		bag, err := baggage.Parse("tenant=blue")
		require.NoError(t, err)
		_, err = send(t, baggage.ContextWithBaggage(t.Context(), bag), rt, "GET", shop)
		require.NoError(t, err)
		want := make(map[string]string)
		for _, s := range tel.named("HTTP GET") {
			want["00-"+s.SpanContext.TraceID().String()+"-"+s.SpanContext.SpanID().String()+"-01"] = "tenant=blue"
		}
		assert.Equal(t, want, sent)
		assert.Len(t, sent, 2)
	})
}

func TestTheSpanOfAHedgeThatPanicsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		first := attempts(never)
		rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if retryhttp.AttemptOf(req.Context()).Number > 1 {
				panic(http.ErrAbortHandler)
			}
			return first(req)
		}), hedging(), tel.options()...)
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() { _, _ = send(t, t.Context(), rt, "GET", shop) })
		assert.Equal(t, []bool{false, true}, with(hedge, tel.inOrder()))
	})
}

func TestTheSpanOfAHedgeThatHasLostAndPanicsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		first := attempts(answer{2 * hedgeAfter, 200, nil})
		rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if retryhttp.AttemptOf(req.Context()).Number > 1 {
				time.Sleep(5 * hedgeAfter)
				panic(http.ErrAbortHandler)
			}
			return first(req)
		}), hedging(), tel.options()...)
		_, err := send(t, t.Context(), rt, "GET", shop)
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Equal(t, []bool{false, true}, with(superseded, tel.inOrder()))
	})
}

// A drain closes the large body.
func TestTheSpanOfAHedgeThatHasLostEndsWithALargeBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		both := attempts(answer{2 * hedgeAfter, 200, nil}, answer{2 * hedgeAfter, 200, nil})
		rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := both(req)
			resp.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", 1<<20)))
			return resp, err
		}), hedging(), tel.options()...)
		_, err := send(t, t.Context(), rt, "GET", shop)
		require.NoError(t, err)
		time.Sleep(time.Second)
		spans := tel.inOrder()
		assert.Equal(t, []bool{false, true}, with(superseded, spans))
		assert.Equal(t, []sdktrace.Status{{}, {}}, statuses(spans))
	})
}

// slowStart is a span processor that takes its time with the first span.
type slowStart struct {
	sdktrace.SpanProcessor
	once sync.Once
}

func (p *slowStart) OnStart(context.Context, sdktrace.ReadWriteSpan) {
	p.once.Do(func() { time.Sleep(time.Second) })
}

func (p *slowStart) OnEnd(sdktrace.ReadOnlySpan) {}

func TestAHedgeIsNoTraceOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		tel.tracers.RegisterSpanProcessor(&slowStart{})
		_, err := send(t, t.Context(), otelretry.New(attempts(never, answer{0, 200, nil}), hedging(), tel.options()...), "GET", shop)
		require.NoError(t, err)
		spans := tel.inOrder()
		require.Len(t, spans, 2)
		requireLinked(t, spans)
		requireOneTrace(t, tel, spans)
	})
}

func TestAHedgeDoesNotWaitForAnElderThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		filter := otelhttp.WithFilter(func(req *http.Request) bool {
			if retryhttp.AttemptOf(req.Context()).Number == 1 {
				time.Sleep(time.Second)
				panic("broken")
			}
			return true
		})
		rt := otelretry.New(attempts(never, never), hedging(), newTelemetry().options(filter)...)
		assert.PanicsWithValue(t, "broken", func() { _, _ = send(t, t.Context(), rt, "GET", shop) })
	})
}

func TestFilteredHedgesLeaveOtherSpansAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		filter := otelhttp.WithFilter(func(req *http.Request) bool { return retryhttp.AttemptOf(req.Context()).Number == 1 })
		rt := otelretry.New(attempts(answer{2 * hedgeAfter, 200, nil}, never), hedging(), tel.options(filter)...)
		get := func(ctx context.Context) {
			_, err := send(t, ctx, rt, "GET", shop)
			require.NoError(t, err)
		}
		get(t.Context())
		caller := tel.inSpan(t, get)
		time.Sleep(time.Second)
		spans := tel.named("HTTP GET")
		require.Len(t, spans, 2)
		for _, s := range append(spans, caller) {
			assert.Empty(t, s.Links)
			assert.NotContains(t, s.Attributes, hedge.Bool(true))
			assert.NotContains(t, s.Attributes, superseded.Bool(true))
		}
	})
}

// The first attempt has returned from the base when the hedge is sent.
func TestAHedgeBesideABodyThatIsBufferedIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := hedging()
		policy.BufferBytes = 1 << 10
		hedged := attempts(never, answer{0, 200, nil})
		rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if retryhttp.AttemptOf(req.Context()).Number > 1 {
				return hedged(req)
			}
			return &http.Response{StatusCode: 200, Body: hanging{req.Context()}, Request: req}, nil
		}), policy, tel.options()...)
		_, err := send(t, t.Context(), rt, "GET", shop)
		require.NoError(t, err)
		spans := tel.inOrder()
		assert.Equal(t, []bool{false, true}, with(hedge, spans))
		assert.Equal(t, []bool{true, false}, with(superseded, spans))
		assert.Equal(t, []sdktrace.Status{{}, {}}, statuses(spans))
	})
}

// hanging is a body that brings nothing until its context ends.
type hanging struct{ ctx context.Context }

func (h hanging) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

func (h hanging) Close() error { return nil }

// A Budget may hold up the hedge until the first attempt has won. What follows is a resumption.
func TestAHedgeThatIsNotSentHasNoSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		policy := hedging()
		policy.Resume = true
		policy.Budget = slowBudget{}
		broken := breaking(5)
		rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if retryhttp.AttemptOf(req.Context()).Number == 1 {
				time.Sleep(2 * hedgeAfter)
			}
			return broken(req)
		}), policy, tel.options()...)
		resp, err := rt.RoundTrip(asked(t))
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Nil(t, tel.metric(t, "retryhttp.client.body.resumptions").Data)
		assert.Nil(t, tel.metric(t, "retryhttp.client.call.hedges").Data)

		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, poem, string(got))
		spans := tel.inOrder()
		require.Len(t, spans, 2)
		assert.Equal(t, []bool{false, false}, with(hedge, spans))
		assert.Equal(t, []bool{false, false}, with(superseded, spans))
		require.Len(t, spans[1].Links, 1)
		assert.Equal(t, spans[0].SpanContext.SpanID(), spans[1].Links[0].SpanContext.SpanID())
	})
}

// slowBudget takes longer for a token than a first attempt takes.
type slowBudget struct{ retryhttp.Unlimited }

func (slowBudget) Withdraw(retryhttp.Retry) (cost float64, ok bool) {
	time.Sleep(5 * hedgeAfter)
	return 1, true
}

func TestAnAttemptAfterTheWinnersIsLinkedToTheWinner(t *testing.T) {
	hedgeWins := []answer{never, {0, 302, nil}}
	firstWins := []answer{{2 * hedgeAfter, 302, nil}, never}
	for name, tt := range map[string]struct {
		answers []answer
		winner  int
	}{"the hedge": {hedgeWins, 1}, "the first": {firstWins, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				base := attempts(tt.answers...)
				_, err := send(t, t.Context(), otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
					if req.URL.Path == "/next" {
						return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
					}
					return base(req)
				}), hedging(), tel.options()...), "GET", shop)
				require.NoError(t, err)
				time.Sleep(time.Second)
				spans := tel.inOrder()
				require.Len(t, spans, 3)
				assert.Equal(t, []int64{-1, 1, 2}, resends(spans))
				require.Len(t, spans[2].Links, 1)
				assert.Equal(t, spans[tt.winner].SpanContext.SpanID(), spans[2].Links[0].SpanContext.SpanID())
				requireOneTrace(t, tel, spans)
			})
		})
	}
}

func TestTheBodyOfAHedgedRequestIsResumed(t *testing.T) {
	for name, tt := range map[string]struct {
		slow   int // attempt
		winner int
	}{"the hedge's": {1, 1}, "the first's": {2, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				policy := hedging()
				policy.Resume = true
				broken := breaking(5)
				rt := otelretry.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
					switch retryhttp.AttemptOf(req.Context()).Number {
					case tt.slow:
						return attempts(never, never)(req)
					case 1:
						time.Sleep(2 * hedgeAfter)
					}
					return broken(req)
				}), policy, tel.options()...)
				got, err := read(t, t.Context(), rt)
				require.NoError(t, err)
				assert.Equal(t, poem, got)
				time.Sleep(time.Second)
				spans := tel.inOrder()
				require.Len(t, spans, 3)
				assert.Equal(t, []int64{-1, 1, 2}, resends(spans))
				assert.Equal(t, []bool{false, true, false}, with(hedge, spans))
				assert.Equal(t, brokenOff, spans[tt.winner].Status)
				assert.Equal(t, []bool{tt.winner == 1, tt.winner == 0, false}, with(superseded, spans))
				require.Len(t, spans[2].Links, 1)
				assert.Equal(t, spans[tt.winner].SpanContext.SpanID(), spans[2].Links[0].SpanContext.SpanID())
				requireOneTrace(t, tel, spans)
				resumptions := withoutTimes(tel.metric(t, "retryhttp.client.body.resumptions"))
				require.Len(t, resumptions, 1)
				assert.EqualValues(t, 1, resumptions[0].Value)
			})
		})
	}
}

// A hedge without a parent is sampled as its trace is.
func TestAHedgeIsSampledWithItsTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		tel.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(tel.spans),
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.5))))
		const requests = 40
		for range requests {
			rt := otelretry.New(attempts(answer{2 * hedgeAfter, 200, nil}, answer{0, 200, nil}), hedging(), tel.options()...)
			_, err := send(t, t.Context(), rt, "GET", shop)
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		spans := make(map[trace.TraceID]int)
		for _, s := range tel.named("HTTP GET") {
			spans[s.SpanContext.TraceID()]++
		}
		assert.NotEmpty(t, spans)
		assert.Less(t, len(spans), requests)
		for _, n := range spans {
			assert.Equal(t, 2, n)
		}
	})
}
