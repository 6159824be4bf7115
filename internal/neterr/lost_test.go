package neterr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/neterr"
)

// The streams of other modules are tested where these modules are imported.
func TestLostIsAboutTheConnection(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	for _, err := range []error{
		io.ErrUnexpectedEOF, reset, fmt.Errorf("wrapped: %w", reset), context.DeadlineExceeded,
		errors.Join(errors.New("digest mismatch"), reset), several{reset}, fmt.Errorf("wrapped: %w", several{reset}),
	} {
		assert.True(t, neterr.Lost(err), "%v", err)
	}
	for _, err := range []error{
		nil, io.EOF, context.Canceled, errors.New("digest mismatch"), &http.MaxBytesError{Limit: 1}, http.ErrBodyReadAfterClose,
		fmt.Errorf("wrapped: %w", errors.New("digest mismatch")),
		several{errors.New("digest mismatch")}, fmt.Errorf("wrapped: %w", several{errors.New("digest mismatch")}),
	} {
		assert.False(t, neterr.Lost(err), "%v", err)
	}
}

func TestGivenUpIsAboutTheRequest(t *testing.T) {
	for err, want := range map[error]bool{
		context.Canceled: true, http.ErrBodyReadAfterClose: true, errors.New("http2: response body closed"): true,
		io.ErrUnexpectedEOF: false, errors.New("net/http: server replied with more than declared Content-Length; truncated"): false,
	} {
		assert.Equal(t, want, neterr.GivenUp(err), "%v", err)
	}
}

// several is a net.Error whatever it holds, like the Error of a Transport.
type several []error

func (several) Error() string     { return "several" }
func (s several) Unwrap() []error { return s }
func (several) Timeout() bool     { return false }
func (several) Temporary() bool   { return false }
