package redisbudget

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// someAccount is an account that would make calls.
func someAccount() *account {
	b := new(Bucket)
	b.once.Do(b.init)
	return newAccount(b, "shop.example", time.Now())
}

// A Withdraw, a Refund or a Deposit may have found the account just before it is dropped.
func TestDroppedAccountTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := someAccount()
		time.Sleep(time.Hour)
		require.True(t, a.drop(time.Now()))
		assert.False(t, a.update(func(*account, time.Time) { t.Error("it is used") }))
		assert.False(t, a.due.Load(), "a deposit looks further")
		assert.False(t, a.noteDeposit())
	})
}

func TestAccountWithADepositThatNobodyHasSeenIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := someAccount()
		time.Sleep(time.Hour)
		a.deposits.Add(1)
		assert.False(t, a.drop(time.Now()))
	})
}

// A deposit that is counted while the timer is set may have seen that a call was due.
func TestDepositIsSeenWhileTheTimerIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := someAccount()
		now := time.Now()
		a.began, a.used = now, now
		a.deposits.Add(1)
		a.arm(now)
		assert.True(t, a.due.Load())
		at, ok := a.next(now)
		assert.True(t, ok)
		assert.Equal(t, now.Add(time.Second), at)
		a.stopTimer()
	})
}

// The host of a request is a part of its URL, and the URL may be long.
func TestAccountDoesNotKeepTheTextOfAKeyAlive(t *testing.T) {
	b := new(Bucket)
	key := strings.Repeat("x", 100)[:10]
	b.account(key)
	b.accounts.Range(func(kept, _ any) bool {
		assert.Equal(t, key, kept)
		assert.NotSame(t, unsafe.StringData(key), unsafe.StringData(kept.(string)))
		return true
	})
}

// What it has to report, or has sent, would be lost.
func TestAccountWhoseReportIsNotBookedIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := someAccount()
		a.unreported.withdrawals = 1
		time.Sleep(time.Hour)
		assert.False(t, a.drop(time.Now()))
		a.begin(time.Now())
		time.Sleep(time.Hour)
		assert.False(t, a.drop(time.Now()))
		assert.True(t, a.due.Load(), "deposits need no lock")
	})
}

// Without reports, only a fold sees the deposits of a key.
func TestUnsharedAccountWithRecentDepositsIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := someAccount()
		a.silence()
		time.Sleep(time.Hour)
		a.deposits.Add(1)
		assert.False(t, a.drop(time.Now()))
		time.Sleep(a.settings.retire)
		assert.True(t, a.drop(time.Now()))
	})
}

func TestUnsharedAccountThatWasAskedForRetriesIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := someAccount()
		a.silence()
		for range 5 {
			require.True(t, a.update(func(a *account, now time.Time) { a.withdraw(now, terms{price: 1}) }))
		}
		time.Sleep(a.settings.retire)
		assert.True(t, a.drop(time.Now()))
	})
}

func TestAccountThatEndsStopsItsTimer(t *testing.T) {
	for name, end := range map[string]func(*account){
		"close": func(a *account) { require.False(t, a.close()) },
		"drop":  func(a *account) { require.True(t, a.drop(time.Now())) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := someAccount()
				a.timer = time.AfterFunc(time.Hour, a.call)
				end(a)
				assert.False(t, a.timer.Stop())
			})
		})
	}
}

// A timer may have fired before its time was changed, or before the account has ended.
func TestCallThatIsNotDueDoesNotBegin(t *testing.T) {
	for name, change := range map[string]func(a *account, now time.Time){
		"it was just made": func(a *account, now time.Time) { a.began, a.used = now, now },
		"it is under way":  func(a *account, _ time.Time) { a.calling = make(chan struct{}) },
		"closed":           func(a *account, _ time.Time) { a.close() },
		"dropped":          func(a *account, now time.Time) { require.True(t, a.drop(now)) },
		"forgotten": func(a *account, now time.Time) {
			a.used, a.began = now.Add(-11*a.settings.keep), now.Add(-10*a.settings.keep)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := someAccount()
				time.Sleep(time.Hour)
				change(a, time.Now())
				began := a.began
				_, begins := a.beginDue()
				assert.False(t, begins)
				assert.Equal(t, began, a.began)
			})
		})
	}
}

func TestAccountThatReportsNothingMoreSchedulesNothing(t *testing.T) {
	for name, change := range map[string]func(*account){
		"silent":              (*account).silence,
		"a call is under way": func(a *account) { a.begin(time.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := someAccount()
				change(a)
				a.arm(time.Now())
				assert.Nil(t, a.timer)
				assert.True(t, a.due.Load(), "deposits need no lock")
			})
		})
	}
}

func TestDepositThatACallWillReportIsOnlyCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := someAccount()
		b, req := a.bucket, new(http.Request)
		b.accounts.Store("", a)
		a.begin(time.Now())
		for range foldEvery - 1 {
			b.Deposit(req)
		}
		assert.Zero(t, a.folded)
		b.Deposit(req)
		assert.EqualValues(t, foldEvery, a.folded, "the call may take long")
	})
}

