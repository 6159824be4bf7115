package redisbudget_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

func TestFleetInAnOutageIsGrantedItsBalanceAndARoundTripsWithdrawals(t *testing.T) {
	for name, c := range map[string]struct {
		success time.Duration // every so often, of each process
		retry   time.Duration
		called  bool // each process has reported a retry just before
	}{
		"few retries":                {success: time.Second, retry: 250 * time.Millisecond},
		"many, after a call":         {success: time.Second, retry: 10 * time.Millisecond, called: true},
		"many, with a small balance": {success: 20 * time.Second, retry: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startFleet(t, 50, nil)
				f.succeed(c.success, 30*time.Second)
				if c.called {
					f.each(roundTrip, roundTrip, func(_ int, b *redisbudget.Bucket) { withdraw(b, f.req) })
					time.Sleep(2 * roundTrip)
				}
				balance, beyond := f.balance(t), f.beyond(c.retry)
				require.GreaterOrEqual(t, balance, 20.0)

				granted, start := 0.0, time.Now()
				var spent, last time.Duration
				f.each(c.retry, 5*time.Second/2, func(_ int, b *redisbudget.Bucket) {
					if !withdraw(b, f.req) {
						return
					}
					granted++
					last = time.Since(start)
					if granted <= balance {
						spent = last
					}
				})
				t.Logf("granted %.0f, of a balance of %.0f and at most %.0f beyond, for %v", granted, balance, beyond, last)
				assert.GreaterOrEqual(t, granted, balance-1)
				assert.LessOrEqual(t, granted, balance+beyond)
				assert.LessOrEqual(t, last, spent+2*(interval+roundTrip), "all have heard that it is spent")
			})
		})
	}
}

func TestFleetIsNeverGrantedMoreThanItEarnsAndTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const request = 500 * time.Millisecond // every so often, of each process
		f := startFleet(t, 40, nil)
		rng := rand.New(rand.NewPCG(1, 1))
		// One by each own bucket at the start, and then what is withdrawn unheard.
		bound := 40 + 40*unheard(request)
		granted, earned, most := 0.0, 20.0, 0.0
		for _, failing := range []float64{1, 0, 0.5, 1, 0, 0.9, 0.2} {
			f.each(request, 10*time.Second, func(_ int, b *redisbudget.Bucket) {
				if rng.Float64() >= failing {
					b.Deposit(f.req)
					earned += 0.1
					return
				}
				if withdraw(b, f.req) {
					granted++
				}
				most = max(most, granted-earned)
			})
		}
		t.Logf("granted %.0f, earned %.0f, at most %.0f more, of %.0f", granted, earned, most, bound)
		assert.LessOrEqual(t, most, bound)
		assert.Greater(t, granted, earned/2)
	})
}

func TestIdleFleetIsGrantedAtMostATokenMoreForEachProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFleet(t, 100, nil)
		f.succeed(roundTrip, roundTrip)
		time.Sleep(time.Minute) // an idle process has an old view
		const balance = 20.0
		require.Equal(t, balance, f.balance(t))
		granted := 0.0
		retry := func(_ int, b *redisbudget.Bucket) {
			if withdraw(b, f.req) {
				granted++
			}
		}
		f.each(10*time.Second, 10*time.Second, retry)
		assert.LessOrEqual(t, granted, balance+100)
		assert.GreaterOrEqual(t, granted, balance)
		granted = 0
		f.each(10*time.Second, 20*time.Second, retry)
		assert.Zero(t, granted, "all have heard that it is spent")
	})
}

func TestDebtOfAFleetIsBookedUpToTheCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFleet(t, 100, nil)
		f.succeed(roundTrip, roundTrip)
		f.each(roundTrip/4, roundTrip/4, func(i int, b *redisbudget.Bucket) {
			require.True(t, withdraw(b, f.req), "process %d has not heard of the others", i)
		})
		time.Sleep(2 * interval)
		require.Equal(t, -20.0, f.balance(t))

		earner, asker := f.processes[0], f.processes[1]
		for success := range 210 {
			require.False(t, withdraw(asker, f.req), "after %d successes", success)
			time.Sleep(interval) // so that this answer is without the next success
			earner.Deposit(f.req)
			time.Sleep(interval)
		}
		time.Sleep(5 * interval) // until the asker has asked once more
		assert.True(t, withdraw(asker, f.req), "a debt of 20 and the token are earned")
	})
}

func TestOneProcessMaySpendTheWholeBalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFleet(t, 100, nil)
		f.succeed(time.Second, 30*time.Second)
		busy, granted := f.processes[7], 0.0
		view := busy.Status(f.req).Tokens
		for range 1000 {
			if withdraw(busy, f.req) {
				granted++
			}
			time.Sleep(time.Millisecond)
		}
		assert.Greater(t, granted, 100.0, "not a hundredth of it")
		assert.LessOrEqual(t, granted, view)
		time.Sleep(2 * interval)
		assert.Less(t, f.balance(t), 1.0, "all of it is booked")
	})
}

// Otherwise a fleet whose processes all fail at once would be granted each process's view.
func TestProcessMaySpendItsShareUntilTheNextAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFleet(t, 100, nil)
		f.each(time.Second, 30*time.Second, func(_ int, b *redisbudget.Bucket) { deposit(b, f.req, 2) })
		time.Sleep(2 * interval)
		one := f.processes[7]
		require.InDelta(t, 250, one.Status(f.req).Tokens, 49, "a hundredth of it is its share")
		require.True(t, withdraw(one, f.req), "within its share")
		time.Sleep(2 * roundTrip)
		assert.Equal(t, 2, granted(one, f.req, 50))
		time.Sleep(2 * roundTrip)
		for _, other := range f.processes[10:15] {
			require.Equal(t, 2, granted(other, f.req, 50))
		}
		time.Sleep(2 * roundTrip)
		assert.Equal(t, 5, granted(one, f.req, 50), "twice as much, since the others had spent nothing")
		time.Sleep(2 * roundTrip)
		assert.Equal(t, 2, granted(one, f.req, 50), "the others have spent more than this process")
	})
}

// Its share stays the whole within 0.00012, although its own rate fades and the answer does not.
func TestLoneProcessMaySpendTheBalanceAtOnceAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFleet(t, 1, nil)
		alone := f.processes[0]
		f.each(10*time.Millisecond, 60*time.Second, func(_ int, b *redisbudget.Bucket) { deposit(b, f.req, 1) })
		for range 7 {
			time.Sleep(time.Second)
			balance := alone.Status(f.req).Tokens
			require.Greater(t, balance, 20.0)
			got := granted(alone, f.req, 1000)
			assert.LessOrEqual(t, got, int(balance))
			assert.GreaterOrEqual(t, got, int(0.9998*balance))
			for range got {
				alone.Refund(f.req, 1)
			}
		}
	})
}

func TestProcessWithFewSuccessesMaySpendATokenUntilTheNextAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFleet(t, 2, nil)
		busy, quiet := f.processes[0], f.processes[1]
		f.each(100*time.Millisecond, 30*time.Second, func(int, *redisbudget.Bucket) { deposit(busy, f.req, 1) })
		deposit(quiet, f.req, 1)
		time.Sleep(2 * interval)
		require.Greater(t, quiet.Status(f.req).Tokens, 20.0)
		assert.Equal(t, 1, granted(quiet, f.req, 50))
		quiet.Refund(f.req, 1)
		assert.Equal(t, 1, granted(quiet, f.req, 50), "the refund gives it back")
	})
}
