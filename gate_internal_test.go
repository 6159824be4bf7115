package retryhttp

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Exhausted is what RateLimit finds, for a Gate.
var Exhausted = exhausted

// Close closes a key, as a response does.
func (g *Gate) Close(key string, d time.Duration) {
	req := requestForKey(key)
	g.update(req, func(f *fate, now time.Time) { f.close(now, d, req, true) })
	g.closed.Store(true)
}

// InTrouble reports what a Gate counts for a key beyond its run of failures: attempts
// under way, requests that are held, and a count of troubles that does not fit.
func InTrouble(g *Gate, key string) (n int64) {
	want := int64(0)
	for k, f := range g.fates.All() {
		f.mu.Lock()
		if k == key {
			n = int64(uint32(f.underWay.Load())) + f.queued.Load() + f.waiting.Load()
		}
		want += min(f.run.Load(), 1) + min(f.queued.Load(), 1)
		f.mu.Unlock()
	}
	if trouble := g.trouble.Load(); trouble != want {
		n += 1_000_000
	}
	return n
}

// CloseFor closes a key for a request's credentials, as a response does.
func CloseFor(g *Gate, req *http.Request, d time.Duration) {
	g.update(req, func(f *fate, now time.Time) { f.close(now, d, req, false) })
}

// LimitedBy has a closure for each of the credentials of a key.
func LimitedBy(g *Gate, key string) map[uint64]*closure {
	f := g.fates.Find(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closures.limited
}

// LimitedCredentials is how many credentials of a key have a closure.
func LimitedCredentials(g *Gate, key string) int { return len(LimitedBy(g, key)) }

// FailuresInARow is the run of failures of a key.
func FailuresInARow(g *Gate, key string) int64 {
	f := g.fates.Find(key)
	if f == nil {
		return 0
	}
	return f.run.Load()
}

// Keys is how many keys a Gate knows.
func Keys(g *Gate) int {
	n := 0
	for range g.fates.All() {
		n++
	}
	return n
}

// answering is a base that answers with a status.
type answering struct{ status *int }

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: *a.status, Body: http.NoBody, Request: req}, nil
}

// While nothing is held, a success does not wait for the lock.
func TestGateOfASuccessTakesNoLock(t *testing.T) {
	for _, first := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := &Gate{First: first}
			status := http.StatusServiceUnavailable
			rt := New(answering{&status}, Policy{Gate: g, MaxAttempts: 1})
			req := requestForKey("host")
			send := func() {
				_, err := rt.RoundTrip(req)
				require.NoError(t, err)
			}
			g.Close("host", time.Second)
			CloseFor(g, req, time.Second)
			time.Sleep(time.Minute)
			send() // a failure, after the closure
			status = http.StatusOK
			f := g.fates.Find("host")
			f.mu.Lock()
			defer f.mu.Unlock()
			send() // ends the run of failures
			send()
			assert.Zero(t, g.trouble.Load())
		})
	}
}

// BenchmarkGateOfASuccess is all that a Gate does while all is well. The header has what
// usual ones have.
func BenchmarkGateOfASuccess(b *testing.B) {
	req, _ := http.NewRequest(http.MethodGet, "http://host.example/", nil)
	resp := &http.Response{StatusCode: 200, Header: http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"123"}, "Date": {"Mon, 02 Jan 2006 15:04:05 GMT"},
		"Server": {"nginx"}, "Cache-Control": {"no-store"}, "Etag": {`"x"`}, "Vary": {"Accept"},
		"X-Request-Id": {"1"}, "Strict-Transport-Security": {"max-age=1"}, "Connection": {"keep-alive"},
	}}
	got := result{Attempt: Attempt{Response: resp}, responded: true, status: 200}
	for name, failed := range map[string]bool{"all is well": false, "a host that is down": true} {
		b.Run(name, func(b *testing.B) {
			g := new(Gate)
			p := Policy{MaxRetryAfter: time.Minute}
			if failed {
				other, _ := http.NewRequest(http.MethodGet, "http://other.example/", nil)
				g.end(other, pass{}, evidence{verdict: saysDown})
			}
			b.ReportAllocs()
			for b.Loop() {
				got.Response = resp
				var ps pass
				if !g.calm() {
					ps = g.begin(req, ps)
				}
				if closed := got.closes(&p); closed > 0 || !got.succeeded() || !g.calm() {
					g.end(req, ps, evidence{verdict: got.verdict(req), first: true, closed: closed})
				}
			}
		})
	}
}
