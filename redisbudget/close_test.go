package redisbudget_test

import (
	"context"
	"sync"
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

func TestCloseReportsWhatIsLeftAndEndsTheCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		require.True(t, withdraw(b, req))
		deposit(b, get(t, "other.example"), 1)
		synctest.Wait()
		calls := e.record()
		deposit(b, req, 5)
		b.Refund(req, 1)
		deposit(b, get(t, "other.example"), 3)
		require.NoError(t, b.Close())
		require.Len(t, calls(), 2)
		assert.ElementsMatch(t, []call{{storedKey, 0, 5, -1, 2.5}, {"retryhttp:{other.example}", 0, 3, 0, 1.5}}, calls())

		deposit(b, req, 9)
		assert.Equal(t, 1, granted(b, req, 5), "the own bucket decides")
		assert.Equal(t, 1, granted(b, get(t, "new.example"), 5))
		assert.NoError(t, b.Close(), "a second time")
		time.Sleep(time.Hour)
		assert.Len(t, calls(), 2, "nothing is reported any more")
	})
}

func TestCloseOfAnUnusedBucket(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{Client: e.client(t)}
		require.NoError(t, b.Close())
		calls := e.record()
		assert.Equal(t, 1, granted(b, get(t, host), 5))
		time.Sleep(time.Hour)
		assert.Empty(t, calls())
		assert.NoError(t, new(redisbudget.Bucket).Close())
	})
}

func TestCloseWaitsForTheCallUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Window: -1, Ratio: 1}, get(t, host)
		e.onCall(func(*server.Peer, []string) bool { time.Sleep(300 * time.Millisecond); return false })
		require.True(t, withdraw(b, req))
		synctest.Wait()
		deposit(b, req, 1)
		start := time.Now()
		require.NoError(t, b.Close())
		assert.Equal(t, 600*time.Millisecond, time.Since(start), "and reports what came after it")
		assert.Equal(t, 20.0, e.stored(t, "tokens"))
	})
}

func TestCloseMakesNoCallIfTheOneUnderWayReportsAll(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		e.delay.Store(int64(300 * time.Millisecond))
		calls := e.callTimes()
		require.True(t, withdraw(b, req))
		synctest.Wait()
		require.NoError(t, b.Close())
		assert.Len(t, calls(), 1)
	})
}

// It returns the first error, whatever comes after it.
func TestCloseReturnsTheErrorOfOneKey(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, reqs := &redisbudget.Bucket{Client: e.client(t)}, hosts(t, 2)
		depositEach(b, reqs)
		e.onCall(func(c *server.Peer, args []string) bool {
			if args[2] == key(reqs[0]) {
				c.WriteError("READONLY")
				return true
			}
			time.Sleep(trip)
			return false
		})
		depositEach(b, reqs)
		assert.True(t, redis.HasErrorPrefix(b.Close(), "READONLY"))
	})
}

func TestNewKeyAfterCloseMakesNoCall(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		var got errs
		b := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}
		require.NoError(t, b.Close())
		b.Deposit(get(t, host))
		withdraw(b, get(t, host))
		time.Sleep(rest)
		assert.Empty(t, got.all(), "not even one that fails")
	})
}

func TestCloseTakesASecondAtMost(t *testing.T) {
	for name, underWay := range map[string]bool{"a call under way": true, "a call of Close": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
				deposit(b, req, 1)
				synctest.Wait()
				e.onCall(func(*server.Peer, []string) bool { time.Sleep(2 * time.Second); return false })
				deposit(b, req, 1)
				if underWay {
					withdraw(b, req)
					synctest.Wait()
				}
				start := time.Now()
				err := b.Close()
				assert.Equal(t, time.Second, time.Since(start))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorContains(t, err, "redisbudget: ")
				time.Sleep(10 * time.Second) // the call ends with the client's timeout, or the bubble would hang
			})
		})
	}
}

func TestCloseReturnsTheClientsError(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{Client: e.client(t)}
		b.Deposit(get(t, host))
		synctest.Wait()
		e.refuse.Store(true)
		b.Deposit(get(t, host))
		err := b.Close()
		assert.ErrorContains(t, err, "redisbudget: ")
		assert.True(t, redis.HasErrorPrefix(err, "READONLY"), "%v", err)
	})
}

func TestClientThatIsClosedFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		client := e.client(t)
		b, req := &redisbudget.Bucket{Client: client}, get(t, host)
		deposit(b, req, 1)
		synctest.Wait()
		require.NoError(t, client.Close())
		deposit(b, req, 10)
		time.Sleep(2 * interval)
		assert.Equal(t, 1, granted(b, req, 5), "the own bucket decides")
		assert.ErrorIs(t, b.Close(), redis.ErrClosed)
	})
}

func TestCloseAmidUseBooksWhatWasDoneBefore(t *testing.T) {
	for seed := range 20 {
		inBubble(t, func(t *testing.T, e *engine) {
			const tick = 100 * time.Millisecond
			b, req := &redisbudget.Bucket{Client: e.client(t), Burst: 1e6, Ratio: -1}, get(t, host)
			e.onCall(func(*server.Peer, []string) bool { time.Sleep(30 * time.Millisecond); return false })
			var withdrawn atomic.Int64
			stop := make(chan struct{})
			var users sync.WaitGroup
			for range 8 {
				users.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(tick):
						}
						b.Deposit(req)
						if n := granted(b, req, 2); n > 0 {
							b.Refund(req, 1)
							withdrawn.Add(int64(n - 1))
						}
					}
				})
			}
			time.Sleep(2*tick + time.Duration(seed)*23*time.Millisecond)
			synctest.Wait()
			want := withdrawn.Load()
			require.Positive(t, want)
			require.NoError(t, b.Close())
			assert.EqualValues(t, 1e6-want, e.stored(t, "tokens"))
			calls := e.record()
			time.Sleep(10 * tick)
			close(stop)
			users.Wait()
			time.Sleep(time.Hour)
			assert.Empty(t, calls())
		})
	}
}
