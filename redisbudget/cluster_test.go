//go:build unix

package redisbudget_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

const slots = 16384

// cluster is a Redis Cluster of three.
type cluster struct{ nodes []*redisServer }

func startCluster(t *testing.T, options ...string) cluster {
	t.Helper()
	var c cluster
	var buses []string
	for i := range 3 {
		s, bus := startNode(t, options...)
		s.do(t, "CLUSTER", "ADDSLOTSRANGE", i*slots/3, (i+1)*slots/3-1)
		// Otherwise the nodes choose epochs later. A replica whose master dies before the replica has heard of its
		// epoch is not elected.
		s.do(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		c.nodes, buses = append(c.nodes, s), append(buses, bus)
	}
	for i, s := range c.nodes[1:] {
		c.nodes[0].do(t, "CLUSTER", "MEET", loopback(), port(s.addr), buses[i+1])
	}
	eventually(t, func() bool {
		for _, s := range c.nodes {
			if !s.knowsTheCluster(t) {
				return false
			}
		}
		return true
	}, "the nodes are a cluster")
	return c
}

// knowsTheCluster reports whether a node knows three masters, and a master for each slot.
func (s *redisServer) knowsTheCluster(t *testing.T) bool {
	t.Helper()
	info := s.do(t, "CLUSTER", "INFO").(string)
	return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_size:3")
}

// startNode starts a server that is to be a node of a Cluster. The nodes talk to its bus.
func startNode(t *testing.T, options ...string) (s *redisServer, bus string) {
	t.Helper()
	bus = port(freeAddr(t))
	return startServer(t, append([]string{
		"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-announce-ip", loopback(),
	}, options...)...), bus
}

func (c cluster) addrs() (addrs []string) {
	for _, s := range c.nodes {
		addrs = append(addrs, s.addr)
	}
	return addrs
}

// process returns the budget of a process that knows the cluster.
func (c cluster) process(t *testing.T) *redisbudget.Bucket {
	t.Helper()
	return fleetMember(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs()}))
}

// owner returns the node with a host's balance, and one of the others.
func (c cluster) owner(t *testing.T, host string) (owner, other *redisServer) {
	t.Helper()
	for i, s := range c.nodes {
		if s.admin.Exists(t.Context(), balance(host)).Val() == 1 {
			require.Nil(t, owner, "two nodes have the balance")
			owner, other = s, c.nodes[(i+1)%len(c.nodes)]
		}
	}
	require.NotNil(t, owner, "no node has the balance")
	return owner, other
}

func TestAnyClientSharesTheBalance(t *testing.T) {
	for _, test := range []struct {
		name    string
		cluster bool
		servers int
		dial    func(addrs []string) redis.UniversalClient
	}{
		{"Client", false, 1, func(addrs []string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addrs[0]})
		}},
		{"Ring", false, 2, func(addrs []string) redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addrs[0], "b": addrs[1]}})
		}},
		{"UniversalClient of one", false, 1, func(addrs []string) redis.UniversalClient {
			return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
		}},
		{"UniversalClient of a Cluster", true, 3, func(addrs []string) redis.UniversalClient {
			return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
		}},
		{"ClusterClient", true, 3, func(addrs []string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var servers cluster
			if test.cluster {
				servers = startCluster(t)
			} else {
				for range test.servers {
					servers.nodes = append(servers.nodes, startServer(t))
				}
			}
			near, far := fleetMember(t, test.dial(servers.addrs())), fleetMember(t, test.dial(servers.addrs()))
			const hosts = 20
			for i := range hosts {
				req := get(t, fmt.Sprintf("shop-%d.example", i))
				near.Deposit(req)
				far.Deposit(req)
			}
			for i := range hosts {
				req := get(t, fmt.Sprintf("shop-%d.example", i))
				eventually(t, func() bool { return near.Status(req).Tokens == 20 }, "an answer")
				require.True(t, withdraw(near, req))
			}
			for i := range hosts {
				req := get(t, fmt.Sprintf("shop-%d.example", i))
				spent := func() bool { far.Deposit(req); return far.Status(req).Tokens == 19 }
				eventually(t, spent, "another process knows what is left")
				servers.owner(t, req.URL.Host)
			}
			for _, s := range servers.nodes {
				assert.Positive(t, s.admin.DBSize(t.Context()).Val(), "balances on each server")
			}
		})
	}
}

