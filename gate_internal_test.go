package retryhttp

import (
	"net/http"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp/internal/outage"
)

// Exhausted is what RateLimit finds, for a Gate.
var Exhausted = exhausted

// Close closes a key, as a response does.
func (g *Gate) Close(key string, d time.Duration) { g.hosts.Close(key, d, nil, outage.WholeHost) }

// CloseFor closes a key for a request's credentials, as a response does.
func CloseFor(g *Gate, req *http.Request, d time.Duration) {
	g.hosts.Close(keyOf(req, g.Key), d, req.Header, outage.SameCredentials)
}

// InTrouble reports what a Gate counts for a key beyond its run of failures: attempts
// under way, requests that are held or on their way to the line, and a count of troubles that does not fit.
func InTrouble(g *Gate, key string) int64 {
	s := g.hosts.Inspect(key)
	if !s.Sound {
		s.Open += 1_000_000
	}
	return s.Open
}

// LimitedCredentials is how many credentials of a key have a closure.
func LimitedCredentials(g *Gate, key string) int { return g.hosts.Inspect(key).Limited }

// FailuresInARow is the run of failures of a key.
func FailuresInARow(g *Gate, key string) int64 { return g.hosts.Inspect(key).Failures }

// Keys is how many keys a Gate knows.
func Keys(g *Gate) int { return g.hosts.Inspect("").Keys }

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
			if failed {
				other, _ := http.NewRequest(http.MethodGet, "http://other.example/", nil)
				g.end(other, outage.Pass{}, evidence{verdict: outage.Down})
			}
			b.ReportAllocs()
			for b.Loop() {
				got.Response = resp
				var ps outage.Pass
				if !g.calm() {
					ps = g.begin(req, ps)
				}
				if closed := got.closes(time.Minute); closed > 0 || !got.succeeded() || !g.calm() {
					g.end(req, ps, evidence{verdict: got.verdict(req), first: true, closed: closed})
				}
			}
		})
	}
}
