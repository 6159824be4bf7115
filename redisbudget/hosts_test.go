package redisbudget_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// trip is more than nothing, so that calls of many hosts meet. Three trips and a wait are less than how
// long a process waits for an answer: go-redis takes two to dial, and pipelines have connections of their own.
const trip = 10 * time.Millisecond

// atOnce is how many calls are sent before others wait for their answers.
const atOnce = 8

// hosts returns requests to hosts.
func hosts(t *testing.T, n int) (reqs []*http.Request) {
	for i := range n {
		reqs = append(reqs, get(t, fmt.Sprintf("%d.example", i)))
	}
	return reqs
}

func key(req *http.Request) string { return "retryhttp:{" + req.URL.Host + "}" }

// shares reports whether the shared balance decides: an own bucket has one token.
func shares(b *redisbudget.Bucket, req *http.Request) bool { return b.Status(req).Tokens > 2 }

// depositEach deposits a success for each host. Calls that are due at once begin in this order.
func depositEach(b *redisbudget.Bucket, reqs []*http.Request) {
	for _, req := range reqs {
		b.Deposit(req)
		synctest.Wait()
	}
}

// inPipelines runs f with a Bucket whose calls take a trip, and with hosts that have a balance.
func inPipelines(t *testing.T, f func(t *testing.T, e *engine, b *redisbudget.Bucket, reqs []*http.Request, got *errs)) {
	inBubble(t, func(t *testing.T, e *engine) {
		var got errs
		b, reqs := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}, hosts(t, 30)
		e.trip.Store(int64(trip))
		depositEach(b, reqs)
		time.Sleep(rest)
		require.Empty(t, got.all())
		for _, req := range reqs {
			require.True(t, shares(b, req))
		}
		f(t, e, b, reqs, &got)
		_ = b.Close()
		time.Sleep(2 * trip) // or goroutines that carry answers would outlive the bubble
	})
}

func TestBalanceDecidesForManyHostsOverADistantServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startEngine(t)
		e.trip.Store(int64(trip))
		var got errs
		b := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}
		reqs := hosts(t, 2000)
		second := func(f func(req *http.Request)) {
			for _, req := range reqs {
				f(req)
				b.Deposit(req)
				time.Sleep(time.Second / time.Duration(len(reqs)))
			}
		}
		second(func(*http.Request) {}) // until there are answers
		decided, times := 0, e.callTimes()
		for range 4 {
			second(func(req *http.Request) {
				if shares(b, req) {
					decided++
				}
			})
		}
		t.Logf("decided %d of %d, with %d calls", decided, 4*len(reqs), len(times()))
		assert.Equal(t, 4*len(reqs), decided)
		assert.LessOrEqual(t, len(times()), 5*len(reqs))
		assert.Empty(t, got.all())
		require.NoError(t, b.Close())
	})
}

func TestCallsThatMeetShareAPipeline(t *testing.T) {
	inPipelines(t, func(t *testing.T, e *engine, b *redisbudget.Bucket, reqs []*http.Request, _ *errs) {
		calls := e.record()
		depositEach(b, reqs)
		time.Sleep(3 * trip)
		var at []time.Duration
		var keys []string
		for _, c := range calls() {
			at, keys = append(at, c.at), append(keys, c.key)
			assert.Equal(t, 1.0, c.deposits)
		}
		for _, req := range reqs {
			assert.Contains(t, keys, key(req))
		}
		require.Len(t, at, len(reqs))
		assert.Equal(t, slices.Repeat([]time.Duration{0}, atOnce), at[:atOnce])
		assert.Equal(t, slices.Repeat([]time.Duration{trip}, len(reqs)-atOnce), at[atOnce:])
	})
}

func TestScriptIsSentForEachCallOfAPipelineThatNeedsIt(t *testing.T) {
	inPipelines(t, func(t *testing.T, e *engine, b *redisbudget.Bucket, reqs []*http.Request, got *errs) {
		calls := e.record()
		e.trip.Store(0) // no call comes between
		require.NoError(t, e.client(t).ScriptFlush(t.Context()).Err())
		e.trip.Store(int64(trip))
		depositEach(b, reqs)
		time.Sleep(interval)
		assert.Greater(t, len(calls()), len(reqs), "some are sent twice")
		assert.Empty(t, got.all())
		require.NoError(t, b.Close())
		for _, req := range reqs {
			assert.True(t, e.Exists(key(req)))
			// 0.05 for each success, and the first has faded for rest and an Interval at most.
			assert.InDelta(t, 0.085, number(t, e.HGet(key(req), "rate")), 0.015, "booked once")
		}
	})
}

