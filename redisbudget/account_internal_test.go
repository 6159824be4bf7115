package redisbudget

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

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
