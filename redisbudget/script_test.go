package redisbudget_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

func TestScriptIsSentAlongWhenTheServerDoesNotKnowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startEngine(t)
		b, req := &redisbudget.Bucket{Client: e.client(t)}, get(t, host)
		calls := e.record()
		b.Deposit(req)
		assert.Len(t, calls(), 2, "EVALSHA and EVAL, in one call")
		assert.Equal(t, 20.0, b.Status(req).Tokens)
		assert.Equal(t, 1/window.Seconds(), e.stored(t, "rate"), "booked once")
		withdraw(b, req)
		assert.Len(t, calls(), 3)
	})
}

func TestBalanceExpiresTenWindowsAfterItsLastUse(t *testing.T) {
	for name, c := range map[string]struct {
		window, interval, want time.Duration
	}{
		"ten Windows":            {0, 0, 200 * time.Second},
		"ten Intervals":          {time.Second, 3 * time.Second, 30 * time.Second},
		"a negative Window":      {-1, 0, 200 * time.Second},
		"less than ten times 1s": {1, 1, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *engine) {
				b := &redisbudget.Bucket{Client: e.client(t), Window: c.window, Interval: c.interval}
				b.Deposit(get(t, host))
				synctest.Wait()
				assert.Equal(t, c.want, e.TTL(storedKey))
				require.NoError(t, b.Close())
			})
		})
	}
}

func TestBalanceOfAnotherTypeIsLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		require.NoError(t, e.Set(storedKey, "mine"))
		var got errs
		b, req := &redisbudget.Bucket{Client: e.client(t), OnError: got.add}, get(t, host)
		assert.Equal(t, 1, granted(b, req, 5))
		require.Len(t, got.all(), 1)
		assert.ErrorContains(t, got.all()[0], "WRONGTYPE")
		text, err := e.Get(storedKey)
		require.NoError(t, err)
		assert.Equal(t, "mine", text)
		e.Del(storedKey)
		time.Sleep(2 * interval)
		assert.Equal(t, e.stored(t, "tokens"), b.Status(req).Tokens)
	})
}

func TestFieldThatIsNoFiniteNumberCountsAsMissing(t *testing.T) {
	for _, text := range []string{"", "many", "nan", "-nan", "inf", "-inf", "1e999"} {
		for _, field := range []string{"tokens", "rate", "at"} {
			t.Run(fmt.Sprintf("%s %q", field, text), func(t *testing.T) {
				inBubble(t, func(t *testing.T, e *engine) {
					now := strconv.FormatInt(time.Now().Unix(), 10)
					e.HSet(storedKey, "tokens", "3", "rate", "100", "at", now)
					e.HSet(storedKey, field, text)
					b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 0.1}, get(t, host)
					b.Deposit(req)
					synctest.Wait()
					want := map[string]float64{"tokens": 3.1, "rate": 100.05}
					switch field {
					case "tokens":
						want[field] = 20.1
					case "rate":
						want[field] = 0.05
					}
					assert.InDelta(t, want["tokens"], e.stored(t, "tokens"), 1e-9)
					assert.InDelta(t, want["rate"], e.stored(t, "rate"), 1e-9)
					assert.InDelta(t, want["tokens"], b.Status(req).Tokens, 1e-9)
				})
			})
		}
	}
}

// A number may be written in a way that not every Lua reads, and would then count as missing.
func TestTinyBalanceStaysTiny(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 1e-12}, get(t, host)
		e.HSet(storedKey, "tokens", "1.000000003", "rate", "0")
		deposit(b, req, 1)
		time.Sleep(3 * interval)
		require.True(t, withdraw(b, req))
		time.Sleep(3 * interval)
		deposit(b, req, 1)
		time.Sleep(3 * interval)
		assert.InDelta(t, 3e-9, e.stored(t, "tokens"), 1e-9)
	})
}

// Whatever somebody else wrote, the balance is finite and within the capacity.
func TestAbsurdFieldsHeal(t *testing.T) {
	for _, tokens := range []string{"1e308", "-1e308", "0x10", "3"} {
		for _, rate := range []string{"1e308", "-1e308", "-5", "1e-320"} {
			for _, at := range []string{"-1e308", "0", "1e308"} {
				t.Run(tokens+" "+rate+" "+at, func(t *testing.T) {
					inBubble(t, func(t *testing.T, e *engine) {
						e.HSet(storedKey, "tokens", tokens, "rate", rate, "at", at)
						var got errs
						b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 100, OnError: got.add}, get(t, host)
						b.Deposit(req)
						time.Sleep(time.Hour)
						b.Deposit(req)
						synctest.Wait()
						assert.Empty(t, got.all())
						assert.GreaterOrEqual(t, e.stored(t, "tokens"), -20.0)
						assert.LessOrEqual(t, e.stored(t, "tokens"), 20.0)
						assert.GreaterOrEqual(t, e.stored(t, "rate"), 0.0)
						assert.LessOrEqual(t, e.stored(t, "rate"), 0.1)
					})
				})
			}
		}
	}
}

// A server whose clock is set back by an hour takes it that no time has passed.
func TestClockThatIsSetBackCostsOneCall(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b, req := &redisbudget.Bucket{Client: e.client(t), Ratio: 1}, get(t, host)
		deposit(b, req, 2000)
		time.Sleep(rest)
		before := e.stored(t, "rate")
		e.SetTime(time.Now().Add(-time.Hour))
		withdraw(b, req)
		synctest.Wait()
		assert.Equal(t, before, e.stored(t, "rate"))
		e.SetTime(time.Now().Add(-time.Hour + window))
		withdraw(b, req)
		time.Sleep(2 * interval)
		assert.InEpsilon(t, before*e.decayed(window), e.stored(t, "rate"), 1e-6)
	})
}

func TestSettingsOfEachProcessHoldForItsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		small := &redisbudget.Bucket{Client: e.client(t), Burst: 5}
		large := &redisbudget.Bucket{Client: e.client(t), Burst: 50}
		req := get(t, host)
		large.Deposit(req)
		synctest.Wait()
		assert.Equal(t, 50.0, large.Status(req).Tokens)
		small.Deposit(req)
		synctest.Wait()
		assert.Equal(t, 5.0, small.Status(req).Tokens)
		withdraw(large, req)
		synctest.Wait()
		assert.Equal(t, 4.0, large.Status(req).Tokens, "of the same balance")
	})
}

// No time of a process is sent: its clock may be wrong.
func TestCallSendsSettingsAndAmounts(t *testing.T) {
	inBubble(t, func(t *testing.T, e *engine) {
		b := &redisbudget.Bucket{Client: e.client(t), Ratio: 1.0 / 3, HealthyRatio: 0.75, Burst: 7, Window: 1500 * time.Millisecond}
		req := get(t, host)
		noCallAtOnce(b, req)
		var args []string
		e.onCall(func(_ *server.Peer, a []string) bool { args = a; return false })
		deposit(b, req, 2)
		withdraw(b, req)
		time.Sleep(pause)
		synctest.Wait()
		require.Len(t, args, 10)
		assert.Equal(t, []string{"1", storedKey, "2", "1.5", "1", "0.33333333333333331", "7", "1.5", "15000"}, args[1:])
	})
}
