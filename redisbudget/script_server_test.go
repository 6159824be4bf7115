//go:build unix

package redisbudget_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// script returns the script that a Bucket sends.
func script(t *testing.T) (code string) {
	t.Helper()
	client := startEngine(t).client(t)
	client.AddHook(processHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "eval" {
			code = cmd.Args()[1].(string)
		}
		return next(ctx, cmd)
	}))
	b := &redisbudget.Bucket{Client: client}
	b.Deposit(get(t, host))
	require.NoError(t, b.Close())
	require.NotEmpty(t, code)
	return code
}

// A server computes with C's numbers, and the engine of other tests with Go's.
func TestTheScriptComputesTheSameOnAServerAndOnTheEngineOfTheseTests(t *testing.T) {
	s, e := startServer(t), startEngine(t)
	code, inMemory := script(t), e.client(t)
	texts := []string{
		"", "0", "-0", "1.5", "-3", "nan", "-nan", "inf", "-inf", "0x10", " 7 ", "text", "1,5",
		// The engine reads an exponent only after a point.
		"1.0e-7", "1.0e308", "-1.0e308", "1.0e400", "4.0e-320",
	}
	ages := []string{"", "0", "-1e12", "3600", "10", "0.001", "inf", "-inf", "nan", "text"}
	arguments := [][]any{
		{"0", "0", "0", "0.10000000000000001", "20", "20", 1000},
		{"7.5", "0.75", "2", "0.10000000000000001", "20", "20", 1000},
		{"3", "0", "-1", "0", "0", "0", 1000},
		{"1000000", "2000000", "3", "2", "5", "0.001", 1000},
		{"1", "2147483647", "1", "2147483647", "1", "1000000000", 1000},
		{"0.33333333333333331", "0.15", "0.10000000000000001", "0.29999999999999999", "3", "7", 1000},
	}
	rng := rand.New(rand.NewPCG(16, 16))
	pick := func(of []string) string { return of[rng.IntN(len(of))] }
	for range 1000 {
		hash := map[string]string{"tokens": pick(texts), "rate": pick(texts), "at": before(s.clock(t), pick(ages))}
		args := arguments[rng.IntN(len(arguments))]
		reply, stored := run(t, s.admin, code, hash, args)
		e.SetTime(clock(number(t, stored["at"])))
		reply2, stored2 := run(t, inMemory, code, hash, args)
		for _, field := range []string{"tokens", "rate", "at"} {
			requireSame(t, stored[field], stored2[field], "%v %v: %v", hash, args, field)
		}
		requireSame(t, reply[0], reply2[0], "%v %v: tokens", hash, args)
		requireSame(t, reply[1], reply2[1], "%v %v: capacity", hash, args)
		require.Equal(t, "", reply[2])
		require.Equal(t, "", reply2[2])
	}
}

// run stores a hash, runs the script, and returns the reply and what is stored then.
func run(
	t *testing.T, client *redis.Client, code string, hash map[string]string, args []any,
) (reply []string, stored map[string]string) {
	t.Helper()
	key := balance(host)
	_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Del(t.Context(), key)
		for field, value := range hash {
			if value != "" {
				p.HSet(t.Context(), key, field, value)
			}
		}
		return nil
	})
	require.NoError(t, err)
	reply, err = client.Eval(t.Context(), code, []string{key}, args...).StringSlice()
	require.NoError(t, err, "%v %v", hash, args)
	require.Len(t, reply, 3)
	stored, err = client.HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	return reply, stored
}

// requireSame compares numbers, except for the last digits: Go and C round an exponential
// differently.
func requireSame(t *testing.T, want, got string, format string, args ...any) {
	t.Helper()
	w, g := number(t, want), number(t, got)
	require.LessOrEqual(t, math.Abs(w-g), 1e-14*math.Abs(w), fmt.Sprintf(format, args...)+": "+want+", "+got)
}

// before returns the time an age ago, as the script stores it. An age that is no finite number
// stays as it is.
func before(now float64, age string) string {
	seconds, err := strconv.ParseFloat(age, 64)
	if err != nil || math.IsInf(seconds, 0) || math.IsNaN(seconds) {
		return age
	}
	return strconv.FormatFloat(now-seconds, 'g', 17, 64)
}

// clock returns a server's time.
func (s *redisServer) clock(t *testing.T) float64 {
	t.Helper()
	now, err := s.admin.Time(t.Context()).Result()
	require.NoError(t, err)
	return float64(now.UnixMicro()) / 1e6
}

// clock returns a time that the script has stored.
func clock(seconds float64) time.Time { return time.UnixMicro(int64(math.Round(seconds * 1e6))) }
