package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/redisbudget"
)

// shared is a budget in a Redis whose master dies again and again. A Sentinel has the replica take over.
type shared struct {
	bucket   *redisbudget.Bucket
	client   *redis.Client
	dir      string
	sentinel *exec.Cmd
	nodes    [2]*node // the first is the master
	stop     chan struct{}
	ended    chan error
}

type node struct {
	addr  string
	cmd   *exec.Cmd
	admin *redis.Client
}

// startShared returns nil if there is no redis-server.
func startShared(tell func(string)) (_ *shared, err error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		tell("notice: redis-server is not here, and the budget is without limit")
		return nil, nil
	}
	s := &shared{stop: make(chan struct{}), ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "soak"); err != nil {
		return nil, err
	}
	for i := range s.nodes {
		s.nodes[i] = &node{addr: free()}
		s.nodes[i].admin = redis.NewClient(&redis.Options{Addr: s.nodes[i].addr, PoolSize: 1, MaxRetries: -1})
		if err = s.start(s.nodes[i], s.nodes[0]); err != nil {
			return nil, err
		}
	}
	watcher := free()
	if s.sentinel, err = s.watch(watcher); err != nil {
		return nil, err
	}
	s.client = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "budget", SentinelAddrs: []string{watcher}})
	// A third of the attempts fail. The budget must not end, for then there is nothing to see.
	s.bucket = &redisbudget.Bucket{Client: s.client, Ratio: 1, Burst: 1000, Interval: 100 * time.Millisecond}
	go func() { s.ended <- s.failOver(tell) }()
	return s, nil
}

func (s *shared) start(n, master *node) error {
	host, port, _ := net.SplitHostPort(n.addr)
	args := []string{"--bind", host, "--port", port, "--replica-announce-ip", host,
		"--dir", s.dir, "--save", "", "--repl-diskless-sync-delay", "0"}
	if n != master {
		host, port, _ := net.SplitHostPort(master.addr)
		args = append(args, "--replicaof", host, port)
	}
	n.cmd = exec.Command("redis-server", args...)
	if err := n.cmd.Start(); err != nil {
		return err
	}
	return await("a Redis follows", func() bool {
		return n.is("role:master") && n == master || n.is("master_link_status:up")
	})
}

// watch starts a Sentinel.
func (s *shared) watch(addr string) (*exec.Cmd, error) {
	host, port, _ := net.SplitHostPort(addr)
	masterHost, masterPort, _ := net.SplitHostPort(s.nodes[0].addr)
	file := filepath.Join(s.dir, "sentinel.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil,
		"sentinel monitor budget %s %s 1\nsentinel down-after-milliseconds budget 1000\n"+
			"sentinel failover-timeout budget 5000\n", masterHost, masterPort), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("redis-server", file, "--sentinel", "--bind", host, "--port", port, "--dir", s.dir)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	admin := redis.NewClient(&redis.Options{Addr: addr})
	defer admin.Close()
	return cmd, await("the Sentinel knows the replica", func() bool {
		replicas, _ := admin.Do(context.Background(), "SENTINEL", "REPLICAS", "budget").Slice()
		return len(replicas) == 1
	})
}

// failOver kills the master again and again, and waits until the balance decides again.
func (s *shared) failOver(tell func(string)) error {
	req, _ := http.NewRequest(http.MethodGet, "http://failover.example", nil)
	decides := func() bool {
		s.bucket.Deposit(req)
		return s.bucket.Status(req).Shared
	}
	for n := 0; ; n++ {
		if err := await("the shared balance decides", decides); err != nil {
			return err
		}
		select {
		case <-s.stop:
			tell(fmt.Sprintf("the Redis failed over %d times", n))
			return nil
		case <-time.After(20 * time.Second):
		}
		master, replica := s.nodes[0], s.nodes[1]
		_ = master.cmd.Process.Kill()
		_ = master.cmd.Wait()
		if err := await("the replica takes over", func() bool { return replica.is("role:master") }); err != nil {
			return err
		}
		if err := s.start(master, replica); err != nil {
			return err
		}
		s.nodes[0], s.nodes[1] = replica, master
	}
}

// end waits for the last failover, and ends all processes. A nil shared has ended.
func (s *shared) end() error {
	if s == nil {
		return nil
	}
	close(s.stop)
	err := errors.Join(<-s.ended, s.bucket.Close())
	s.close()
	return err
}

func (s *shared) close() {
	if s.client != nil {
		_ = s.client.Close()
	}
	for _, n := range s.nodes {
		if n != nil {
			_ = n.admin.Close()
			kill(n.cmd)
		}
	}
	kill(s.sentinel)
	_ = os.RemoveAll(s.dir)
}

func kill(cmd *exec.Cmd) {
	if cmd != nil && cmd.Process != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// is reports whether a line of what a node says of its replication is so.
func (n *node) is(line string) bool {
	said, _ := n.admin.Info(context.Background(), "replication").Result()
	return strings.Contains(said, line)
}

func await(what string, is func() bool) error {
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("not within a minute: %s", what)
		}
	}
	return nil
}

// free is an address that nobody has.
func free() string {
	l, err := net.Listen("tcp", loopback.OwnAddress())
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}
