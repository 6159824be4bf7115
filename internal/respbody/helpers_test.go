package respbody_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/respbody"
)

var errLost = errors.New("lost")

// body gives its pieces, one with each Read, and then its end. Before the end, it waits for more.
type body struct {
	pieces []string
	end    any             // an error, or what Read panics with
	more   <-chan struct{} // nil: Read does not wait
	closes int
}

func (b *body) Read(p []byte) (int, error) {
	if len(b.pieces) > 0 {
		n := copy(p, b.pieces[0])
		b.pieces = b.pieces[1:]
		return n, nil
	}
	if b.more != nil {
		<-b.more
	}
	if err, ok := b.end.(error); ok {
		return 0, err
	}
	panic(b.end)
}

func (b *body) Close() error {
	b.closes++
	return nil
}

// closable is a body that may be closed while it is read. Its Close ends the Read.
type closable struct {
	*body
	ends context.CancelFunc
}

func (c closable) Close() error {
	c.ends()
	return c.body.Close()
}

func (closable) ClosableAs() io.ReadCloser { return http.NoBody }

// hanging returns a closable body whose Read waits for its Close.
func hanging(t *testing.T, pieces ...string) closable {
	t.Helper()
	closed, ends := context.WithCancel(t.Context())
	return closable{&body{pieces: pieces, more: closed.Done(), end: io.ErrClosedPipe}, ends}
}

// response returns a response of unknown length.
func response(status int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: status, ContentLength: -1, Body: body}
}

func get(t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
	require.NoError(t, err)
	return req
}

// bodyOf returns a Body whose attempt has the context.
func bodyOf(t *testing.T) (*respbody.Body, context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	return &respbody.Body{Cancel: cancel}, ctx
}
