//go:build unix

package redisbudget_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/redisbudget"
)

// rules is the line of the package documentation.
var rules = strings.Fields("~retryhttp:* +evalsha +eval +hmget +hset +pexpire +time")

const secret = "hunter2-of-the-fleet"

// allow gives the user of the processes these rules, and no others.
func allow(t *testing.T, s *redisServer, rules ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "retries", "reset", "on", ">" + secret}
	for _, rule := range rules {
		args = append(args, rule)
	}
	s.do(t, args...)
}

func restricted(t *testing.T, s *redisServer) *redis.Client {
	t.Helper()
	return newClient(t, redis.Options{Addr: s.addr, Username: "retries", Password: secret})
}

func TestTheDocumentedAccessControlIsEnough(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	allow(t, s, rules...)
	near, far := fleetMember(t, restricted(t, s)), fleetMember(t, restricted(t, s))
	req := get(t, host)
	near.Deposit(req)
	eventually(t, func() bool { return near.Status(req).Tokens == 20 }, "an answer")
	spend(t, near, req, 19, far)
	sharing(t, near, 30) // in pipelines too
	require.Positive(t, s.admin.PTTL(t.Context(), balance(host)).Val(), "the balance expires")
}

// A client of a Cluster asks where the slots are, and which commands there are.
func TestOnAClusterTheClientNeedsTwoRulesMore(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, s := range c.nodes {
		allow(t, s, append(slices.Clone(rules), "+cluster|slots", "+command")...)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs(), Username: "retries", Password: secret})
	sharing(t, fleetMember(t, client), 30) // in pipelines too
}

func TestEachCommandOfTheDocumentedAccessControlIsNeeded(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, rule := range rules {
		if rule == "+pexpire" {
			continue // has a test of its own
		}
		t.Run(rule, func(t *testing.T) {
			s.do(t, "FLUSHALL")
			s.do(t, "SCRIPT", "FLUSH")
			allow(t, s, without(rules, rule)...)
			var failures errorLog
			b := &redisbudget.Bucket{Client: restricted(t, s), Interval: shortInterval, OnError: failures.add}
			req := get(t, host)
			require.True(t, withdraw(b, req))
			eventually(t, func() bool { return len(failures.all()) > 1 }, "calls fail")
			assert.False(t, withdraw(b, req), "the own bucket decides")
			require.Error(t, b.Close())
			for _, err := range failures.all() {
				var refusal redis.Error
				assert.ErrorAs(t, err, &refusal)
				assert.NotContains(t, err.Error(), secret)
			}
			assert.Zero(t, s.admin.DBSize(t.Context()).Val())
		})
	}
}

func TestABalanceThatMayNotExpireIsBookedOnceAndReported(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	allow(t, s, without(rules, "+pexpire")...)
	var failures errorLog
	b := &redisbudget.Bucket{Client: restricted(t, s), Ratio: -1, Interval: shortInterval, OnError: failures.add}
	req := get(t, host)
	b.Deposit(req)
	eventually(t, func() bool { return b.Status(req).Tokens == 20 }, "the view decides")
	require.True(t, withdraw(b, req))
	eventually(t, func() bool { return s.tokens(t, host) == 19 }, "the withdrawal is booked")
	eventually(t, func() bool { b.Deposit(req); return len(failures.all()) > 2 }, "it is reported")
	require.Equal(t, 19.0, b.Status(req).Tokens, "the view decides")
	err := b.Close()
	require.Equal(t, 19.0, s.tokens(t, host), "the withdrawal is booked once")
	for _, err := range append(failures.all(), err) {
		if err != nil {
			assert.ErrorContains(t, err, "redisbudget: the balance does not expire: ")
			assert.NotContains(t, err.Error(), secret)
		}
	}
}

func TestNoPasswordIsInAnError(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	allow(t, s, rules...)
	url, err := redis.ParseURL("redis://retries:" + secret + "-wrong@" + s.addr)
	require.NoError(t, err)
	for _, test := range []struct {
		name string
		fail func(*testing.T)
	}{
		{"a wrong password", func(*testing.T) {}},
		{"a user that is off", func(t *testing.T) { s.do(t, "ACL", "SETUSER", "retries", "off") }},
		{"no server", s.kill},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.fail(t)
			var failures errorLog
			b := &redisbudget.Bucket{Client: newClient(t, *url), Interval: shortInterval, OnError: failures.add}
			b.Deposit(get(t, host))
			eventually(t, func() bool { return len(failures.all()) > 0 }, "a call fails")
			for _, err := range append(failures.all(), b.Close()) {
				assert.ErrorContains(t, err, "redisbudget: ")
				assert.NotContains(t, err.Error(), secret)
			}
		})
	}
}

func without(rules []string, rule string) []string {
	return slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })
}
