package retryhttp

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/pooled"
)

func TestNilBaseIsThePools(t *testing.T) {
	assert.IsType(t, pooled.New(), New(nil, Policy{}).base)
}
