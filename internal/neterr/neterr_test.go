package neterr_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/neterr"
)

func TestRequestThatCannotBeSentIsInvalid(t *testing.T) {
	for _, err := range []error{
		&net.AddrError{}, &net.ParseError{}, net.UnknownNetworkError("x"), url.EscapeError("%x"), url.InvalidHostError("x"),
	} {
		assert.True(t, neterr.InvalidRequest(fmt.Errorf("wrapped: %w", err)), "%T", err)
	}
	assert.False(t, neterr.InvalidRequest(errors.New("other")))
}

// wrapsNothing is an error with an Unwrap method, as some types have whose cause is optional.
type wrapsNothing struct{ error }

func (wrapsNothing) Unwrap() error { return nil }

func TestRequestMayHaveBeenSentIfTheErrorWrapsNothing(t *testing.T) {
	assert.False(t, neterr.NeverSent(wrapsNothing{errors.New("other")}))
}