// The successes are of the beginning, and not of all the time that the call takes.
func TestOwnBucketFollowsTheLastWindowDuringACallThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := someAccount()
		a.begin(time.Now())
		for range 1000 { // 100 a second
			if a.deposits.Add(1)%foldEvery == 0 {
				a.tryFold()
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Minute)
		a.fold(time.Now())
		assert.Less(t, a.own.rate, 0.1)
	})
}

// The process asks again as soon as it may, and does not wait for the pause between calls that granted
// Withdraws bring forward.
func TestRefusedWithdrawIsNotForgottenWhenAnotherIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, now := someAccount(), time.Now()
		a.begin(now)
		for range callsAtOnce {
			a.limiter.take(now, a.settings.interval)
		}
		a.own.tokens = 0
		_, granted := a.withdraw(now, terms{price: 1})
		require.False(t, granted)
		a.own.tokens = 1
		_, granted = a.withdraw(now, terms{price: 1})
		require.True(t, granted)
		at, ok := a.next(now)
		assert.True(t, ok)
		assert.Equal(t, now, at)
	})
}

func TestDepositIsReportedAtOnceAnIntervalAfterTheLastCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, now := someAccount(), time.Now()
		a.begin(now)
		a.spread = a.settings.interval / 5
		a.unreported.deposits = 1
		for after, want := range map[time.Duration]time.Time{
			a.settings.interval - 1: now.Add(a.settings.interval + a.spread),
			a.settings.interval:     now.Add(a.settings.interval),
		} {
			at, ok := a.next(now.Add(after))
			assert.True(t, ok)
			assert.Equal(t, want, at, after)
		}
	})
}

// Otherwise a refused Withdraw beside each granted one would lift the limit of the calls.
func TestCallIsChargedToTheGrantedWithdrawIfARefusedOneHasHadItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, now := someAccount(), time.Now()
		a.refused, a.granted = true, true
		a.begin(now)
		a.refused = true
		a.begin(now) // brought forward
		require.Equal(t, now, a.brought)
		paid := a.limiter.paid
		time.Sleep(time.Millisecond)
		a.refused, a.granted = true, true
		a.begin(time.Now())
		assert.Equal(t, now, a.brought)
		assert.True(t, a.limiter.paid.After(paid))
	})
}

// Both what was sent and what came since the call began fade once for each time that passes.
func TestAmountsFadeOnceWhileCallsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bucket{Interval: time.Minute}
		b.once.Do(b.init)
		a := newAccount(b, "shop.example", time.Now())
		a.unreported.deposits = 1000
		want := 1000.0
		for range 2 {
			sent := a.begin(time.Now())
			time.Sleep(4 * time.Second)
			a.deposits.Add(100)
			_ = a.end(&call{a: a, sent: sent, err: redis.ErrClosed})
			const x = 4.0 / 20 // of the Window
			want = want*math.Exp(-x) + 100*(1-math.Exp(-x))/x
			assert.InDelta(t, want, a.unreported.deposits, 1e-6)
		}
	})
}

// While calls fail, what is not reported fades. A refund cancels what is left of its withdrawal, and
// grants nothing beyond.
func TestRefundOfAFadedWithdrawalGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := someAccount()
		a.failing = true
		a.book(1)
		time.Sleep(a.settings.fade)
		a.fold(time.Now())
		require.InDelta(t, 1/math.E, a.unreported.withdrawals, 1e-9)
		a.refund(1)
		assert.Zero(t, a.unreported.withdrawals)
		a.refund(1)
		assert.Zero(t, a.unreported.withdrawals, "it was reported before the calls failed, or has faded")
		a.unreported.withdrawals = -1 // of a call that was not booked
		a.refund(1)
		assert.Equal(t, -1.0, a.unreported.withdrawals)
		a.failing = false
		a.refund(1)
		assert.Equal(t, -2.0, a.unreported.withdrawals)
	})
}

// A capacity that would now be the Burst or less shows no rate of the fleet.
func TestShareIsNotKnownAfterTheRateHasFaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, now := someAccount(), time.Now()
		a.view = view{known: true, capacity: 25, asked: now}
		assert.InDelta(t, 1.0/25, a.share(now), 1e-9)
		assert.Equal(t, 1.0, a.share(now.Add(9*time.Second)))
	})
}

// The answer after it doubles what the process may spend, whatever came between.
func TestViewRemembersThatTheShareHasRefused(t *testing.T) {
	v := view{known: true, tokens: 100, capacity: 100}
	v.take(1)
	require.False(t, v.withinShare(0.01, 1))
	v.take(-1)
	require.True(t, v.withinShare(0.01, 1))
	after := view{known: true, tokens: 100, capacity: 100}
	after.follow(&v, 0)
	assert.Equal(t, 2.0, after.advance)
}
