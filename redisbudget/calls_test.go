package redisbudget_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

func TestKeyUsedOnceIsAskedForEverMoreSeldomUntilItIsForgotten(t *testing.T) {
	uses := map[string]func(*redisbudget.Bucket, *testing.T){
		"Withdraw": func(b *redisbudget.Bucket, t *testing.T) { withdraw(b, get(t, host)) },
		"Deposit":  func(b *redisbudget.Bucket, t *testing.T) { b.Deposit(get(t, host)) },
		"Refund":   func(b *redisbudget.Bucket, t *testing.T) { b.Refund(get(t, host), 1) },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				b := &redisbudget.Bucket{Client: e.client(t)}
				use(b, t)
				time.Sleep(time.Hour)
				times := e.callTimes()
				use(b, t)
				require.Equal(t, []time.Duration{0}, times(), "at once")
				time.Sleep(time.Hour)
				calls := times()
				for i, at := range calls[1:] {
					due := max(calls[i]+interval, 2*calls[i])
					assert.GreaterOrEqual(t, at, due)
					assert.LessOrEqual(t, at, due+spread)
				}
				last := calls[len(calls)-1]
				assert.LessOrEqual(t, last, 10*window)
				assert.Greater(t, 2*last+spread, 10*window)
				assert.InDelta(t, 9, len(calls), 1)
			})
		})
	}
}

func TestDepositsAreReportedOncePerInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		b.Deposit(req)
		synctest.Wait()
		times := e.callTimes()
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			b.Deposit(req)
		}
		var previous time.Duration
		for _, at := range times() {
			assert.GreaterOrEqual(t, at-previous, interval)
			assert.LessOrEqual(t, at-previous, interval+spread)
			previous = at
		}
		assert.InDelta(t, 9, len(times()), 1)
	})
}

// Deposits have no clock of their own, and count as uses all the same.
func TestIdleTimeBeginsWithTheLastDeposit(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		for range 600 {
			b.Deposit(req)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(interval + spread) // for the last report
		times := e.callTimes()
		time.Sleep(5 * interval)
		assert.GreaterOrEqual(t, len(times()), 2)
	})
}

func TestDepositAfterARestIsReportedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		b.Deposit(req)
		time.Sleep(rest)
		times := e.callTimes()
		b.Deposit(req)
		synctest.Wait()
		assert.Equal(t, []time.Duration{0}, times())
	})
}

func TestRefusedWithdrawBringsACallForwardOncePerInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Burst: -1}, get(t, host)
		b.Deposit(req)
		synctest.Wait()
		times := e.callTimes()
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			require.False(t, withdraw(b, req))
		}
		synctest.Wait()
		require.Equal(t, []time.Duration{100 * time.Millisecond}, times(), "at once, and once")
		time.Sleep(interval)
		require.Len(t, times(), 2)
		assert.GreaterOrEqual(t, times()[1], 100*time.Millisecond+interval)
		assert.LessOrEqual(t, times()[1], 100*time.Millisecond+interval+spread)
		withdraw(b, req)
		synctest.Wait()
		assert.Len(t, times(), 3, "a further Interval has begun")
	})
}

// A process reports what the view has granted, before it spends the view for an Interval.
func TestGrantedWithdrawBringsACallForward(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 10 * time.Second} {
		t.Run(interval.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				b, req := &redisbudget.Bucket{Client: e.client(t), Interval: interval, Burst: 1000}, get(t, host)
				b.Deposit(req)
				synctest.Wait()
				calls := e.record()
				for range 7 {
					require.True(t, withdraw(b, req))
					synctest.Wait()
				}
				pause := interval / 20
				time.Sleep(10 * pause)
				var at []time.Duration
				withdrawals := 0.0
				for _, c := range calls() {
					at = append(at, c.at)
					withdrawals += c.withdrawals
				}
				assert.Equal(t, []time.Duration{0, 0, 0, 0, pause}, at, "four at once")
				assert.Equal(t, 7.0, withdrawals)
				require.True(t, withdraw(b, req))
				synctest.Wait()
				assert.Equal(t, 10*pause, calls()[5].at, "at once after a pause")
			})
		})
	}
}

func TestWithdrawBringsACallForwardWhileCallsFail(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		b.Deposit(req)
		time.Sleep(rest)
		e.refuse.Store(true)
		times := e.callTimes()
		b.Deposit(req)
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		require.True(t, withdraw(b, req), "by the own bucket")
		assert.Equal(t, []time.Duration{0, 100 * time.Millisecond}, times())
	})
}

