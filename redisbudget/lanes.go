package redisbudget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Many keys make many calls. Each lane sends at most maxSendings at a time, and the calls that
// become due meanwhile go together in the next pipeline. So calls of many keys fit through the
// Client's pool of connections, and a call that meets no other waits for nothing.
const (
	maxSendings = 8   // less than go-redis's least PoolSize, which is 10
	maxPipeline = 100 // calls
)

// call is a call for one key, from when its account has begun it until the account has ended it.
type call struct {
	a    *account
	ctx  context.Context
	sent unreported
	done func(error) // for the error, if not nil; otherwise OnError gets it

	got    answer
	err    error
	resent bool // a Cluster's client may have sent it to two nodes, and err may be the first's
}

// lanes holds a lane for each server, so that a server that stalls holds up no calls to others. While
// a Cluster's servers are not known, its calls share a lane. Otherwise each would wait in a goroutine
// of its own until the client knows them.
type lanes struct {
	mu      sync.Mutex
	servers map[*redis.Client]*lane
	found   atomic.Bool // a call has succeeded, so the client knows its servers
}

// lane is the calls to one server.
type lane struct {
	sendings int     // under way
	waiting  []*call // no more may be sent for now
}

// enter returns whether c may be sent now. Otherwise it waits.
func (l *lanes) enter(server *redis.Client, c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.servers[server]
	if to == nil {
		to = new(lane)
		if l.servers == nil {
			l.servers = map[*redis.Client]*lane{}
		}
		l.servers[server] = to
	}
	if to.sendings == maxSendings {
		to.waiting = append(to.waiting, c)
		return false
	}
	to.sendings++
	return true
}

// next returns the calls to send after others have been sent, if any wait.
func (l *lanes) next(server *redis.Client) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.servers[server]
	n := min(len(to.waiting), maxPipeline)
	batch := to.waiting[:n:n]
	to.waiting = to.waiting[n:]
	if n == 0 {
		to.sendings--
		to.waiting = nil
	}
	if to.sendings == 0 {
		delete(l.servers, server) // servers of a Cluster come and go
	}
	return batch
}

// send sends a call that its account has begun, now or with others.
func (b *Bucket) send(c *call) {
	server := b.lanes.serverOf(c.ctx, b.Client, c.a.key)
	if b.lanes.enter(server, c) {
		b.sendBatch(server, []*call{c})
	}
}

// serverOf returns the server of a Cluster or a Ring that has the key. It returns nil for any other
// client, and for a Cluster that has not answered yet.
func (l *lanes) serverOf(ctx context.Context, client redis.UniversalClient, key string) (server *redis.Client) {
	defer func() { _ = recover() }() // the call fails too then, and reports it
	switch client := client.(type) {
	case *redis.ClusterClient:
		if !l.found.Load() {
			return nil // the client would wait for the network
		}
		server, _ = client.MasterForKey(ctx, key)
	case *redis.Ring:
		server, _ = client.GetShardClientForKey(key)
	}
	return server
}

var (
	errNoReturn = errors.New("the client did not return")
	errClosed   = errors.New("Close did not wait for it")
)

func (b *Bucket) sendBatch(server *redis.Client, batch []*call) {
	for _, c := range batch {
		c.err = errNoReturn
	}
	defer func() {
		if v := recover(); v != nil {
			for _, c := range batch {
				if c.err == errNoReturn {
					c.err = fmt.Errorf("the client panicked: %v", v)
				}
			}
		}
		b.endBatch(server, batch)
	}()
	if b.over.Load() {
		for _, c := range batch {
			c.err = errClosed
		}
		return
	}
	b.settings.send(b.Client, batch)
	if slices.ContainsFunc(batch, func(c *call) bool { return c.err == nil }) {
		b.lanes.found.Store(true) // an error may come from the search for the servers
	}
}

// endBatch books the results, and has the next calls sent. Only then it calls OnError, which
// may block.
func (b *Bucket) endBatch(server *redis.Client, batch []*call) {
	var report error
	for _, c := range batch {
		slow := c.a.end(c)
		err := failure(c.err, c.got)
		switch {
		case c.done != nil:
			c.done(err)
		case err != nil:
			report = err
		case report == nil:
			report = slow
		}
	}
	if next := b.lanes.next(server); len(next) > 0 {
		go b.sendBatch(server, next)
	}
	b.report(report)
}
