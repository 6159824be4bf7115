//go:build unix

package redisbudget_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// newBooking returns a Bucket whose balance is 10 of 20 tokens, and fades in weeks. Each
// deposit earns a token.
func newBooking(t *testing.T, s *redisServer, client redis.UniversalClient) (*redisbudget.Bucket, *http.Request) {
	t.Helper()
	s.setTokens(t, host, 10)
	b := &redisbudget.Bucket{
		Client: client, Ratio: 1, Window: 1000 * time.Hour, Interval: 50 * time.Millisecond,
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, get(t, host)
}

// stored waits until the stored balance is want, except for what fades, and closes b. Then
// nothing must be left that was not booked.
func stored(t *testing.T, s *redisServer, b *redisbudget.Bucket, want float64) {
	t.Helper()
	const faded = 1e-3
	eventually(t, func() bool { return s.tokens(t, host) > want-faded && s.tokens(t, host) < want+faded }, "the balance is booked")
	require.NoError(t, b.Close())
	require.InDelta(t, want, s.tokens(t, host), faded)
}

// The server books the call, and the proxy cuts its answer off.
func TestACallWhoseAnswerIsLostGrantsNothingTwice(t *testing.T) {
	for _, test := range []struct {
		name   string
		use    func(*redisbudget.Bucket, *http.Request)
		stored float64
	}{
		{"a deposit", (*redisbudget.Bucket).Deposit, 11},
		{"a withdrawal", func(b *redisbudget.Bucket, req *http.Request) { withdraw(b, req) }, 8},
		{"a refund", func(b *redisbudget.Bucket, req *http.Request) { b.Refund(req, 1) }, 11},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			p := startProxy(t, s.addr)
			client := newClient(t, redis.Options{Addr: p.addr}) // with its retries
			require.NoError(t, client.Ping(t.Context()).Err())
			b, req := newBooking(t, s, client)
			require.NoError(t, client.ScriptLoad(t.Context(), script(t)).Err())
			var calls atomic.Int64
			countCalls(client, &calls)

			p.meet(unanswered)
			test.use(b, req)
			eventually(t, func() bool { return p.handles.Load() == int32(forwarded) }, "an answer is lost")
			require.NoError(t, client.Ping(t.Context()).Err())
			eventually(t, func() bool { return calls.Load() == 2 }, "a further call")
			stored(t, s, b, test.stored)
			assert.Equal(t, calls.Load(), sent(t, s, "evalsha"), "the client sends each call once")
			assert.Zero(t, sent(t, s, "eval"))
		})
	}
}

func TestTheClientOfTheseTestsRepeatsOtherCommands(t *testing.T) {
	s := startServer(t)
	p := startProxy(t, s.addr)
	client := newClient(t, redis.Options{Addr: p.addr})
	require.NoError(t, client.Ping(t.Context()).Err())
	p.meet(unanswered)
	require.NoError(t, client.Incr(t.Context(), "n").Err())
	require.EqualValues(t, 2, sent(t, s, "incr"))
}

func TestAllOfACallThatWasNotBookedIsReportedAgain(t *testing.T) {
	for _, test := range []struct {
		name       string
		fail, mend func(*testing.T, *redisServer, *proxy)
	}{
		{
			"an error reply",
			func(t *testing.T, s *redisServer, _ *proxy) {
				commands("CONFIG SET maxmemory-policy noeviction maxmemory 1")(t, s)
			},
			func(t *testing.T, s *redisServer, _ *proxy) { commands("CONFIG SET maxmemory 0")(t, s) },
		},
		{
			"a refused password",
			func(t *testing.T, s *redisServer, _ *proxy) { commands("CONFIG SET requirepass another")(t, s) },
			func(t *testing.T, s *redisServer, _ *proxy) { s.do(t, "CONFIG", "SET", "requirepass", "") },
		},
		{
			"a failed dial",
			func(_ *testing.T, _ *redisServer, p *proxy) { p.shut() },
			func(t *testing.T, _ *redisServer, p *proxy) { p.open(t) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			p := startProxy(t, s.addr)
			b, req := newBooking(t, s, newClient(t, redis.Options{Addr: p.addr}))
			var failed atomic.Int64
			b.OnError = func(error) { failed.Add(1) }

			test.fail(t, s, p)
			for range 8 {
				b.Deposit(req)
			}
			for range 3 {
				require.True(t, withdraw(b, req))
			}
			b.Refund(req, 1)
			eventually(t, func() bool { return failed.Load() >= 2 }, "calls fail")
			test.mend(t, s, p)
			stored(t, s, b, 10+8-3+1)
		})
	}
}

func countCalls(client redis.UniversalClient, n *atomic.Int64) {
	client.AddHook(processHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			n.Add(1)
		}
		return next(ctx, cmd)
	}))
}

// sent returns how often a server was sent a command.
func sent(t *testing.T, s *redisServer, command string) (n int64) {
	t.Helper()
	for line := range strings.Lines(s.do(t, "INFO", "commandstats").(string)) {
		if _, err := fmt.Sscanf(line, "cmdstat_"+command+":calls=%d,", &n); err == nil {
			return n
		}
	}
	return 0
}
