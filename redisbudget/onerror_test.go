package redisbudget_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
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

// errs are an errorLog in a bubble.
type errs struct{ errorLog }

func (e *errs) all() []error {
	synctest.Wait()
	return e.errorLog.all()
}

func TestOnErrorGetsTheClientsErrorOncePerInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		var got errs
		b := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}
		e.refuse.Store(true)
		for range 100 {
			withdraw(b, get(t, host))
			withdraw(b, get(t, "other.example"))
			time.Sleep(100 * time.Millisecond)
		}
		assert.InDelta(t, 10, len(got.all()), 1)
		for _, err := range got.all() {
			assert.EqualError(t, err, "redisbudget: the balance was not updated: "+
				"READONLY You can't write against a read only replica.")
			_, ok := errors.AsType[redis.Error](err)
			assert.True(t, ok)
		}
	})
}

func TestOnErrorIsNotCalledWhileAllIsWell(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		var got errs
		b := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}
		withdraw(b, get(t, host))
		time.Sleep(time.Hour)
		assert.Empty(t, got.all())
	})
}

func TestOnErrorThatBlocksDelaysNothingAndIsCalledOnceAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		release := make(chan struct{})
		var hooks atomic.Int32
		b, req := &redisbudget.Bucket{
			Client:  e.client(t),
			OnError: func(error) { hooks.Add(1); <-release },
		}, get(t, host)
		b.Deposit(req)
		synctest.Wait()
		e.refuse.Store(true)
		for range 10 {
			time.Sleep(interval)
			withdraw(b, req)
		}
		e.refuse.Store(false)
		time.Sleep(2 * interval)
		assert.Equal(t, e.stored(t, "tokens"), b.Status(req).Tokens, "the shared balance decides again")
		assert.NoError(t, b.Close(), "which does not wait for the hook")
		assert.EqualValues(t, 1, hooks.Load())
		close(release)
	})
}

func TestOnErrorMayUseAndCloseTheBucket(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		var closed atomic.Bool
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		b.OnError = func(error) {
			b.Deposit(req)
			b.Status(req)
			if withdraw(b, req) {
				b.Refund(req, 1)
			}
			e.refuse.Store(false)
			assert.NoError(t, b.Close())
			closed.Store(true)
		}
		e.refuse.Store(true)
		require.True(t, withdraw(b, req))
		synctest.Wait()
		assert.True(t, closed.Load())
		assert.Equal(t, 19.0, e.stored(t, "tokens"), "what the failed call did not report")
	})
}

func TestPanicOfOnErrorIsDropped(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic("oops") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				var hooks atomic.Int32
				b, req := &redisbudget.Bucket{
					Client:  e.client(t),
					OnError: func(error) { hooks.Add(1); end() },
				}, get(t, host)
				e.refuse.Store(true)
				withdraw(b, req)
				time.Sleep(3 * interval)
				assert.Greater(t, hooks.Load(), int32(1), "it is called again")
				e.refuse.Store(false)
				time.Sleep(2 * interval)
				assert.Equal(t, e.stored(t, "tokens"), b.Status(req).Tokens)
			})
		})
	}
}

func TestClientThatPanicsIsAFailedCall(t *testing.T) {
	for says, end := range map[string]func(){
		"panicked: oops": func() { panic("oops") },
		"did not return": runtime.Goexit,
	} {
		t.Run(says, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				var got errs
				var panics atomic.Bool
				client := e.client(t)
				client.AddHook(processHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if panics.Load() {
						end()
					}
					return next(ctx, cmd)
				}))
				b, req := &redisbudget.Bucket{Client: client, OnError: got.add}, get(t, host)
				b.Deposit(req)
				time.Sleep(rest)
				panics.Store(true)
				b.Deposit(req)
				synctest.Wait()
				assert.Equal(t, 1, granted(b, req, 5), "the own bucket decides")
				require.NotEmpty(t, got.all())
				assert.ErrorContains(t, got.all()[0], "redisbudget: the balance was not updated: the client "+says)
				panics.Store(false)
				time.Sleep(2 * interval)
				assert.Equal(t, e.stored(t, "tokens"), b.Status(req).Tokens)
			})
		})
	}
}

func TestClientThatBlocksHoldsUpNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		release := make(chan struct{})
		var calls atomic.Int32
		client := e.client(t)
		client.AddHook(processHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			calls.Add(1)
			<-release
			return next(ctx, cmd)
		}))
		b, req := &redisbudget.Bucket{Client: client}, get(t, host)
		start := time.Now()
		for range 1000 {
			b.Deposit(req)
			withdraw(b, req)
			b.Refund(req, 1)
			b.Status(req)
		}
		assert.Zero(t, time.Since(start))
		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, calls.Load())
		assert.ErrorIs(t, b.Close(), context.DeadlineExceeded)
		close(release)
	})
}

