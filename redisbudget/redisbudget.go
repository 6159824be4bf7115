// Package redisbudget provides a [retryhttp.Budget] that many processes share through Redis or
// Valkey.
//
//	bucket := &redisbudget.Bucket{Client: redis.NewClient(&redis.Options{Addr: "redis:6379"})}
//	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{Budget: bucket})}
//
// # When to use it
//
// A [retryhttp.TokenBucket] in each process has its own reserve. A thousand small processes
// have a thousand reserves, which together keep a failing service down. A shared balance has
// one reserve for the fleet. The table shows the time that a service needed to recover from a
// collapse, in 20 simulations (median to longest; see docs/simulation.md):
//
//	                               100 processes   1,000 processes
//	TokenBucket                    19 to 20 s      99 to 103 s
//	TokenBucket with Burst 1       12 to 13 s      25 to 28 s
//	redisbudget.Bucket             12 to 13 s      19 to 20 s
//
// There, no process had failed before. A process that has rested has a retry of its own, so 1,000 processes with
// an earlier failure each need 21 to 25 s.
//
// # When not to use it
//
// Use a TokenBucket for fewer than about 50 processes, and for processes that each send many
// requests. Its capacity follows the rate of successes, and it needs no server.
//
// # How it works
//
// Redis holds one balance per key. A process reports its successes and what they have earned once
// per Interval, and its retries at once, and receives the balance. Until the next answer, the
// process may spend its share of that balance, and at least one token. Its share is its part of the
// fleet's recent successes. No request waits for Redis. While Redis does not answer, a bucket in
// memory with a Burst of 1 decides. The shared balance decides again after the next answer.
//
// For each key, a process makes at most two calls in an Interval, and one more for each retry
// that the balance grants: four at once, and then 20 in an Interval. An idle process asks less
// and less often, and stops after ten Windows or Intervals, whichever is longer. While calls fail,
// the process continues until the unreported amounts have faded, with the Window as time
// constant.
//
// Calls of many keys go together in pipelines. For each server, at most eight calls or pipelines
// are under way at a time, so go-redis's default PoolSize of ten per CPU has room for them. If
// you set PoolSize, or share the Client with other users, leave room for eight connections.
//
// A Bucket at rest has no goroutine. A call or a pipeline under way has one, and go-redis adds one
// while it dials for the call. So a Bucket whose server is away has 16 goroutines at most. A Cluster's
// client adds two while it asks for the nodes. Before the first answer of a Cluster, all its nodes
// count as one server. An OnError that blocks keeps one more, and Close starts one for each key that
// has something to report, for at most a second.
//
// # Setting up Redis
//
// Redis 5 or later, Valkey, and Redis Cluster work. Each balance is a hash with the fields
// tokens, rate and at, under the key Prefix:{key}. The braces make the key of the request the
// hash tag, so a { in the Prefix is written as %7B. The hash expires when it is unused for ten
// Windows or Intervals. The balance needs no persistence: a balance that is lost starts at
// Burst. Use an instance without an eviction policy, or with a policy that spares keys in use.
//
// With the default Prefix, the following rule of an access control list is enough. A client of
// a Cluster also needs +cluster|slots, and +command: without it, go-redis asks for the commands
// before each call, and logs that it may not.
//
//	ACL SETUSER retries on >password ~retryhttp:* +evalsha +eval +hmget +hset +pexpire +time
//
// The Client must have dial, read and write timeouts, as clients of go-redis have by default.
// After an outage, the balance decides again within the longer of the dial and the read timeout, and
// an Interval. Three cases take longer. Each broken connection in the Client's pool costs one call.
// After PoolSize failed dials, go-redis dials once a second. A call to a node that has vanished
// without a word, whose successor has another address, ends only when go-redis gives up: after five
// dials of 5 s each by default, see DialTimeout and DialerRetries.
//
// After a failover by Sentinel or in a Cluster, the balance decides again within seconds of the
// promotion. The Bucket has a Cluster's client ask for the new master after each call that failed
// without an answer.
//
// # What to monitor
//
// Count the calls of OnError. After a failed call, the process decides alone until the next
// answer. An error that matches [ErrSlow] is no failure: an answer came late, or has not come yet,
// and the process decides alone meanwhile. If there are many, use a nearer Redis, a larger PoolSize
// or a longer Interval. If they come once per Interval, Redis is probably not reachable.
// Record Status as gauges; package otelretry does so. The command HGET Prefix:{key} tokens
// shows the balance. The balance is negative after the fleet has spent more than it had.
// go-redis logs failed dials itself, see redis.SetLogger.
package redisbudget

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryhttp/retryhttp"
)

