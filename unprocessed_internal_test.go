package retryhttp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestErrorsOfOtherModulesAreToldByName(t *testing.T) {
	const here = "github.com/retryhttp/retryhttp"
	err := statusError(503)
	assert.True(t, isNamed(err, here, "statusError"))
	assert.True(t, isNamed(&err, here, "statusError"))
	assert.False(t, isNamed(err, here, "Error"))
	assert.False(t, isNamed(err, here+"/http2", "statusError"))
	assert.False(t, isNamed((*Error)(nil), here, "Error"))
	assert.False(t, isNamed(nil, "", ""))

	refused := &streamError{Code: refusedStream}
	assert.True(t, hasCode(refused, "Code", refusedStream))
	assert.True(t, hasCode(*refused, "Code", refusedStream))
	assert.False(t, hasCode(refused, "Code", requestRejected))
	assert.False(t, hasCode(refused, "Cause", 0), "not a number")
	assert.False(t, hasCode(refused, "Number", 0), "no such field")
	assert.False(t, hasCode(err, "Code", 0), "not a struct")
}
