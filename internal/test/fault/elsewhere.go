package fault

import "net/http"

// What follows is for the faults of servers that are made elsewhere, which know
// their own ResponseWriter, and can do more with it than any server can.

// Writer is the handler's ResponseWriter.
func (x *Exchange) Writer() http.ResponseWriter { return x.w }

// Receive reads the whole request, and reports whether it came whole.
func (x *Exchange) Receive() bool { return x.receive() }

// Glance reads the beginning of the request.
func (x *Exchange) Glance() { x.glance() }

// Head sends a response header, and some of a body of the length; -1 is a
// length that is not told.
func (x *Exchange) Head(status, length int, some string) { x.head(status, length, some) }

// Succeed does what a server should.
func (x *Exchange) Succeed() { x.succeed() }

// Hang waits until the client has gone, or the server goes.
func (x *Exchange) Hang() { x.hang() }

// Unclosed is how many of the bodies were never closed. It is for a base that
// closes twice what [Upload.Closed] counts.
func (u *Upload) Unclosed() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, c := range u.closers {
		if c.times() == 0 {
			n++
		}
	}
	return n
}
