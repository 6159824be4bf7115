package retryhttp

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/pooled"
)

func TestNilBaseIsThePooledTransport(t *testing.T) {
	base := New(nil, Policy{}).base
	require.IsType(t, &http.Transport{}, base)
	assert.Equal(t, pooled.Transport().HTTP2, base.(*http.Transport).HTTP2)
	assert.NotNil(t, base.(*http.Transport).HTTP2)
}
