//go:build unix

package redisbudget_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	tick    = 10 * time.Millisecond // between two looks at something that is awaited
	forever = 30 * time.Second      // more than anything that is awaited takes
)

// redisServer is a process of redis-server on a loopback port.
type redisServer struct {
	addr    string
	file    string // of settings; may be ""
	options []string
	dir     string
	cmd     *exec.Cmd
	log     bytes.Buffer
	admin   *redis.Client // with a single connection
}

// startServer starts a server, and skips the test if there is no redis-server.
func startServer(t *testing.T, options ...string) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed; .ci/run installs it on Debian")
	}
	return startIn(t, t.TempDir(), "", options...)
}

// startIn starts a server in a directory, with a file of further settings if it has a name.
func startIn(t *testing.T, dir, file string, options ...string) *redisServer {
	t.Helper()
	s := &redisServer{addr: freeAddr(t), file: file, options: options, dir: dir}
	s.admin = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 1})
	t.Cleanup(func() {
		_ = s.admin.Close()
		if s.cmd != nil {
			s.kill(t)
		}
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	s.start(t)
	return s
}

// start starts the process, also again, and waits until it answers.
func (s *redisServer) start(t *testing.T) {
	t.Helper()
	args := append([]string{
		"--bind", loopback(), "--port", port(s.addr), "--dir", s.dir, "--save", "", "--appendonly", "no",
	}, s.options...)
	if s.file != "" {
		args = append([]string{s.file}, args...)
	}
	s.cmd = exec.Command("redis-server", args...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	require.NoError(t, s.cmd.Start())
	s.answers(t)
}

// answers waits until the server answers.
func (s *redisServer) answers(t *testing.T) {
	t.Helper()
	eventually(t, func() bool { return s.admin.Ping(t.Context()).Err() == nil }, "an answer")
}

func (s *redisServer) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Kill())
	err := s.cmd.Wait()
	require.IsType(t, (*exec.ExitError)(nil), err)
	s.cmd = nil
}

func (s *redisServer) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(signal))
}

// do has the server run a command.
func (s *redisServer) do(t *testing.T, args ...any) any {
	t.Helper()
	reply, err := s.admin.Do(t.Context(), args...).Result()
	require.NoError(t, err, "%v", args)
	return reply
}

// tokens returns the stored balance of a host.
func (s *redisServer) tokens(t require.TestingT, host string) float64 {
	stored, err := s.admin.HGet(context.Background(), balance(host), "tokens").Float64()
	require.NoError(t, err)
	return stored
}

// setTokens stores a balance of a host that never had a success.
func (s *redisServer) setTokens(t *testing.T, host string, tokens float64) {
	t.Helper()
	s.do(t, "HSET", balance(host), "tokens", tokens)
}

// newClient returns a client of its own, as a process has. Its options are go-redis's,
// except for what is set.
func newClient(t *testing.T, options redis.Options) *redis.Client {
	c := redis.NewClient(&options)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// balance returns the key of a host's balance.
func balance(host string) string { return "retryhttp:{" + host + "}" }

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// loopback is an address that other programs hardly use, where there is more than one. A port
// of 127.0.0.1 that is free may be taken before a server takes it.
var loopback = sync.OnceValue(func() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
})

// given has each address that freeAddr has returned.
var given sync.Map

// freeAddr returns an address that is free, and that it has not returned before. Otherwise two servers could
// be meant to have one address: each is free until its server listens, and a proxy's while the proxy is shut.
func freeAddr(t *testing.T) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback(), "0"))
		require.NoError(t, err)
		require.NoError(t, l.Close())
		if _, taken := given.LoadOrStore(l.Addr().String(), true); !taken {
			return l.Addr().String()
		}
	}
}
