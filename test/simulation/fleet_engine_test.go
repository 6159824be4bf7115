package simulation

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/redisbudget"
	lab "github.com/retryhttp/retryhttp/retrylab/internal/engine"
)

// sharing counts the calls of fleets whose processes share a budget.
type sharing struct {
	mu   sync.Mutex
	runs []*fleetCalls
}

// fleetCalls are the calls of one run.
type fleetCalls struct {
	start     time.Time
	perSecond lab.Series
	processes []*processCalls
}

// processCalls are when a process has called, and when it was granted retries.
type processCalls struct {
	fleet   *fleetCalls
	mu      sync.Mutex
	at      []time.Time
	granted []time.Time
}

func (p *processCalls) add() {
	now := time.Now()
	p.fleet.perSecond.Add(now.Sub(p.fleet.start), 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = append(p.at, now)
}

func (p *processCalls) grant() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted = append(p.granted, time.Now())
}

// mostUngranted is how many more calls than granted retries there were in any time of a length.
func (p *processCalls) mostUngranted(within time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := 0
	for i, from := range p.at {
		granted := slices.IndexFunc(p.granted, func(at time.Time) bool { return !at.Before(from) })
		for calls, to := range p.at[i:] {
			if to.Sub(from) >= within {
				break
			}
			ungranted := calls + 1
			if granted >= 0 {
				for _, at := range p.granted[granted:] {
					if !at.After(to) {
						ungranted--
					}
				}
			}
			most = max(most, ungranted)
		}
	}
	return most
}

// granting is a Bucket whose granted retries are counted.
type granting struct {
	*redisbudget.Bucket
	process *processCalls
}

func (g granting) Withdraw(r retryhttp.Retry) (cost float64, granted bool) {
	cost, granted = g.Bucket.Withdraw(r)
	if granted {
		g.process.grant()
	}
	return cost, granted
}

// fleet returns the Policy of a run's processes. They have a client and a Bucket each, and a
// server in memory for all.
func (s *sharing) fleet(t *testing.T) func() retryhttp.Policy {
	engine := miniredis.NewMiniRedis()
	engine.ClockTTL(true)
	t.Cleanup(engine.Close)
	run := &fleetCalls{start: time.Now(), perSecond: lab.Series{Width: time.Second}}
	s.mu.Lock()
	s.runs = append(s.runs, run)
	s.mu.Unlock()
	return func() retryhttp.Policy {
		process := &processCalls{fleet: run}
		run.processes = append(run.processes, process)
		client := redis.NewClient(&redis.Options{
			Addr: "192.0.2.1:6379", // or it would be looked up
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				c, err := engine.Dial()
				return counted{c, process}, err
			},
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = client.Close() })
		return retryhttp.Policy{Budget: granting{&redisbudget.Bucket{Client: client}, process}}
	}
}

// counted is a connection whose calls are counted. The client writes each command at once.
type counted struct {
	net.Conn
	process *processCalls
}

func (c counted) Write(p []byte) (int, error) {
	for range bytes.Count(p, []byte("evalsha")) {
		c.process.add()
	}
	return c.Conn.Write(p)
}