func TestNilPointerAsClientIsAFailedCall(t *testing.T) {
	for _, client := range []redis.UniversalClient{(*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		t.Run(fmt.Sprintf("%T", client), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got errs
				b := &redisbudget.Bucket{Client: client, OnError: got.add}
				withdraw(b, get(t, host))
				assert.Len(t, got.all(), 1)
				assert.Error(t, b.Close())
			})
		})
	}
}

// A server that lies is not believed: its answers are failed calls.
func TestAnswerThatIsNoBalanceIsAFailedCall(t *testing.T) {
	answers := map[string]func(c *server.Peer){
		"a number":            func(c *server.Peer) { c.WriteInt(5) },
		"nothing":             func(c *server.Peer) { c.WriteNull() },
		"an empty list":       func(c *server.Peer) { c.WriteLen(0) },
		"two texts":           func(c *server.Peer) { c.WriteStrings([]string{"1", "1"}) },
		"four texts":          func(c *server.Peer) { c.WriteStrings([]string{"1", "1", "", ""}) },
		"no number":           func(c *server.Peer) { c.WriteStrings([]string{"many", "20", ""}) },
		"no capacity":         func(c *server.Peer) { c.WriteStrings([]string{"1", "", ""}) },
		"not a number":        func(c *server.Peer) { c.WriteStrings([]string{"nan", "20", ""}) },
		"infinite":            func(c *server.Peer) { c.WriteStrings([]string{"20", "inf", ""}) },
		"beyond a float":      func(c *server.Peer) { c.WriteStrings([]string{"1e999", "1e999", ""}) },
		"negative capacity":   func(c *server.Peer) { c.WriteStrings([]string{"20", "-1", ""}) },
		"a number at the end": func(c *server.Peer) { c.WriteLen(3); c.WriteBulk("1"); c.WriteBulk("20"); c.WriteInt(0) },
		"integers":            func(c *server.Peer) { c.WriteLen(3); c.WriteInt(1); c.WriteInt(1); c.WriteInt(1) },
	}
	for name, write := range answers {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				var got errs
				b, req := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}, get(t, host)
				e.onCall(func(c *server.Peer, _ []string) bool { write(c); return true })
				withdraw(b, req)
				require.Len(t, got.all(), 1)
				assert.ErrorContains(t, got.all()[0], "redisbudget: the balance was not updated: ")
				assert.Zero(t, granted(b, req, 5))
			})
		})
	}
}

func TestBalanceBeyondTheCapacityIsNotBelieved(t *testing.T) {
	for tokens, want := range map[string]float64{"1e300": 20, "-1e300": 0} {
		inBubble(t, func(t *testing.T, e *engine) {
			b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 10}, get(t, host)
			e.onCall(func(c *server.Peer, _ []string) bool {
				c.WriteStrings([]string{tokens, "20", ""})
				return true
			})
			b.Deposit(req)
			synctest.Wait()
			assert.Equal(t, want, b.Status(req).Tokens)
			deposit(b, req, 5)
			assert.Equal(t, 20.0, max(b.Status(req).Tokens, want), "a debt is at most the capacity")
		})
	}
}

func TestErrorHoldsNoPassword(t *testing.T) {
	const password = "s3cret"
	inBubble(t, func(t *testing.T, e *engine) {
		e.RequireAuth("another")
		var got errs
		client := redis.NewClient(&redis.Options{
			Addr: "192.0.2.1:6379", Password: password, DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return e.Dial() },
		})
		b := &redisbudget.Bucket{Client: client, OnError: got.add}
		withdraw(b, get(t, "user:"+password+"@"+host))
		require.Len(t, got.all(), 1)
		assert.NotContains(t, got.all()[0].Error(), password)
		err := b.Close()
		require.Error(t, err)
		assert.NotContains(t, err.Error(), password)
		require.NoError(t, client.Close())
	})
}

// A server that does not know a command quotes its arguments.
func TestErrorHoldsNoArgumentsOfACommand(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		const reply = "ERR unknown command 'EVALSHA', with args beginning with: 's3cret' '1' '" + storedKey + "' '0' "
		var got errs
		b := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}
		e.onCall(func(c *server.Peer, _ []string) bool { c.WriteError(reply); return true })
		withdraw(b, get(t, host))
		require.Len(t, got.all(), 1)
		assert.EqualError(t, got.all()[0], "redisbudget: the balance was not updated: ERR unknown command 'EVALSHA'")
		err := b.Close()
		assert.EqualError(t, err, "redisbudget: the balance was not updated: ERR unknown command 'EVALSHA'")
		assert.True(t, redis.HasErrorPrefix(err, "unknown command"))
	})
}
