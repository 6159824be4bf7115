// Package fault breaks HTTP on order, and keeps account of what comes through.
//
// A [Server] takes requests and treats them as ordered: it answers before it has
// read them, in the middle, wrongly, slowly, or not at all. A [Proxy] in front of
// it does the same to connections. A [Ledger] knows what each request should be,
// and so what became of it. An [Upload] is a request's body in one of the ways
// in which a body can be given, and counts what is closed.
//
// An [Object] is what a server sends to those who ask for it, in one version and then
// another. A [Download] says how its bodies break off, and how requests for the rest are
// answered. A [Delivery] is what the caller has got, byte by byte.
package fault

// Effect is what a fault makes of the attempt that meets it.
type Effect int

const (
	Harmless   Effect = iota // it is slow or odd, and succeeds
	Fails                    // it ends in an error or a response that another attempt may not meet
	Fatal                    // it ends in an error that another attempt would meet again
	Spoils                   // its response is a success whose body breaks
	Hangs                    // it has no response header until somebody's patience ends
	SpoilHangs               // its response is a success whose body never ends
)

// Hangs reports whether the client must end the attempt.
func (e Effect) Hangs() bool { return e == Hangs || e == SpoilHangs }

// A Fault is one way to misbehave. It belongs to the server if it has an
// Answer, and to the proxy if it has a Link.
type Fault struct {
	Name   string
	Effect Effect

	// Answer is what the server does instead of a good answer.
	Answer func(*Exchange)
	// Wire means that the Answer takes over an HTTP/1 connection.
	Wire bool

	// Link is what the proxy does to a connection.
	Link *Link

	// GoesAway means that the server ends the connection, over HTTP/2 with a GOAWAY.
	GoesAway bool

	// Unread means that the request is not read before the client gives up.
	Unread bool
	// NeedsBody means that without a request body this does not happen.
	NeedsBody bool
	// Reused means that this happens to the second request on a connection.
	Reused bool
}
