package redisbudget_test

import (
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
)

const (
	host      = "shop.example"
	storedKey = "retryhttp:{" + host + "}"

	interval = time.Second            // the default
	spread   = 200 * time.Millisecond // by how much a regular call may be later
	pause    = interval / 20          // between calls that granted retries bring forward, after four
	window   = 20 * time.Second       // the default
	rest     = 7 * time.Second        // after a use, no call is made in the Interval before and after this time
)

// engine is a server in memory. Its connections are pipes, and its clock is the bubble's, if
// there is a bubble.
type engine struct {
	*miniredis.Miniredis
	down   atomic.Bool  // connections break before a command is sent, and none can be made
	mute   atomic.Bool  // answers are lost, and their connections with them
	refuse atomic.Bool  // each call of the script is answered with an error
	delay  atomic.Int64 // before a call of the script, in nanoseconds: no answer comes while a test is busy
	trip   atomic.Int64 // from a command to its answer on connections from now on, in nanoseconds
	full   atomic.Bool  // each call of the script is answered with 20 tokens, which takes less time

	refused atomic.Bool // a connection was
}

func startEngine(t testing.TB) *engine {
	e := &engine{Miniredis: miniredis.NewMiniRedis()}
	c, err := e.Dial() // which starts it
	require.NoError(t, err)
	require.NoError(t, c.Close())
	t.Cleanup(e.Close)
	e.onCall(func(*server.Peer, []string) bool { return false })
	return e
}

// onCall calls f with each call of the script, before it is made. If f returns true, it has
// answered itself.
func (e *engine) onCall(f func(c *server.Peer, args []string) bool) {
	e.Server().SetPreHook(func(c *server.Peer, command string, args ...string) bool {
		if !strings.HasPrefix(command, "EVAL") {
			return false
		}
		time.Sleep(time.Duration(e.delay.Load()))
		switch {
		case f(c, args):
			return true
		case e.refuse.Load():
			c.WriteError("READONLY You can't write against a read only replica.")
			return true
		case e.full.Load():
			c.WriteStrings([]string{"20", "20", ""})
			return true
		}
		return false
	})
}

// call is what a call of the script reports, and when.
type call struct {
	key                   string
	at                    time.Duration
	deposits, withdrawals float64
	earned                float64
}

// record returns what returns the calls since now.
func (e *engine) record() func() []call {
	var mu sync.Mutex
	var calls []call
	start := time.Now()
	e.onCall(func(_ *server.Peer, args []string) bool {
		mu.Lock()
		defer mu.Unlock()
		deposits, _ := strconv.ParseFloat(args[3], 64)
		earned, _ := strconv.ParseFloat(args[4], 64)
		withdrawals, _ := strconv.ParseFloat(args[5], 64)
		calls = append(calls, call{args[2], time.Since(start), deposits, withdrawals, earned})
		return false
	})
	return func() []call {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(calls)
	}
}

// callTimes returns what returns when the script was called since now.
func (e *engine) callTimes() func() []time.Duration {
	calls := e.record()
	return func() (times []time.Duration) {
		for _, c := range calls() {
			times = append(times, c.at)
		}
		return times
	}
}

// client returns a client of its own, as a process has.
func (e *engine) client(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: "192.0.2.1:6379", // or it would be looked up
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if e.down.Load() {
				e.refused.Store(true)
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}
			c, err := e.Dial()
			if err != nil {
				return nil, err
			}
			if trip := time.Duration(e.trip.Load()); trip > 0 {
				c = distant(c, trip)
			}
			return &conn{Conn: c, e: e}, nil
		},
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		_ = c.Close()
		if e.refused.Load() {
			time.Sleep(2 * time.Second) // a client that dials in vain sees once a second that it is closed
		}
	})
	return c
}

// conn is a connection that its engine may have fail.
type conn struct {
	net.Conn
	e *engine
}

func (c *conn) Write(p []byte) (int, error) {
	if c.e.down.Load() {
		_ = c.Close()
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return c.Conn.Write(p)
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.e.mute.Load() && n > 0 {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// distant returns a connection whose answers arrive a trip after their commands, however many
// there are.
func distant(pipe net.Conn, trip time.Duration) net.Conn {
	near, far := net.Pipe()
	go forward(pipe, far, 0)
	go forward(far, pipe, trip)
	return near
}

// forward copies what is sent, which arrives later. As on a network, nobody waits until it is
// read.
func forward(to, from net.Conn, delay time.Duration) {
	type packet struct {
		data    []byte
		arrives time.Time
	}
	packets := make(chan packet, 10_000)
	go func() {
		defer close(packets)
		for {
			data := make([]byte, 4096)
			n, err := from.Read(data)
			if err != nil {
				return
			}
			packets <- packet{data[:n], time.Now().Add(delay)}
		}
	}()
	for p := range packets {
		time.Sleep(time.Until(p.arrives))
		_, _ = to.Write(p.data)
	}
	_ = to.Close()
}

// decayed returns what is left of an amount after a time.
func (e *engine) decayed(d time.Duration) float64 { return math.Exp(-d.Seconds() / window.Seconds()) }

// stored returns a field of a balance in the server, and NaN if there is none.
func (e *engine) stored(t testing.TB, field string) float64 {
	t.Helper()
	text := e.HGet(storedKey, field)
	if text == "" {
		return math.NaN()
	}
	x, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return x
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	require.NoError(t, err)
	require.False(t, math.IsNaN(x) || math.IsInf(x, 0), s)
	return x
}

// processHook is a hook of a client that runs with each command.
type processHook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (processHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (processHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h processHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// errorLog keeps what an OnError was given.
type errorLog struct {
	mu     sync.Mutex
	errors []error
}

func (l *errorLog) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors = append(l.errors, err)
}

func (l *errorLog) all() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.errors)
}

// deposit deposits n successes.
func deposit(b *redisbudget.Bucket, req *http.Request, n int) {
	for range n {
		b.Deposit(req)
	}
}

// noCallAtOnce uses up what brings calls forward at once, so that what is done next at one
// time is reported in one call, a pause later at most.
func noCallAtOnce(b *redisbudget.Bucket, req *http.Request) {
	b.Deposit(req)
	synctest.Wait()
	for range 4 {
		withdraw(b, req)
		synctest.Wait()
	}
}

// granted counts the withdrawals that are granted of n.
func granted(b *redisbudget.Bucket, req *http.Request, n int) int {
	granted := 0
	for range n {
		if withdraw(b, req) {
			granted++
		}
	}
	return granted
}

func get(t testing.TB, host string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+host+"/", nil)
	require.NoError(t, err)
	return req
}

// inBubble runs f in a bubble with a server that knows the script, so that each call is one
// command.
func inBubble(t *testing.T, f func(t *testing.T, e *engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := startEngine(t)
		b := &redisbudget.Bucket{Client: e.client(t)}
		b.Deposit(get(t, "first.example"))
		require.NoError(t, b.Close())
		f(t, e)
	})
}

// withdraw asks b for a retry of which nothing is known but the request.
func withdraw(b retryhttp.Budget, req *http.Request) bool {
	_, ok := b.Withdraw(retryhttp.Retry{Request: req})
	return ok
}

// countFailure tells b of a failure that no retry follows.
func countFailure(b retryhttp.Budget, req *http.Request, failed retryhttp.Attempt) {
	b.Withdraw(retryhttp.Retry{Request: req, Failed: failed, Stop: retryhttp.StopNotIdempotent})
}