func TestASlotThatMovesTakesItsBalanceAlong(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	near, far, req := c.process(t), c.process(t), get(t, host)
	near.Deposit(req)
	eventually(t, func() bool { return near.Status(req).Tokens == 20 }, "an answer")
	spend(t, near, req, 19, far)

	from, to := c.owner(t, host)
	slot := from.do(t, "CLUSTER", "KEYSLOT", balance(host))
	to.do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.do(t, "CLUSTER", "MYID"))
	from.do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.do(t, "CLUSTER", "MYID"))
	spend(t, near, req, 18, far)
	require.Equal(t, 18.0, from.tokens(t, host), "the slot moves, and the key has not")

	from.do(t, "MIGRATE", loopback(), port(to.addr), balance(host), 0, 5000)
	asked := sent(t, to, "asking")
	spend(t, near, req, 17, far)
	spend(t, far, req, 16, near)
	require.Greater(t, sent(t, to, "asking"), asked, "the slot moves, and the key has")

	for _, s := range []*redisServer{to, from, c.nodes[0], c.nodes[1], c.nodes[2]} {
		s.do(t, "CLUSTER", "SETSLOT", slot, "NODE", to.do(t, "CLUSTER", "MYID"))
	}
	spend(t, near, req, 15, far)
	spend(t, far, req, 14, near)
	require.Equal(t, 14.0, to.tokens(t, host), "the slot has moved")
}

// sharing returns requests to hosts for which the shared balance decides.
func sharing(t *testing.T, b *redisbudget.Bucket, n int) []*http.Request {
	t.Helper()
	reqs := hosts(t, n)
	for _, req := range reqs {
		b.Deposit(req)
	}
	for _, req := range reqs {
		eventually(t, func() bool { return b.Status(req).Tokens == 20 }, "an answer")
	}
	return reqs
}

func TestStalledNodeOfAClusterHoldsUpNoCallToTheOthers(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs(), ReadTimeout: 2 * forever})
	b := fleetMember(t, client)
	reqs := sharing(t, b, 100)
	owners := map[*http.Request]*redisServer{}
	for _, req := range reqs {
		owners[req], _ = c.owner(t, req.URL.Host)
	}
	stalled := c.nodes[1]
	stalled.signal(t, syscall.SIGSTOP)
	resume := sync.OnceFunc(func() { stalled.signal(t, syscall.SIGCONT) })
	defer resume()
	for _, req := range reqs {
		require.True(t, withdraw(b, req))
	}
	time.Sleep(2 * shortInterval) // a process waits half an Interval for an answer, and decides alone then
	waiting := 0
	for _, req := range reqs {
		if owners[req] == stalled {
			waiting++
		} else {
			answered := func() bool { b.Deposit(req); return b.Status(req).Tokens == 19 }
			eventually(t, answered, "the shared balance decides")
		}
	}
	require.Greater(t, waiting, 2*atOnce)
	resume()
	for _, req := range reqs {
		eventually(t, func() bool { return owners[req].tokens(t, req.URL.Host) == 19 }, "it is booked")
	}
}

func TestCallsOfAPipelineFollowTheirSlots(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	b := c.process(t)
	reqs := sharing(t, b, 60)
	to := c.nodes[2]
	moved := 0
	for _, req := range reqs {
		from, _ := c.owner(t, req.URL.Host)
		if from == to {
			continue
		}
		moved++
		slot := from.do(t, "CLUSTER", "KEYSLOT", balance(req.URL.Host))
		id := to.do(t, "CLUSTER", "MYID")
		to.do(t, "CLUSTER", "SETSLOT", slot, "NODE", id)
		_, err := from.admin.TxPipelined(t.Context(), func(p redis.Pipeliner) error { // or a call comes between
			p.Del(t.Context(), balance(req.URL.Host))
			p.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id)
			return nil
		})
		if err != nil { // the node has heard of the move from the others, and has deleted the key itself
			require.ErrorContains(t, from.admin.Exists(t.Context(), balance(req.URL.Host)).Err(), "MOVED", err.Error())
		}
		for _, s := range c.nodes[:2] {
			s.do(t, "CLUSTER", "SETSLOT", slot, "NODE", id)
		}
	}
	require.Greater(t, moved, 2*atOnce)
	for _, req := range reqs {
		require.True(t, withdraw(b, req))
	}
	for _, req := range reqs {
		booked := func() bool {
			b.Deposit(req)
			tokens, err := to.admin.HGet(t.Context(), balance(req.URL.Host), "tokens").Float64()
			return err == nil && tokens == 19
		}
		eventually(t, booked, "it is booked, once")
	}
}
