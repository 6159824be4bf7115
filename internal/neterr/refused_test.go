package neterr

import (
	"testing"

	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/stretchr/testify/assert"
)

type textError int

func (textError) Error() string { return "" }

type otherError struct {
	StreamID uint64
	Code     uint16
	Cause    string
}

func (otherError) Error() string { return "" }

// Each of these has one field of another name.
type (
	notOfStream struct {
		ID    uint32
		Code  uint16
		Cause error
	}
	withoutCode struct {
		StreamID uint32
		Kind     uint16
		Cause    error
	}
	withoutCause struct {
		StreamID uint32
		Code     uint16
		Reason   error
	}
)

func (notOfStream) Error() string  { return "" }
func (withoutCode) Error() string  { return "" }
func (withoutCause) Error() string { return "" }

func TestErrorWithFieldsOfOtherTypesIsNoStreamError(t *testing.T) {
	assert.True(t, StreamRefused(httperr.HTTP2{Code: refusedStream}))
	assert.False(t, StreamRefused(httperr.HTTP2{Code: refusedStream + 1}))
	assert.False(t, StreamRefused(otherError{Code: refusedStream}))
	assert.False(t, StreamRefused(notOfStream{Code: refusedStream}))
	assert.False(t, StreamRefused(withoutCode{Kind: refusedStream}))
	assert.False(t, StreamRefused(withoutCause{Code: refusedStream}))
	assert.False(t, StreamRefused(textError(refusedStream)), "not a struct")
	assert.False(t, StreamRefused(struct{ httperr.HTTP2 }{httperr.HTTP2{Code: refusedStream}}), "of one field")
}

func TestStreamErrorsOfOtherModulesAreRecognizedByName(t *testing.T) {
	const here = "github.com/retryhttp/retryhttp/internal/neterr"
	err := textError(503)
	assert.True(t, isNamed(err, here, "textError"))
	assert.True(t, isNamed(&err, here, "textError"))
	assert.False(t, isNamed(err, here, "otherError"))
	assert.False(t, isNamed(err, here+"/http2", "textError"))
	assert.False(t, isNamed((*textError)(nil), here, "textError"))
	assert.False(t, isNamed(nil, "", ""))
}
