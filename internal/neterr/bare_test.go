package neterr_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/neterr"
)

// broken is a connection on which nothing can be written. Its Close leaves a Read alone: otherwise the error of the Read
// might come first.
type broken struct{ net.Conn }

func (broken) Write([]byte) (int, error) { return 0, syscall.EPIPE }
func (broken) Close() error              { return nil }

// unsent returns the error of an http.ClientConn that could not write a request.
func unsent(t *testing.T) error {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return broken{client}, nil
	}}
	conn, err := transport.NewClientConn(t.Context(), "http", "service.example:80")
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://service.example/", nil)
	require.NoError(t, err)
	_, err = conn.RoundTrip(req)
	require.Error(t, err)
	return err
}

func TestRequestOfWhichNothingWasWrittenIsUnprocessed(t *testing.T) {
	err := unsent(t)
	assert.True(t, neterr.Unprocessed(err), "%T: %v", err, err)
	assert.False(t, neterr.Unprocessed(neterr.Bare(err)), "the pool's error does not show it")
	assert.Equal(t, syscall.EPIPE, neterr.Bare(err))
}

func TestBareKeepsOtherErrors(t *testing.T) {
	for _, err := range []error{net.ErrClosed, &net.OpError{Op: "read", Err: net.ErrClosed}, errors.New("other")} {
		assert.Equal(t, err, neterr.Bare(err))
		assert.False(t, neterr.Unprocessed(err), "%v", err)
	}
}

// An http.ClientConn sends nothing again, so its error is the cause alone.
func TestRequestThatAGoawayLeavesOutIsUnprocessed(t *testing.T) {
	gone := errors.New("http2: Transport received Server's graceful shutdown GOAWAY")
	assert.True(t, neterr.Unprocessed(gone))
	assert.True(t, neterr.StreamRefused(gone), "with a body that was written, too")
	for cause, refused := range map[string]bool{
		gone.Error(): true,
		"stream error: stream ID 1; REFUSED_STREAM": true,
		"stream error: stream ID 1; PROTOCOL_ERROR": false, // proves nothing
	} {
		err := fmt.Errorf("http2: Transport: cannot retry err [%s] after Request.Body was written; "+
			"define Request.GetBody to avoid this error", cause)
		assert.Equal(t, refused, neterr.StreamRefused(err), cause)
	}
}
