package otelretry

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func TestWhoBringsNoBaseOrAnHTTPTransportGetsABase(t *testing.T) {
	none := New(nil, retryhttp.Policy{})
	require.IsType(t, &retryhttp.Base{}, none.base)
	assert.NotSame(t, none.base, New(nil, retryhttp.Policy{}).base, "each has its own")
	assert.IsType(t, &retryhttp.Base{}, New(new(http.Transport), retryhttp.Policy{}).base)
	own := retryhttp.NewBase(nil)
	assert.Same(t, own, New(own, retryhttp.Policy{}).base)
}
