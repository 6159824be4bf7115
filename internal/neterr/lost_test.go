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
	} {
		assert.True(t, neterr.Lost(err), "%v", err)
	}
	for _, err := range []error{
		nil, io.EOF, context.Canceled, errors.New("digest mismatch"), &http.MaxBytesError{Limit: 1}, http.ErrBodyReadAfterClose,
		fmt.Errorf("wrapped: %w", errors.New("digest mismatch")),
	} {
		assert.False(t, neterr.Lost(err), "%v", err)
	}
}
