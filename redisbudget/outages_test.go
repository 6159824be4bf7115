//go:build unix

package redisbudget_test

import (
	"strings"
	"syscall"
	"testing"
)

// outage is a way in which a server fails.
type outage struct {
	name     string
	arrange  func(*testing.T) arranged
	hangs    bool // calls wait for an answer
	harmless bool // calls may succeed all the same
	fresh    bool // the balance starts anew
}

type arranged struct {
	addr       string // that processes dial
	fail, mend func()
}

var outages = []outage{
	{name: "slow by 5 s", hangs: true, arrange: proxyThat(
		func(p *proxy) { p.meet(late) },
		func(p *proxy) { p.meet(forwarded) },
	)},
	{name: "silent", hangs: true, arrange: proxyThat(
		func(p *proxy) { p.meet(lost) },
		func(p *proxy) { p.meet(forwarded) },
	)},
	{name: "killed", fresh: true, arrange: serverThat(
		func(t *testing.T, s *redisServer) { s.kill(t) },
		func(t *testing.T, s *redisServer) { s.start(t) },
	)},
	{name: "restarted", harmless: true, fresh: true, arrange: serverThat(
		func(t *testing.T, s *redisServer) { s.kill(t); s.start(t) },
		func(*testing.T, *redisServer) {},
	)},
	{name: "stalled", hangs: true, arrange: serverThat(
		func(t *testing.T, s *redisServer) { s.signal(t, syscall.SIGSTOP) },
		func(t *testing.T, s *redisServer) { s.signal(t, syscall.SIGCONT) },
	)},
	{name: "flushed", harmless: true, fresh: true, arrange: serverThat(
		commands("FLUSHALL"),
		func(*testing.T, *redisServer) {},
	)},
	{name: "without the script", harmless: true, arrange: serverThat(
		commands("SCRIPT FLUSH"),
		func(*testing.T, *redisServer) {},
	)},
	{name: "read-only", arrange: serverThat(
		commands("REPLICAOF 127.0.0.1 1"),
		commands("REPLICAOF NO ONE"),
	)},
	{name: "out of memory", arrange: serverThat(
		commands("CONFIG SET maxmemory-policy noeviction maxmemory 1"),
		commands("CONFIG SET maxmemory 0"),
	)},
	{name: "another type at the key", fresh: true, arrange: serverThat(
		commands("SET "+balance(host)+" text"),
		commands("DEL "+balance(host)),
	)},
	{name: "a wrong password", arrange: serverThat(
		commands("CONFIG SET requirepass another", "CLIENT KILL TYPE normal SKIPME yes"),
		func(t *testing.T, s *redisServer) { s.do(t, "CONFIG", "SET", "requirepass", "") },
	)},
	{name: "cut off", arrange: proxyThat(
		func(p *proxy) { p.meet(broken); p.cut() },
		func(p *proxy) { p.meet(forwarded) },
	)},
	{name: "failed over", arrange: failover},
}

func serverThat(fail, mend func(*testing.T, *redisServer)) func(*testing.T) arranged {
	return func(t *testing.T) arranged {
		s := startServer(t)
		return arranged{s.addr, func() { fail(t, s) }, func() { mend(t, s) }}
	}
}

func commands(lines ...string) func(*testing.T, *redisServer) {
	return func(t *testing.T, s *redisServer) {
		for _, line := range lines {
			var args []any
			for _, arg := range strings.Fields(line) {
				args = append(args, arg)
			}
			s.do(t, args...)
		}
	}
}

func proxyThat(fail, mend func(*proxy)) func(*testing.T) arranged {
	return func(t *testing.T) arranged {
		p := startProxy(t, startServer(t).addr)
		return arranged{p.addr, func() { fail(p) }, func() { mend(p) }}
	}
}

// failover kills a server, and has its replica take over.
func failover(t *testing.T) arranged {
	first, second := startServer(t, "--repl-diskless-sync-delay", "0"), startServer(t)
	p := startProxy(t, first.addr)
	second.follows(t, "REPLICAOF", loopback(), port(first.addr))
	return arranged{
		p.addr,
		func() { first.do(t, "WAIT", 1, 0); first.kill(t) },
		func() { second.do(t, "REPLICAOF", "NO", "ONE"); p.target.Store(second.addr) },
	}
}
