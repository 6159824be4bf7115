package redisbudget_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// storm is a fleet whose requests all fail after calm traffic.
type storm struct {
	processes int
	successes int           // of each process in a second, before
	calm      time.Duration // how long they succeed
	retry     time.Duration // each process asks for a retry once in this time, then
	trip      time.Duration // of a call
}

// lasts is how long the storm lasts.
func (s storm) lasts() time.Duration { return max(2*s.retry, interval) }

// run returns the balance before the storm, what the fleet was granted, and the calls during
// the storm.
func (s storm) run(t *testing.T) (balance, granted float64, calls int) {
	synctest.Test(t, func(t *testing.T) {
		f := startFleet(t, s.processes, nil)
		f.each(time.Second, s.calm, func(_ int, b *redisbudget.Bucket) { deposit(b, f.req, s.successes) })
		time.Sleep(2 * interval)
		balance = f.balance(t)
		times := f.engine.callTimes()
		f.engine.delay.Store(int64(s.trip))
		f.each(s.retry, s.lasts(), func(_ int, b *redisbudget.Bucket) {
			if withdraw(b, f.req) {
				granted++
			}
		})
		calls = len(times())
		time.Sleep(2 * interval)
		require.Less(t, f.balance(t), 1.0, "the balance is spent")
	})
	return balance, granted, calls
}

func TestFleetInAStormIsGrantedAtMostAMultipleOfItsBalance(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		storm
		most float64 // times the balance
	}{
		"a near server":         {storm{100, 2, 30 * time.Second, 10 * ms, ms}, 2},
		"a distant server":      {storm{100, 2, 30 * time.Second, 10 * ms, 20 * ms}, 2},
		"a slow server":         {storm{100, 2, 30 * time.Second, 10 * ms, 45 * ms}, 2},
		"a large balance":       {storm{100, 11, 40 * time.Second, 10 * ms, 20 * ms}, 2},
		"400 processes at 10/s": {storm{400, 1, 20 * time.Second, 100 * ms, 20 * ms}, 2},
		"400 processes at 1/s":  {storm{400, 1, 20 * time.Second, time.Second, 20 * ms}, 2},
		"a single process":      {storm{1, 100, 20 * time.Second, 5 * ms, 20 * ms}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			balance, granted, calls := c.run(t)
			t.Logf("granted %.0f of %.0f: %.2f times, %d calls", granted, balance, granted/balance, calls)
			// The capacity, since the call that stored the balance, and while the balance is spent.
			faded := (*engine)(nil).decayed(interval + spread + c.lasts())
			assert.GreaterOrEqual(t, granted, balance*faded-1)
			assert.LessOrEqual(t, granted, c.most*balance)
			regular := 2 * (1 + int(c.lasts()/interval)) * c.processes
			assert.LessOrEqual(t, float64(calls), float64(regular)+granted)
		})
	}
}
