package neterr

import (
	"testing"

	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/stretchr/testify/assert"
)

type codeError struct {
	Code  uint32
	Cause string
}

func (codeError) Error() string { return "" }

type textError int

func (textError) Error() string { return "" }

// emptyError has the fields of an error that it does not have.
type emptyError struct{ *codeError }

func (emptyError) Error() string { return "" }

type otherError struct {
	StreamID uint64
	Code     uint16
	Cause    string
}

func (otherError) Error() string { return "" }

func TestErrorWithFieldsOfOtherTypesIsNoStreamError(t *testing.T) {
	assert.True(t, StreamRefused(httperr.HTTP2{Code: refusedStream}))
	assert.False(t, StreamRefused(httperr.HTTP2{Code: refusedStream + 1}))
	assert.False(t, StreamRefused(otherError{Code: refusedStream}))
	assert.False(t, StreamRefused(struct{ httperr.HTTP2 }{httperr.HTTP2{Code: refusedStream}}), "of one field")
}

func TestStreamErrorsOfOtherModulesAreRecognizedByName(t *testing.T) {
	const here = "github.com/retryhttp/retryhttp/internal/neterr"
	err := textError(503)
	assert.True(t, isNamed(err, here, "textError"))
	assert.True(t, isNamed(&err, here, "textError"))
	assert.False(t, isNamed(err, here, "codeError"))
	assert.False(t, isNamed(err, here+"/http2", "textError"))
	assert.False(t, isNamed((*codeError)(nil), here, "codeError"))
	assert.False(t, isNamed(nil, "", ""))

	refused := &codeError{refusedStream, "cause"}
	assert.True(t, hasCode(refused, "Code", refusedStream))
	assert.True(t, hasCode(*refused, "Code", refusedStream))
	assert.False(t, hasCode(refused, "Code", requestRejected))
	assert.False(t, hasCode(refused, "Cause", 0), "not a number")
	assert.False(t, hasCode(refused, "Number", 0), "no such field")
	assert.False(t, hasCode(err, "Code", 0), "not a struct")
	assert.False(t, hasCode(emptyError{}, "Code", refusedStream), "in nothing")
}