var _ retryhttp.Budget = (*Bucket)(nil)

// Bucket is a [retryhttp.Budget] whose tokens many processes share. Only Client must be set.
// Share one Bucket among the Transports of a process. A Bucket must not be changed or copied
// after first use. Its methods are safe for concurrent use.
//
// Burst and Window work as in a [retryhttp.TokenBucket], for the fleet as a whole. The balance holds
// at most max(Burst, Ratio · rate · Window) tokens, where rate is the recent rate of the fleet's
// successes. Set the fields alike in all processes: each call uses the settings of its process.
//
// Each process judges by its own results whether a success earns HealthyRatio or Ratio. It may overdraw the
// balance for its own slow attempts, even if it has spent its share. A retry that is refused may
// wait until a success of its own process earns it.
//
// A process learns of other processes' retries with its next answer. Until then it may spend its
// share of the balance that it last knew, and at least one token. So a fleet in a storm spends at
// most twice its balance, and one more retry for each process, beside what its processes overdraw.
// While the capacity is the Burst, the shares are not known, and a process may spend all that it
// last knew. The debt is booked, up to the capacity, and the fleet must earn it before its next
// retry.
//
// A process has one retry of its own after a rest, in which for a Window there was neither a failure nor a
// hedge. A success has come since its last failure, or none for 32 Windows, then for 64, and so on. A
// service whose first attempts fail after each pause may need more: a [retryhttp.TokenBucket] has them.
//
// The price is paid by a process whose requests fail while the others' succeed, or that has just
// started. After each answer it may spend its share again, so it can have the whole balance, but
// not within one round trip.
type Bucket struct {
	// Client talks to Redis. The caller closes it, after the Bucket. With a nil Client, nothing is
	// shared, and each process decides alone.
	Client redis.UniversalClient

	// Prefix begins the keys in Redis, which are Prefix:{key}. A { in it becomes %7B. "" means
	// "retryhttp". Change it to keep several fleets apart.
	Prefix string

	// Ratio is how many retries each success earns while most attempts of its process fail. 0 means
	// 0.1. Negative or NaN means none, ever. Set Ratio to bound retries to this share of the
	// successes at all times: HealthyRatio is then the same, unless it is set too.
	Ratio float64

	// HealthyRatio is how many retries each success earns while most attempts of its process succeed. 0 means
	// 0.5, or Ratio if that is set. Less than Ratio, or NaN, means Ratio.
	HealthyRatio float64

	// Burst is the number of tokens at the start, and the least capacity. 0 means 20, and a negative
	// number means none. It is the reserve of the whole fleet, so it may be larger than a
	// TokenBucket's.
	Burst int

	// Window gives the balance room for what successes at the fleet's rate earn in this time. 0 means
	// 20 s, and a negative value means no room beyond Burst.
	Window time.Duration

	// Interval is the time between the regular calls of a process in use. 0 or less means 1 s. A
	// longer Interval makes fewer calls, and a process learns later what the others have spent.
	Interval time.Duration

	// Key returns the balance that a request draws on. Nil means one balance per URL.Host. The key stands
	// in Redis as it is, for everybody to see who may look there: of a credential, return a hash.
	Key func(*http.Request) string

	// OnError, if not nil, is called after a call that failed, or that could not set the expiry, at
	// most once per Interval. It is also called with an error that matches ErrSlow, when an answer
	// comes late, and while a call waits for its answer: at most once per Interval, and not within an
	// Interval after another error. It is never called concurrently. It runs in the background, so it
	// may block. Its panic is dropped. The error wraps the Client's error, if there is one. Its text
	// contains neither a password nor a key, unless a hook of the Client adds one.
	OnError func(error)

	once     sync.Once
	settings settings
	accounts sync.Map // string to *account; its Load takes no lock
	start    time.Time
	crowd    *account     // shared by all keys for which there is no room
	full     atomic.Int64 // how long after start there is no room for further accounts

	mu     sync.Mutex // serializes changes to accounts' set of keys
	count  int        // number of accounts; guarded by mu
	swept  time.Time  // when makeRoom last looked through accounts; guarded by mu
	closed bool       // guarded by mu

	lanes lanes
	over  atomic.Bool // Close has returned, and calls that wait in a lane are not sent
	hook  hook
}

