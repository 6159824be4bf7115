package redisbudget

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math"
	"net"
	"slices"
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
local deposits, earned, withdrawals = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local ratio, burst, window = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
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
tokens = math.min(tokens + earned, capacity) - withdrawals
tokens = math.floor(tokens * 1e9 + 0.5) / 1e9
tokens = math.min(math.max(tokens, -capacity), capacity)

local text = function(x) return string.format('%.17g', x) end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.9f', tokens), 'rate', text(rate), 'at', text(now))
local expiry = redis.pcall('PEXPIRE', KEYS[1], ARGV[7])
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

// send makes calls of the script. It sends the script's text only if a server does not know the
// script.
func (s *settings) send(client redis.UniversalClient, batch []*call) {
	s.eval(client, "evalsha", scriptSHA, batch)
	var unknown []*call
	for _, c := range batch {
		if redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	if len(unknown) > 0 {
		s.eval(client, "eval", script, unknown)
	}
}

// eval sends a command for each call, and sets the calls' results.
func (s *settings) eval(client redis.UniversalClient, command, code string, batch []*call) {
	ctx := batch[0].ctx
	cmds := make([]unrepeated, len(batch))
	for i, c := range batch {
		cmds[i] = unrepeated{redis.NewCmd(ctx, command, code, 1, c.a.key,
			text(c.sent.deposits), text(c.sent.earned), text(c.sent.withdrawals),
			text(s.ratio), text(s.burst), text(s.window.Seconds()), max(s.keep.Milliseconds(), 1))}
	}
	err := process(ctx, client, cmds)
	nodes, cluster := client.(*redis.ClusterClient)
	for i, c := range batch {
		c.got, c.err = cmds[i].answer(err)
		c.resent = cluster && len(batch) > 1
	}
	if cluster && slices.ContainsFunc(batch, (*call).unanswered) {
		// A replica may have taken over. go-redis asks for the Cluster's state when it repeats a command,
		// which these commands forbid. Otherwise, it asks once a minute.
		nodes.ReloadState(ctx)
	}
}

// process sends commands, more than one of them in a pipeline.
func process(ctx context.Context, client redis.UniversalClient, cmds []unrepeated) error {
	if len(cmds) == 1 {
		return client.Process(ctx, cmds[0])
	}
	pipeline := client.Pipeline()
	for _, cmd := range cmds {
		_ = pipeline.Process(ctx, cmd) // only queues it
	}
	_, err := pipeline.Exec(ctx)
	return err
}

// unrepeated is a command that go-redis does not send again after an error. The server may
// have booked the command, and would book it twice.
type unrepeated struct{ *redis.Cmd }

func (unrepeated) NoRetry() bool { return true }

// answer returns what a server has answered. If there is nothing, it returns the command's error,
// or an error of all that were sent together. A client sets that error for all commands of a
// pipeline that breaks, even if their answers were read before.
func (c unrepeated) answer(err error) (answer, error) {
	if reply, ok := c.Val().([]any); ok {
		return parse(reply)
	}
	if _, own := c.Slice(); err == nil || c.Err() != nil {
		err = own
	}
	return answer{}, err
}

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

// unanswered reports whether a call failed without an answer of a server.
func (c *call) unanswered() bool {
	_, answered := errors.AsType[redis.Error](c.err)
	return c.err != nil && !answered
}

// unbooked reports whether a failed call was certainly not booked. Then the server answered with
// an error, or the call was not sent.
func (c *call) unbooked() bool {
	if _, ok := errors.AsType[redis.Error](c.err); ok {
		return !c.resent || !redis.HasErrorPrefix(c.err, "MOVED") && !redis.HasErrorPrefix(c.err, "ASK")
	}
	op, ok := errors.AsType[*net.OpError](c.err)
	return !c.resent && (ok && op.Op == "dial" ||
		errors.Is(c.err, redis.ErrClosed) || errors.Is(c.err, redis.ErrPoolTimeout) ||
		errors.Is(c.err, redis.ErrPoolExhausted))
}
