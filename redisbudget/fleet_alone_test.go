package redisbudget_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// stall has the engine answer no call until restore is called.
func (f *fleet) stall() (restore func()) {
	back := make(chan struct{})
	f.engine.onCall(func(*server.Peer, []string) bool { <-back; return true })
	return func() {
		f.engine.onCall(func(*server.Peer, []string) bool { time.Sleep(roundTrip); return false })
		close(back)
	}
}

func TestWithoutItsEngineEachProcessIsBoundedByItsOwnBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFleet(t, 100, nil)
		defer f.stall()()
		granted := make([]int, len(f.processes))
		retry := func(i int, b *redisbudget.Bucket) {
			if withdraw(b, f.req) {
				granted[i]++
			}
		}
		f.each(250*time.Millisecond, 30*time.Second, retry)
		for i, n := range granted {
			assert.Equal(t, 1, n, "process %d in an outage", i)
		}
		f.succeed(time.Second, 30*time.Second)
		f.each(250*time.Millisecond, 30*time.Second, retry)
		for i, n := range granted {
			// A success a second for 30 s: a rate of 0.78, which is room for 1.55 tokens.
			assert.Equal(t, 2, n, "process %d in two outages", i)
		}
	})
}

func TestBalanceDecidesAgainWhenTheEngineIsBackAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFleet(t, 300, nil)
		restore := f.stall()
		granted := 0.0
		retry := func(_ int, b *redisbudget.Bucket) {
			if withdraw(b, f.req) {
				granted++
			}
		}
		f.each(20*time.Second, time.Minute, retry)
		assert.Equal(t, 300.0, granted, "one by each own bucket")

		restore()
		f.succeed(10*time.Second, 20*time.Second)
		for _, b := range f.processes {
			assert.Greater(t, b.Status(f.req).Tokens, 2.0, "an own bucket has one")
		}

		balance, beyond := f.balance(t), f.beyond(2*time.Second)
		granted = 0
		f.each(2*time.Second, 6*time.Second, retry)
		t.Logf("granted %.0f, of a balance of %.0f and at most %.0f beyond", granted, balance, beyond)
		assert.LessOrEqual(t, granted, balance+beyond)
		assert.GreaterOrEqual(t, granted, balance-1)
	})
}
