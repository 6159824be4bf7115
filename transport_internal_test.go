package retryhttp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNilBaseIsANewBase(t *testing.T) {
	assert.IsType(t, NewBase(nil), New(nil, Policy{}).base)
}
