package redisbudget

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// script books a call and returns the balance. It computes what retryhttp.TokenBucket
// computes, with the server's clock, which is the only clock that all processes share.
//
// Numbers are strings in both directions, because Redis cuts a Lua number in a reply to an
// integer. A clock that was set back gives 0 seconds once. Everything is computed before HSET,
// which is the only write that may be refused, so an error means that nothing was booked. An
// error of PEXPIRE comes later, so it is returned beside the balance.
const script = `
local function finite(s)
	local x = tonumber(s)
	if x and x == x and x > -math.huge and x < math.huge then return x end
end
local deposits, withdrawals = tonumber(ARGV[1]), tonumber(ARGV[2])
local ratio, burst, window = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local was = redis.call('HMGET', KEYS[1], 'tokens', 'rate', 'at')
local tokens, rate, at = finite(was[1]) or burst, finite(was[2]) or 0, finite(was[3]) or now

local capacity = burst
if window > 0 then
	local x, share = math.max(now - at, 0) / window, 1
	if x >= 1e-6 then share = (1 - math.exp(-x)) / x end
	rate = math.max(finite(rate * math.exp(-x) + share * deposits / window) or 0, 0)
	capacity = math.max(finite(ratio * rate * window) or 0, burst)
end
tokens = math.min(tokens + ratio * deposits, capacity) - withdrawals
tokens = math.floor(tokens * 1e9 + 0.5) / 1e9
tokens = math.min(math.max(tokens, -capacity), capacity)

local text = function(x) return string.format('%.17g', x) end
redis.call('HSET', KEYS[1], 'tokens', text(tokens), 'rate', text(rate), 'at', text(now))
local expiry = redis.pcall('PEXPIRE', KEYS[1], ARGV[6])
return {text(tokens), text(capacity), type(expiry) == 'table' and expiry.err or ''}
`

var scriptSHA = func() string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}()

// answer is the server's reply: the balance.
type answer struct {
	tokens, capacity float64
	expiry           string // why the balance does not expire; "" if it does
}

// send makes a call of the script. It sends the script's text only if the server does not know
// the script.
func (s *settings) send(ctx context.Context, client redis.UniversalClient, key string, u unreported) (answer, error) {
	reply, err := s.eval(ctx, client, "evalsha", scriptSHA, key, u)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = s.eval(ctx, client, "eval", script, key, u)
	}
	if err != nil {
		return answer{}, err
	}
	return parse(reply)
}

func (s *settings) eval(
	ctx context.Context, client redis.UniversalClient, command, code, key string, u unreported,
) ([]any, error) {
	cmd := unrepeated{redis.NewCmd(ctx, command, code, 1, key,
		text(u.deposits), text(u.withdrawals),
		text(s.ratio), text(s.burst), text(s.window.Seconds()), max(s.keep.Milliseconds(), 1))}
	if err := client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Slice()
}

// unrepeated is a command that go-redis does not send again after an error. The server may
// have booked the command, and would book it twice.
type unrepeated struct{ *redis.Cmd }

func (unrepeated) NoRetry() bool { return true }

func text(x float64) string { return strconv.FormatFloat(x, 'g', 17, 64) }

// parse reads an answer. It limits the balance to the capacity.
func parse(reply []any) (answer, error) {
	if len(reply) == 3 {
		tokens, ok1 := number(reply[0])
		capacity, ok2 := number(reply[1])
		expiry, ok3 := reply[2].(string)
		if ok1 && ok2 && ok3 && capacity >= 0 {
			return answer{min(max(tokens, -capacity), capacity), capacity, expiry}, nil
		}
	}
	return answer{}, errors.New("the answer is not a balance")
}

// number parses a finite number.
func number(v any) (float64, bool) {
	s, _ := v.(string)
	x, err := strconv.ParseFloat(s, 64)
	return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
}

// unbooked reports whether a call that failed with err was certainly not booked. Then the
// server answered with an error, or the call was not sent.
func unbooked(err error) bool {
	if _, ok := errors.AsType[redis.Error](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" ||
		errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}
