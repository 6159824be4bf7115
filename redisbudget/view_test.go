package redisbudget_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

func TestOneTokenIsGrantedBeforeTheFirstAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		e.delay.Store(1)
		assert.Equal(t, 1.0, b.Status(req).Tokens)
		assert.Equal(t, 1, granted(b, req, 5))
		time.Sleep(10 * time.Millisecond)
		assert.Equal(t, 19.0, b.Status(req).Tokens, "and is taken from the shared balance")
		assert.Equal(t, 19, granted(b, req, 25))
	})
}

func TestNegativeBurstGrantsNothingUnearned(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Burst: -1}, get(t, host)
		assert.Zero(t, granted(b, req, 1), "before the first answer")
		synctest.Wait()
		assert.Zero(t, granted(b, req, 1), "after it")
		deposit(b, req, 11) // ten leave room for a little less than a token
		time.Sleep(2 * interval)
		assert.Equal(t, 1, granted(b, req, 2))
	})
}

func TestProcessSeesWhatAnotherHasSpent(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		one := &redisbudget.Bucket{Client: e.client(t)}
		two := &redisbudget.Bucket{Client: e.client(t)}
		req := get(t, host)
		deposit(one, req, 1)
		deposit(two, req, 1)
		synctest.Wait()
		assert.Equal(t, 20, granted(one, req, 30), "one process may spend all")
		deposit(two, req, 1)
		time.Sleep(2 * interval)
		assert.Zero(t, granted(two, req, 1))
	})
}

func TestOwnSuccessesCountAtOnceUpToTheCapacity(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 0.5, Burst: 4}, get(t, host)
		deposit(b, req, 1)
		synctest.Wait()
		require.Equal(t, 4, granted(b, req, 5))
		synctest.Wait() // no further call in this Interval
		deposit(b, req, 2)
		assert.Equal(t, 1, granted(b, req, 2))
		deposit(b, req, 1000)
		assert.Equal(t, 4.0, b.Status(req).Tokens, "the capacity of the last answer")
	})
}

func TestRefundGivesATokenBackUpToTheCapacity(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		e.delay.Store(1)
		require.True(t, withdraw(b, req))
		b.Refund(req, 1)
		assert.Equal(t, 1.0, b.Status(req).Tokens, "of the own bucket")
		time.Sleep(10 * time.Millisecond)
		require.Equal(t, 5, granted(b, req, 5))
		for range 10 {
			b.Refund(req, 1)
		}
		assert.Equal(t, 20.0, b.Status(req).Tokens)
		time.Sleep(2 * interval)
		assert.Equal(t, 20.0, e.stored(t, "tokens"))
	})
}

// The account that granted the token may have been dropped.
func TestRefundToANewAccountGivesAWholeTokenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		one := &redisbudget.Bucket{Client: e.client(t)}
		two := &redisbudget.Bucket{Client: e.client(t)}
		req := get(t, host)
		require.True(t, withdraw(one, req))
		time.Sleep(rest)
		require.Equal(t, 19.0, e.stored(t, "tokens"))
		two.Refund(req, 1)
		time.Sleep(rest)
		assert.Equal(t, 20.0, e.stored(t, "tokens"))
	})
}

// A token that the own bucket grants comes out of the view too.
func TestAnswerIsAddedToWhatWasDoneSinceItsCallBegan(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 1, Window: -1}, get(t, host)
		b.Deposit(req)
		synctest.Wait()
		require.Equal(t, 10, granted(b, req, 10))
		time.Sleep(rest)
		require.Equal(t, 10.0, e.stored(t, "tokens"))
		e.delay.Store(int64(300 * time.Millisecond))
		b.Deposit(req)
		time.Sleep(200 * time.Millisecond)
		deposit(b, req, 7)
		require.Equal(t, 1, granted(b, req, 2), "by the own bucket, whose room is 1")
		time.Sleep(100*time.Millisecond + 1)
		assert.Equal(t, 17.0, b.Status(req).Tokens, "10 and 1, and then 7 less 1")
	})
}

func TestOwnBucketDecidesWhileACallIsSlow(t *testing.T) {
	for interval, patience := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 50 * time.Millisecond,
		2 * time.Second:        100 * time.Millisecond,
	} {
		inBubble(t, func(t *testing.T, e *engine) {
			b, req := &redisbudget.Bucket{Client: e.client(t), Interval: interval, Ratio: 1}, get(t, host)
			deposit(b, req, 1)
			time.Sleep(2 * interval)
			var slow atomic.Bool
			slow.Store(true)
			e.onCall(func(*server.Peer, []string) bool {
				if slow.Swap(false) {
					time.Sleep(interval)
				}
				return false
			})
			require.True(t, withdraw(b, req), "which brings a call forward")
			synctest.Wait()
			deposit(b, req, 1)
			time.Sleep(patience)
			assert.Equal(t, 20.0, b.Status(req).Tokens)
			time.Sleep(time.Nanosecond)
			assert.Equal(t, 1.0, b.Status(req).Tokens, "the call is older than that")
			assert.Equal(t, 1, granted(b, req, 5))
			time.Sleep(interval)
			assert.Equal(t, 19.0, b.Status(req).Tokens, "the answer has come")
		})
	}
}