// A server that fails is not asked again at once for what was granted meanwhile.
func TestCallThatFailsIsFollowedByTheNextRegularOne(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		b.Deposit(req)
		time.Sleep(rest)
		e.refuse.Store(true)
		e.delay.Store(int64(trip))
		times := e.callTimes()
		b.Deposit(req)
		time.Sleep(trip / 2)
		require.True(t, withdraw(b, req))
		time.Sleep(interval + spread + trip)
		require.Len(t, times(), 2)
		assert.GreaterOrEqual(t, times()[1], trip+interval)
	})
}

func TestCallsAreAsFewAsGrantedRetriesAndTwoInAnInterval(t *testing.T) {
	for name, c := range map[string]struct {
		burst int
		most  int // calls in an Interval
	}{
		"nothing is granted": {-1, 2},
		"all is granted":     {1e6, 4 + 20 + 2},
	} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				inBubble(t, func(t *testing.T, e *engine) {
					rng := rand.New(rand.NewPCG(seed, 1))
					b, req := &redisbudget.Bucket{Client: e.client(t), Burst: c.burst, Ratio: -1}, get(t, host)
					b.Deposit(req)
					synctest.Wait()
					times := e.callTimes()
					start, granted := time.Now(), 0
					mean := time.Duration(1+seed*seed*seed) * time.Millisecond
					for range 2000 {
						time.Sleep(time.Duration(rng.ExpFloat64() * float64(mean)))
						switch rng.IntN(10) {
						case 0, 1, 2:
							if withdraw(b, req) {
								granted++
							}
						case 3:
							b.Refund(req, 1)
						default:
							b.Deposit(req)
						}
					}
					calls, intervals := times(), int(time.Since(start)/interval)+1
					assert.GreaterOrEqual(t, len(calls), intervals*4/5)
					assert.LessOrEqual(t, len(calls), 2*intervals+granted)
					for i := range calls[min(c.most, len(calls)):] {
						require.GreaterOrEqual(t, calls[i+c.most]-calls[i], interval)
					}
				})
			})
		}
	}
}

func TestOneCallAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		var under, most, calls atomic.Int32
		e.onCall(func(*server.Peer, []string) bool {
			most.Store(max(most.Load(), under.Add(1)))
			calls.Add(1)
			time.Sleep(2500 * time.Millisecond) // less than the client's patience
			under.Add(-1)
			return false
		})
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		for range 200 {
			withdraw(b, req)
			b.Deposit(req)
			time.Sleep(100 * time.Millisecond)
		}
		assert.EqualValues(t, 1, most.Load())
		assert.InDelta(t, 9, calls.Load(), 1)
		time.Sleep(10 * time.Second)
	})
}

// A deposit that is made while a call is on its way is reported by the next one.
func TestDepositDuringACallIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		e.onCall(func(*server.Peer, []string) bool { time.Sleep(time.Second); return false })
		b, req := &redisbudget.Bucket{Client: e.client(t), Burst: -1, Window: time.Hour, Ratio: 1}, get(t, host)
		deposit(b, req, 1000)
		time.Sleep(10 * time.Millisecond)
		deposit(b, req, 500)
		time.Sleep(10 * time.Second)
		assert.InDelta(t, 1500, e.stored(t, "tokens"), 5, "less what the capacity has faded in seconds of an hour")
	})
}

func TestAnyIntervalGrantsTheBalanceOnce(t *testing.T) {
	for _, interval := range []time.Duration{1, 19, time.Microsecond, time.Millisecond, time.Hour, math.MaxInt64} {
		t.Run(interval.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				b, req := &redisbudget.Bucket{Client: e.client(t), Interval: interval, Burst: 50}, get(t, host)
				e.delay.Store(int64(time.Millisecond)) // or an Interval of 1 ns would not end
				b.Deposit(req)
				time.Sleep(10 * time.Millisecond)
				times := e.callTimes()
				granted := 0
				for range 100 {
					if withdraw(b, req) {
						granted++
					}
					time.Sleep(5 * time.Millisecond)
				}
				assert.Equal(t, 50, granted)
				if interval >= time.Hour {
					assert.Len(t, times(), 4+1, "four at once, and one for what is refused")
				}
				require.NoError(t, b.Close())
				assert.InDelta(t, 0, e.stored(t, "tokens"), 1e-6)
			})
		})
	}
}

func TestEndlessIntervalIsNoBusyLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Interval: math.MaxInt64}, get(t, host)
		e.delay.Store(int64(time.Millisecond))
		times := e.callTimes()
		b.Deposit(req)
		time.Sleep(time.Hour)
		assert.Len(t, times(), 1)
		withdraw(b, req)
		time.Sleep(time.Hour)
		assert.Len(t, times(), 2)
	})
}