// A server that refuses one key answers for the others of its pipeline.
func TestErrorForOneCallOfAPipelineIsThatCallsAlone(t *testing.T) {
	inPipelines(t, func(t *testing.T, e *engine, b *redisbudget.Bucket, reqs []*http.Request, got *errs) {
		refused := reqs[atOnce+3]
		e.onCall(func(c *server.Peer, args []string) bool {
			if args[2] == key(refused) {
				c.WriteError("WRONGTYPE")
				return true
			}
			return false
		})
		depositEach(b, reqs)
		time.Sleep(3 * trip)
		for _, req := range reqs {
			assert.Equal(t, req != refused, shares(b, req), req.URL.Host)
		}
		require.Len(t, got.all(), 1)
		assert.ErrorContains(t, got.all()[0], "WRONGTYPE")
	})
}

func TestEachCallOfAPipelineHasItsOwnError(t *testing.T) {
	inPipelines(t, func(t *testing.T, e *engine, b *redisbudget.Bucket, reqs []*http.Request, got *errs) {
		replies := map[string]string{key(reqs[atOnce+3]): "WRONGTYPE", key(reqs[atOnce+5]): "READONLY"}
		e.onCall(func(c *server.Peer, args []string) bool {
			if reply, ok := replies[args[2]]; ok {
				c.WriteError(reply)
				return true
			}
			return false
		})
		depositEach(b, reqs)
		time.Sleep(3 * trip)
		require.Len(t, got.all(), 1)
		assert.ErrorContains(t, got.all()[0], "READONLY", "the last one's")
	})
}

// The answers before the break are answers. The calls after it may have been booked.
func TestPipelineThatBreaksHasTheAnswersThatCame(t *testing.T) {
	inPipelines(t, func(t *testing.T, e *engine, b *redisbudget.Bucket, reqs []*http.Request, got *errs) {
		breaks := atOnce + 10
		e.onCall(func(c *server.Peer, args []string) bool {
			if args[2] == key(reqs[breaks]) {
				c.Flush()
				c.Close()
				return true
			}
			return false
		})
		depositEach(b, reqs)
		time.Sleep(3 * trip)
		require.Len(t, got.all(), 1)
		for i, req := range reqs {
			assert.Equal(t, i < breaks, shares(b, req), i)
		}
		calls := e.record()
		time.Sleep(2 * interval)
		for _, c := range calls() {
			assert.Zero(t, c.deposits, "%s: none is reported twice", c.key)
		}
		for _, req := range reqs {
			assert.True(t, shares(b, req), req.URL.Host)
		}
	})
}

func TestPipelineThatPanicsIsFailedCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		var got errs
		var panics atomic.Bool
		client := e.client(t)
		client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			if panics.Load() {
				panic("oops")
			}
			return next(ctx, cmds)
		}))
		b, reqs := &redisbudget.Bucket{Client: client, OnError: got.add}, hosts(t, 30)
		e.trip.Store(int64(trip))
		depositEach(b, reqs)
		time.Sleep(rest)
		panics.Store(true)
		depositEach(b, reqs)
		time.Sleep(3 * trip)
		require.Len(t, got.all(), 1)
		assert.EqualError(t, got.all()[0], "redisbudget: the balance was not updated: the client panicked: oops")
		for i, req := range reqs {
			assert.Equal(t, i < atOnce, shares(b, req), i)
		}
		panics.Store(false)
		time.Sleep(2 * interval)
		for _, req := range reqs {
			assert.True(t, shares(b, req), req.URL.Host)
		}
		require.NoError(t, b.Close())
	})
}

// The client sends the script for the calls of a pipeline that need it, and fails then. The others
// have their answers.
func TestPanicFailsOnlyCallsWithoutAnAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		var got errs
		client := e.client(t)
		client.AddHook(processHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "eval" {
				panic("oops")
			}
			return next(ctx, cmd)
		}))
		b, reqs := &redisbudget.Bucket{Client: client, OnError: got.add}, hosts(t, 30)
		e.trip.Store(int64(trip))
		depositEach(b, reqs)
		time.Sleep(rest)
		needs := reqs[atOnce+3]
		e.onCall(func(c *server.Peer, args []string) bool {
			if args[2] == key(needs) {
				c.WriteError("NOSCRIPT No matching script.")
				return true
			}
			return false
		})
		depositEach(b, reqs)
		time.Sleep(3 * trip)
		require.Len(t, got.all(), 1)
		for _, req := range reqs {
			assert.Equal(t, req != needs, shares(b, req), req.URL.Host)
		}
		_ = b.Close()
		time.Sleep(2 * trip)
	})
}