func TestOwnBucketDecidesAfterAFailureUntilTheNextAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		deposit(b, req, 1)
		synctest.Wait()
		require.Equal(t, 20.0, b.Status(req).Tokens)
		e.refuse.Store(true)
		time.Sleep(2 * interval)
		deposit(b, req, 1)
		synctest.Wait()
		assert.Equal(t, 1, granted(b, req, 5))
		assert.Zero(t, b.Status(req).Tokens)
		e.refuse.Store(false)
		time.Sleep(2 * interval)
		assert.Equal(t, 19.0, b.Status(req).Tokens, "nobody has done anything")
	})
}

// The own bucket follows this process's successes, as a TokenBucket does.
func TestOwnBucketHoldsWhatThisProcessHasEarned(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		e.refuse.Store(true)
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		for range 100 * 60 {
			time.Sleep(10 * time.Millisecond)
			b.Deposit(req)
		}
		// 100 a second, of which a tenth for 20 s, and a minute is three Windows.
		assert.InDelta(t, 200*0.95, b.Status(req).Tokens, 2)
		time.Sleep(time.Hour)
		assert.Equal(t, 1.0, b.Status(req).Tokens, "the room goes with the rate")
	})
}

// The own bucket is empty after the shared balance has granted more than it had, and in no debt.
func TestOwnBucketIsEmptyAfterTheViewWasSpent(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 1}, get(t, host)
		deposit(b, req, 1)
		synctest.Wait()
		require.Equal(t, 15, granted(b, req, 15))
		time.Sleep(rest)
		e.refuse.Store(true)
		deposit(b, req, 1)
		synctest.Wait()
		assert.Equal(t, 1, granted(b, req, 5), "what was earned since")
	})
}

func TestConcurrentWithdrawsDuringACallAreGrantedTheBalance(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Burst: 500, Ratio: -1}, get(t, host)
		e.delay.Store(int64(trip))
		b.Deposit(req)
		time.Sleep(rest)
		var all atomic.Int64
		var users sync.WaitGroup
		for range 64 {
			users.Go(func() {
				for range 50 {
					all.Add(int64(granted(b, req, 1)))
					time.Sleep(time.Millisecond)
				}
			})
		}
		users.Wait()
		assert.EqualValues(t, 500, all.Load())
		require.NoError(t, b.Close())
		assert.Zero(t, e.stored(t, "tokens"))
	})
}

func TestOldViewIsCutToOneTokenOnce(t *testing.T) {
	for age, want := range map[time.Duration]int{10 * interval: 20, 10*interval + 1: 1} {
		inBubble(t, func(t *testing.T, e *engine) {
			b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 0.1}, get(t, host)
			times := e.callTimes()
			start := time.Now()
			deposit(b, req, 1)
			asked := time.Duration(0)
			for asked < 20*interval { // then the next call is as far away
				time.Sleep(interval / 2)
				asked = times()[len(times())-1]
			}
			time.Sleep(time.Until(start.Add(asked + age)))
			require.Equal(t, asked, times()[len(times())-1])
			e.delay.Store(1)
			assert.EqualValues(t, want, b.Status(req).Tokens)
			assert.Equal(t, want, granted(b, req, 30))
			if want == 1 {
				deposit(b, req, 30)
				assert.Equal(t, 3, granted(b, req, 30), "cut once: what is earned since counts")
			}
			time.Sleep(rest)
			assert.EqualValues(t, e.stored(t, "tokens"), b.Status(req).Tokens, "a Withdraw asks")
		})
	}
}

// While nothing is reported, the rate of the own bucket follows the last Window all the same.
func TestOwnBucketFollowsTheLastWindowWithoutCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const busy, idle = 6000, 10 * time.Minute
		alone := &retryhttp.TokenBucket{Ratio: 0.1, Burst: 1}
		unshared, closed := new(redisbudget.Bucket), new(redisbudget.Bucket)
		require.NoError(t, closed.Close())
		req := get(t, host)
		work := func() {
			for range busy {
				for _, b := range []retryhttp.Budget{alone, unshared, closed} {
					b.Deposit(req)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		for range 2 {
			work()
			want := alone.Status(req).Tokens
			assert.Greater(t, want, 180.0)
			// The two fold at different deposits of 64, which take 0.64 s of a Window of 20 s.
			assert.InEpsilon(t, want, unshared.Status(req).Tokens, 0.016)
			assert.InEpsilon(t, want, closed.Status(req).Tokens, 0.016)
			work()
			time.Sleep(idle)
			assert.Less(t, alone.Status(req).Tokens, 2.0)
			assert.Less(t, unshared.Status(req).Tokens, 2.0)
		}
	})
}
