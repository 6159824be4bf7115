package redisbudget_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

// engine is a server in memory, whose connections are pipes and whose clock is that of the
// bubble, if there is one.
type engine struct{ *miniredis.Miniredis }

func startEngine(t testing.TB) engine {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	return engine{m}
}

// onCall calls f with each call of the script, before it is made. If f returns true, it has
// answered itself.
func (e engine) onCall(f func(command string, args []string) bool) {
	c, err := e.Dial() // which starts it
	if err == nil {
		_ = c.Close()
	}
	e.Server().SetPreHook(func(_ *server.Peer, command string, args ...string) bool {
		return strings.HasPrefix(command, "EVAL") && f(command, args)
	})
}

// client returns a client of its own, as a process has.
func (e engine) client(t testing.TB) *redis.Client {
	return e.dialing(t, func(context.Context, string, string) (net.Conn, error) { return e.Dial() })
}

func (e engine) dialing(t testing.TB, dial func(context.Context, string, string) (net.Conn, error)) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr:                     "192.0.2.1:6379", // or it would be looked up
		Dialer:                   dial,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func get(t testing.TB, host string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+host+"/", nil)
	require.NoError(t, err)
	return req
}