func TestErrorOfAPipelineThatWasNotSentIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		var got errs
		var fails atomic.Bool
		failure := errors.New("not now")
		client := e.client(t)
		client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			if fails.Load() {
				return failure // and sets no command's error
			}
			return next(ctx, cmds)
		}))
		b, reqs := &redisbudget.Bucket{Client: client, OnError: got.add}, hosts(t, 30)
		e.trip.Store(int64(trip))
		depositEach(b, reqs)
		time.Sleep(rest)
		fails.Store(true)
		depositEach(b, reqs)
		time.Sleep(3 * trip)
		require.Len(t, got.all(), 1)
		assert.ErrorIs(t, got.all()[0], failure)
		_ = b.Close()
		time.Sleep(2 * trip)
	})
}

// pipelineHook is a hook of a client that runs with each pipeline.
type pipelineHook func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

func (pipelineHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (pipelineHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h pipelineHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}

func TestOnErrorThatBlocksHoldsUpNoOtherHost(t *testing.T) {
	inPipelines(t, func(t *testing.T, e *engine, _ *redisbudget.Bucket, reqs []*http.Request, _ *errs) {
		release := make(chan struct{})
		b := &redisbudget.Bucket{Client: e.client(t), OnError: func(error) { <-release }}
		defer func() { _ = b.Close() }()
		e.refuse.Store(true)
		for range 3 * atOnce {
			depositEach(b, reqs)
			time.Sleep(interval)
		}
		e.refuse.Store(false)
		time.Sleep(2 * interval)
		for _, req := range reqs {
			assert.True(t, shares(b, req), req.URL.Host)
		}
		close(release)
	})
}

func TestSlowAnswersAreReportedOncePerInterval(t *testing.T) {
	for trip, want := range map[time.Duration]int{50 * time.Millisecond: 0, 51 * time.Millisecond: 10} {
		t.Run(trip.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				var got errs
				b, reqs := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}, hosts(t, 3)
				e.trip.Store(int64(trip))
				for range 100 {
					depositEach(b, reqs)
					time.Sleep(interval / 10)
				}
				assert.InDelta(t, want, len(got.all()), 2)
				for _, err := range got.all() {
					assert.ErrorIs(t, err, redisbudget.ErrSlow)
					assert.EqualError(t, err, "redisbudget: Redis answers slowly: "+
						"an answer took 51ms, and the process decides alone after 50ms")
				}
				depositEach(b, reqs)
				assert.NoError(t, b.Close(), "all was reported")
			})
		})
	}
}

// A first call may have to dial, and to send the script.
func TestFirstAnswerMayBeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startEngine(t)
		var got errs
		b, req := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}, get(t, host)
		e.trip.Store(int64(2 * trip))
		b.Deposit(req)
		time.Sleep(rest)
		b.Deposit(req)
		require.NoError(t, b.Close())
		assert.Empty(t, got.all())
	})
}

func TestFailureIsReportedAndNotThatItWasSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		var got errs
		b, req := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}, get(t, host)
		b.Deposit(req)
		time.Sleep(rest)
		e.refuse.Store(true)
		e.delay.Store(int64(interval / 2)) // or it would be reported while it waits
		b.Deposit(req)
		time.Sleep(interval)
		require.Len(t, got.all(), 1)
		assert.False(t, errors.Is(got.all()[0], redisbudget.ErrSlow))
		assert.ErrorContains(t, got.all()[0], "READONLY")
	})
}

func TestCloseReportsForManyHosts(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, reqs := &redisbudget.Bucket{Client: e.client(t)}, hosts(t, 2000)
		e.trip.Store(int64(trip))
		depositEach(b, reqs)
		depositEach(b, reqs)
		calls := e.record()
		require.NoError(t, b.Close(), "within a second")
		reported := 0.0
		for _, c := range calls() {
			reported += c.deposits
		}
		assert.Positive(t, reported)
		for _, req := range reqs {
			assert.InDelta(t, 2/window.Seconds(), number(t, e.HGet(key(req), "rate")), 0.02)
		}
	})
}

// A Client is closed after the Bucket. Calls that wait for others are not sent after that.
func TestCallsThatWaitAreNotSentAfterClose(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, reqs := &redisbudget.Bucket{Client: e.client(t)}, hosts(t, 30)
		depositEach(b, reqs)
		time.Sleep(rest)
		e.delay.Store(int64(2 * time.Second)) // less than the client's patience
		depositEach(b, reqs)
		require.ErrorIs(t, b.Close(), context.DeadlineExceeded)
		calls := e.record()
		time.Sleep(time.Hour)
		assert.Empty(t, calls())
	})
}
