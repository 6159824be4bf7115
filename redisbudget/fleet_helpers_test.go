package redisbudget_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/retryhttp/retryhttp/redisbudget"
)

const roundTrip = 20 * time.Millisecond

// fleet is processes with a Bucket each. All their requests are to one host.
type fleet struct {
	engine    *engine
	processes []*redisbudget.Bucket
	req       *http.Request
}

// startFleet starts processes, whose calls take a roundTrip. Each success earns a tenth of a retry.
// A Bucket has the default settings otherwise, unless set changes them.
func startFleet(t *testing.T, n int, set func(i int, b *redisbudget.Bucket)) *fleet {
	f := &fleet{engine: startEngine(t), req: get(t, host)}
	f.engine.onCall(func(*server.Peer, []string) bool { time.Sleep(roundTrip); return false })
	for i := range n {
		b := &redisbudget.Bucket{Client: f.engine.client(t), Ratio: 0.1}
		if set != nil {
			set(i, b)
		}
		f.processes = append(f.processes, b)
	}
	return f
}

// each has each process take a step once in a time, one process after the other.
func (f *fleet) each(every, d time.Duration, step func(i int, b *redisbudget.Bucket)) {
	gap := every / time.Duration(len(f.processes))
	for i := range int(d / gap) {
		process := i % len(f.processes)
		step(process, f.processes[process])
		time.Sleep(gap)
	}
}

// succeed has each process succeed once in a time, and lets all of them report it.
func (f *fleet) succeed(every, d time.Duration) {
	f.each(every, d, func(_ int, b *redisbudget.Bucket) { b.Deposit(f.req) })
	time.Sleep(2 * interval)
}

// balance is the tokens in the engine.
func (f *fleet) balance(t *testing.T) float64 {
	t.Helper()
	return f.engine.stored(t, "tokens")
}

// beyond is how much a fleet may be granted beyond its balance: each process what it
// withdraws within a round trip and a pause between its calls, and at most its view.
func (f *fleet) beyond(every time.Duration) float64 {
	sum := 0.0
	for _, b := range f.processes {
		sum += min(b.Status(f.req).Tokens, unheard(every))
	}
	return sum
}

// unheard is how much a process that withdraws once in a time is granted at most before it
// hears what the others were granted.
func unheard(every time.Duration) float64 { return float64((pause+roundTrip)/every + 1) }
