package retryhttp

import (
	"cmp"
	"net/http"
	"time"

	"github.com/retryhttp/retryhttp/internal/outage"
)

// Gate holds retries back while their host is down. The host's successes release them. The zero
// value is ready to use. Share a Gate among Transports that call the same hosts. It must not be
// changed or copied after first use.
//
// A key is down when at least 8 results in a row were failures, the first of them at least 100 ms ago.
// Each success then releases a quarter of a retry, or more if there are no first attempts. A
// Retry-After on a 429 closes the key for its time, or for MaxRetryAfter if that is shorter.
// So does an exhausted [RateLimit], if its reset is within MaxRetryAfter. Each retry is held for
// at most Hold, and at most half of the time left; in line for a token, three quarters of it. There are at most 4,096 keys.
//
// If Key is nil, a closed key holds only requests with the same credentials: the header fields
// Authorization, X-Api-Key, Api-Key and X-Goog-Api-Key. The Gate keeps a hash of them, for at most 1,024
// credentials of each host. It does not see credentials that a RoundTripper below adds.
//
// A Retry-After on a 503 holds only the retry of its own request, because it often comes from one
// replica of many. For Status, and for first attempts if HoldFirst is set, it closes the key.
type Gate struct {
	// Hold is the longest that a retry is held, on top of its own wait, or waits in line for a token of
	// its Budget. 0 means 5 s. With a negative value nothing is held or counted, and there is no line:
	// Status is zero, and a TokenBucket takes an outage for an overload. Raise it for background work,
	// which can wait for the end of an outage.
	Hold time.Duration

	// HoldFirst makes first attempts wait as well, while their key is closed for no longer than they may
	// be held. Set it where a rate limit rejects what is sent too soon.
	HoldFirst bool

	// Key returns the key of a request. Requests with the same key go up and down together. Nil means
	// URL.Host. Set it if one host serves several services that fail independently.
	Key func(*http.Request) string

	hosts outage.Watch
}

const defaultHold = 5 * time.Second

// GateStatus is the state of a Gate's key. It may gain fields.
type GateStatus struct {
	Down   bool          // the key is down
	Closed time.Duration // for how long a Retry-After or a RateLimit closes it for the request
	Held   int           // how many requests with the key wait now
	InLine int           // how many of them wait for a token of their Budget
}

// Status returns the state of req's key, for gauges and for schedulers, which had better send
// something else meanwhile. Without results, a key is down for 10 s at most, since only new results
// can show that its host is well. Requests in line do not make a key down. Held counts requests with
// any credentials, and Closed is for req's. A nil req, or one without a URL, has the key "". If Key panics,
// the panic is the caller's.
func (g *Gate) Status(req *http.Request) GateStatus {
	var header http.Header
	if req != nil {
		header = req.Header
	}
	return GateStatus(g.hosts.Status(keyOf(req, g.Key), header))
}

// begin counts an attempt that is being sent. p is the Pass that the wait returned, or the zero Pass.
func (g *Gate) begin(req *http.Request, p outage.Pass) outage.Pass {
	return g.hosts.Begin(keyOf(req, g.Key), p)
}

// close closes the key of req for d, as its response asks. If that is a 503, the host is busy. Otherwise the
// client is limited, but a Key of the Gate's own knows best what shares a limit.
func (g *Gate) close(req *http.Request, d time.Duration, busy bool) {
	scope := outage.SameCredentials
	switch {
	case g.Hold < 0:
		return
	case busy:
		scope = outage.FirstAttempts
	case g.Key != nil:
		scope = outage.WholeHost
	}
	g.hosts.Close(keyOf(req, g.Key), d, req.Header, scope)
}

// end records the verdict of an attempt, which is the first of its request or has the Pass p. It returns a mark,
// by which a later wait sees whether other attempts have begun since.
func (g *Gate) end(req *http.Request, p outage.Pass, v outage.Verdict, first bool) (mark uint32) {
	return g.hosts.End(keyOf(req, g.Key), p, v, first, g.hold())
}

func (g *Gate) hold() time.Duration {
	return cmp.Or(g.Hold, defaultHold)
}

func (g *Gate) blocks(req *http.Request) bool {
	s := g.Status(req)
	return s.Down || s.Closed > 0
}
