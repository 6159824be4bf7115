package retryhttp

import (
	"context"
	"net/http"
)

// AttemptNumber returns which attempt of a request is made with ctx: 1 for the
// first, 2 for the first retry. It is meant for what is beneath a Transport, and
// sees the attempt's request or a context derived from it: to sign, trace or log
// each attempt. A context that has not come through a Transport has the number 1.
//
// Where Transports lie on top of each other, the inner one counts on from the
// number of the outer one's attempt. What net/http resends by itself is not counted.
// Contexts are inherited: a request that is made on the way of another, for a token
// say, with that one's context, begins at its number.
func AttemptNumber(ctx context.Context) int {
	if n, ok := ctx.Value(numberKey{}).(*numbered); ok {
		return n.number
	}
	return 1
}

// numbered is the context of an attempt, and the copy of the request that has it: one
// object instead of two. A first attempt that sends the caller's own request does
// without.
type numbered struct {
	context.Context
	number  int
	request http.Request
}

type numberKey struct{}

func (n *numbered) Value(key any) any {
	if key == (numberKey{}) {
		return n
	}
	return n.Context.Value(key)
}

// String tells no more than that, for the struct has the request's header.
func (n *numbered) String() string { return "retryhttp.attempt" }

// copyForAttempt returns a copy of req for the attempt that follows on so many
// others. The base may use what it got until the response's body has been closed,
// and after an error for as long as it likes.
func copyForAttempt(req *http.Request, others int) *http.Request {
	ctx := req.Context()
	if others == 0 {
		return req.WithContext(ctx)
	}
	n := &numbered{Context: ctx, number: AttemptNumber(ctx) + others}
	n.request = *req.WithContext(n)
	return &n.request
}