// Withdraw takes what r costs, or reports false, as a [retryhttp.TokenBucket] does. A Bucket whose
// successes earn nothing, or that has no room for a token, returns an infinite cost with a refusal.
func (b *Bucket) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	b.update(r.Request, func(a *account, now time.Time) {
		if r.Stop == "" || isDown(&r) {
			a.draw(now)
		}
		if !r.Again {
			a.fail(&r, now)
		}
		if r.Stop == "" {
			cost, ok = a.withdraw(now, a.termsOf(&r))
		}
		if s := a.settings; !ok && (s.earns(false) == 0 || s.burst == 0 && s.window == 0) {
			cost = math.Inf(1)
		}
	})
	return cost, ok
}

// Refund gives back the cost of a Withdraw, if there is room. A cost below 0, or NaN, is nothing. While
// Redis does not answer, a refund of what was reported before is lost to the fleet.
func (b *Bucket) Refund(req *http.Request, cost float64) {
	if cost >= 0 {
		b.update(req, func(a *account, now time.Time) {
			a.draw(now)
			a.refund(cost)
		})
	}
}

// Deposit credits a success.
func (b *Bucket) Deposit(req *http.Request) {
	key := b.key(req)
	for {
		a := b.account(key)
		n := a.deposits.Add(1)
		if n%foldEvery == 0 {
			a.tryFold()
		}
		if a.due.Load() || a.noteDeposit() {
			return
		}
		// The account was dropped meanwhile, and the deposit with it.
	}
}

// Status returns the state of the balance that req draws on, as known to this process, for gauges.
// Status makes no call, and adds no balance.
//
// A debt is 0 Tokens. Sparing is about a success of this process, and is never true if HealthyRatio
// and Ratio are equal. If Shared is false, the process decides alone: the last call has failed or takes
// too long, no answer has come yet, or the Bucket is closed. An unused Bucket makes no calls, so its
// view grows old. Fleet is always true.
func (b *Bucket) Status(req *http.Request) retryhttp.BucketStatus {
	a, ok := b.find(b.key(req))
	if !ok {
		a = b.stranger()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.fold(now)
	s := retryhttp.BucketStatus{
		Tokens:  max(a.balance(now), 0),
		Sparing: a.health.poor && a.settings.earns(true) < a.settings.earns(false),
		Fleet:   true,
		Shared:  a.viewDecides(now),
	}
	if a.rested || a.hasRested(now) {
		s.Tokens = max(s.Tokens, 1)
	}
	if a.view.known {
		s.Age = now.Sub(a.view.asked)
	}
	return s
}

// Close sends unreported amounts to Redis, and waits at most a second. If that fails, the
// error matches go-redis's error, if there is one, or context.DeadlineExceeded. After Close,
// the process decides alone, and makes no call. A second Close returns nil. Close does not
// close the Client.
//
// Call Close in a process that lives for seconds. In any other process, no resource depends on
// Close: a Bucket that is no longer used stops calling.
func (b *Bucket) Close() error {
	if !b.markClosed() {
		return nil
	}
	defer b.over.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	ended := make(chan error)
	open := 0
	b.accounts.Range(func(_, v any) bool {
		if a := v.(*account); a.close() {
			open++
			go a.reportRest(ctx, func(err error) {
				select {
				case ended <- err:
				case <-ctx.Done():
				}
			})
		}
		return true
	})
	var first error
	for ; open > 0; open-- {
		select {
		case err := <-ended:
			if first == nil {
				first = err
			}
		case <-ctx.Done():
			return fmt.Errorf("redisbudget: not all was reported: %w", ctx.Err())
		}
	}
	return first
}

// markClosed marks b as closed, and reports whether b was open.
func (b *Bucket) markClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.closed
	b.closed = true
	return !was
}

// update runs f on req's account, with the account's lock held. It looks for the account again
// if that was dropped meanwhile.
func (b *Bucket) update(req *http.Request, f func(*account, time.Time)) {
	key := b.key(req)
	for !b.account(key).update(f) {
	}
}

// key returns the key of req. A gauge may be asked about no request, which has the key "".
func (b *Bucket) key(req *http.Request) string {
	switch {
	case req == nil || req.URL == nil: // as for a TokenBucket: no base sends such a request
		return ""
	case b.Key != nil:
		return b.Key(req)
	}
	return req.URL.Host
}
