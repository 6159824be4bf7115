package redisbudget_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// failures are ways in which a call fails, and which of 3 deposits are reported again.
var failures = map[string]struct {
	set      func(e *engine, failing bool)
	deposits float64
}{
	"an error of the server": {func(e *engine, failing bool) { e.refuse.Store(failing) }, 3},
	"an answer that is lost": {func(e *engine, failing bool) { e.mute.Store(failing) }, 0},
}

func TestFailedCallIsReportedAgainAsFarAsThatIsSafe(t *testing.T) {
	for name, failure := range failures {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				b, req := &redisbudget.Bucket{Client: e.client(t), Window: 1000 * time.Hour, Burst: 100}, get(t, host)
				noCallAtOnce(b, req)
				failure.set(e, true)
				calls := e.record()
				deposit(b, req, 3)
				require.Equal(t, 2, granted(b, req, 2))
				time.Sleep(pause)
				require.Len(t, calls(), 1, "sent once")
				require.Equal(t, []float64{3, 2}, []float64{calls()[0].deposits, calls()[0].withdrawals})
				failure.set(e, false)
				time.Sleep(interval + spread)
				require.Len(t, calls(), 2)
				assert.InDelta(t, failure.deposits, calls()[1].deposits, 1e-5)
				assert.InDelta(t, failure.deposits/2, calls()[1].earned, 1e-5)
				assert.InDelta(t, 2, calls()[1].withdrawals, 1e-5)
			})
		})
	}
}

func TestRefundThatMayBeBookedIsNotReportedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Burst: 100}, get(t, host)
		require.Equal(t, 1, granted(b, req, 1))
		synctest.Wait()
		require.Equal(t, 9, granted(b, req, 9))
		time.Sleep(rest)
		require.Equal(t, 90.0, e.stored(t, "tokens"))
		e.mute.Store(true)
		for range 5 {
			b.Refund(req, 1)
		}
		synctest.Wait()
		e.mute.Store(false)
		time.Sleep(rest)
		assert.Equal(t, 95.0, e.stored(t, "tokens"))
	})
}

func TestFailedDialLosesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		e.down.Store(true)
		b, req := &redisbudget.Bucket{Client: e.client(t), Window: 1000 * time.Hour, Burst: 100}, get(t, host)
		require.True(t, withdraw(b, req))
		deposit(b, req, 7)
		synctest.Wait()
		e.down.Store(false)
		calls := e.record()
		time.Sleep(interval + spread)
		require.Len(t, calls(), 1)
		assert.InDelta(t, 7, calls()[0].deposits, 1e-5)
		assert.InDelta(t, 1, calls()[0].withdrawals, 1e-5)
	})
}

// An outage of the server of ten Windows leaves one Window's worth.
func TestWhatCannotBeReportedFadesWithTheWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 1, Burst: 10000}, get(t, host)
		e.refuse.Store(true)
		for i := range 10 * 20 * 100 { // 100 a second
			b.Deposit(req)
			if i%10 == 0 {
				require.True(t, withdraw(b, req))
			}
			time.Sleep(10 * time.Millisecond)
		}
		e.refuse.Store(false)
		calls := e.record()
		time.Sleep(2 * interval)
		require.NotEmpty(t, calls())
		assert.InEpsilon(t, 100*window.Seconds(), calls()[0].deposits, 0.1)
		assert.LessOrEqual(t, calls()[0].deposits, 100*window.Seconds())
		assert.InEpsilon(t, calls()[0].deposits, calls()[0].earned, 1e-9)
		assert.InEpsilon(t, 10*window.Seconds(), calls()[0].withdrawals, 0.1)
		assert.LessOrEqual(t, calls()[0].withdrawals, 10*window.Seconds())
	})
}

func TestWhatIsDoneDuringALongCallFadesWhenTheCallFails(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		const window = 500 * time.Millisecond
		b, req := &redisbudget.Bucket{Client: e.client(t), Window: window, Ratio: 1, Burst: 1000}, get(t, host)
		e.refuse.Store(true)
		e.delay.Store(int64(2900 * time.Millisecond)) // less than the client's read timeout
		calls := e.record()
		b.Deposit(req)
		synctest.Wait()
		e.delay.Store(int64(500 * time.Millisecond))
		for range 289 { // 100 a second
			time.Sleep(10 * time.Millisecond)
			b.Deposit(req)
			withdraw(b, req)
		}
		time.Sleep(200 * time.Millisecond)
		e.refuse.Store(false)
		time.Sleep(interval)
		require.Len(t, calls(), 2)
		assert.LessOrEqual(t, calls()[1].deposits, 100*window.Seconds())
		assert.LessOrEqual(t, calls()[1].withdrawals, 100*window.Seconds())
		assert.Greater(t, calls()[1].deposits, 80*window.Seconds())
	})
}

// A success that is no longer reported has earned nothing either.
func TestWhatFadedSuccessesHaveEarnedIsDroppedWithThem(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		e.refuse.Store(true)
		for range 10 {
			b.Deposit(req)
			time.Sleep(2 * window)
		}
		e.refuse.Store(false)
		calls := e.record()
		deposit(b, req, 4)
		time.Sleep(2 * interval)
		require.NotEmpty(t, calls())
		assert.Positive(t, calls()[0].deposits)
		assert.InEpsilon(t, calls()[0].deposits/2, calls()[0].earned, 1e-9)
	})
}

// When there is nothing left to report, the process goes on asking as an idle one does.
func TestServerIsAskedAgainAfterAllHasFaded(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		e.refuse.Store(true)
		require.True(t, withdraw(b, req))
		time.Sleep(3 * window)
		require.Zero(t, b.Status(req).Tokens, "the own bucket decides")
		e.refuse.Store(false)
		time.Sleep(5 * window)
		assert.Equal(t, 1.0, b.Status(req).Tokens, "a view does, and it is old")
	})
}

func TestProcessWithoutTrafficStopsCallingAServerThatIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		e.refuse.Store(true)
		calls := e.record()
		deposit(b, req, 100_000)
		granted(b, req, 10)
		time.Sleep(20 * window)
		made := len(calls())
		assert.Greater(t, made, 100)
		time.Sleep(24 * time.Hour)
		assert.Len(t, calls(), made)
	})
}
