//go:build unix

package redisbudget_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// noticed is how long a node is silent until the others take it for dead, in milliseconds. It is
// more than the pauses of a busy machine.
const noticed = 1000

// follows has s be the replica of a master, and waits until s has its data.
func (s *redisServer) follows(t *testing.T, args ...any) {
	t.Helper()
	s.do(t, args...)
	eventually(t, func() bool {
		return strings.Contains(s.do(t, "INFO", "replication").(string), "master_link_status:up")
	}, "the replica follows")
}

func (s *redisServer) isMaster(t *testing.T) bool {
	t.Helper()
	return strings.Contains(s.do(t, "INFO", "replication").(string), "role:master")
}

// offset returns how much of the replication's stream a server has written, or read.
func (s *redisServer) offset(t *testing.T, name string) (offset int) {
	t.Helper()
	_, rest, found := strings.Cut(s.do(t, "INFO", "replication").(string), name+":")
	require.True(t, found)
	_, err := fmt.Sscan(rest, &offset)
	require.NoError(t, err)
	return offset
}

// startReplicas starts a replica for each node.
func (c cluster) startReplicas(t *testing.T, options ...string) (of map[*redisServer]*redisServer) {
	t.Helper()
	of = map[*redisServer]*redisServer{}
	for _, node := range c.nodes {
		s, bus := startNode(t, options...)
		c.nodes[0].do(t, "CLUSTER", "MEET", loopback(), port(s.addr), bus)
		of[node] = s
	}
	for node, s := range of {
		id := node.do(t, "CLUSTER", "MYID").(string)
		eventually(t, func() bool { return strings.Contains(s.do(t, "CLUSTER", "NODES").(string), id) }, "they have met")
		s.follows(t, "CLUSTER", "REPLICATE", id)
		// A replica that has not yet heard which slots its master has never takes over.
		eventually(t, func() bool { return s.knowsTheCluster(t) }, "the replica knows the slots")
	}
	return of
}

// failsOver spends a token, has the master fail, and requires that the balance decides again on the
// server that takes over. Nobody else does anything.
func failsOver(t *testing.T, dial func() redis.UniversalClient, find func() (master, replica *redisServer)) {
	t.Helper()
	process := func() *redisbudget.Bucket {
		client := dial()
		t.Cleanup(func() { _ = client.Close() })
		return &redisbudget.Bucket{Client: client, Ratio: -1, Interval: shortInterval}
	}
	near, far, req := process(), process(), get(t, host)
	near.Deposit(req)
	eventually(t, func() bool { return near.Status(req).Tokens == 20 }, "an answer")
	spend(t, near, req, 19, far)

	master, replica := find()
	written := master.offset(t, "master_repl_offset") // WAIT would wait for the writes of its own connection alone
	eventually(t, func() bool { return replica.offset(t, "slave_repl_offset") >= written }, "the replica knows what is left")
	killed := time.Now()
	master.kill(t)
	decides := func(b *redisbudget.Bucket) bool {
		b.Deposit(req)
		return b.Status(req).Shared
	}
	eventually(t, func() bool { return !decides(near) }, "the failure is noticed")
	eventually(t, func() bool { decides(near); return replica.isMaster(t) }, "the replica takes over")
	promoted := time.Now()
	// go-redis by itself asks a Cluster who its masters are once a minute.
	eventually(t, func() bool { return decides(near) }, "the balance decides again")
	t.Logf("%.1f s until the promotion, and %.1f s from then on", promoted.Sub(killed).Seconds(), time.Since(promoted).Seconds())
	eventually(t, func() bool { return decides(far) }, "the balance decides again in another process")
	spend(t, near, req, 18, far)
	require.Equal(t, 18.0, replica.tokens(t, host))
	assert.NoError(t, near.Close())
	assert.NoError(t, far.Close())
}

func TestBalanceDecidesAgainAfterAFailoverOfACluster(t *testing.T) {
	t.Parallel()
	options := []string{"--cluster-node-timeout", fmt.Sprint(noticed), "--repl-diskless-sync-delay", "0"}
	c := startCluster(t, options...)
	replicas := c.startReplicas(t, options...)
	failsOver(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs()})
	}, func() (master, replica *redisServer) {
		master, _ = c.owner(t, host)
		return master, replicas[master]
	})
}

func TestBalanceDecidesAgainAfterAFailoverBySentinel(t *testing.T) {
	t.Parallel()
	options := []string{"--repl-diskless-sync-delay", "0", "--replica-announce-ip", loopback()}
	master, replica := startServer(t, options...), startServer(t, options...)
	replica.follows(t, "REPLICAOF", loopback(), port(master.addr))
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil,
		"sentinel monitor budget %s %s 1\nsentinel down-after-milliseconds budget %d\n",
		loopback(), port(master.addr), noticed), 0o600))
	sentinel := startIn(t, dir, file, "--sentinel")
	eventually(t, func() bool {
		return len(sentinel.do(t, "SENTINEL", "REPLICAS", "budget").([]any)) == 1
	}, "the Sentinel knows the replica")
	failsOver(t, func() redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "budget", SentinelAddrs: []string{sentinel.addr}})
	}, func() (*redisServer, *redisServer) { return master, replica })
}
