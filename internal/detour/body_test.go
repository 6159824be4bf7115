package detour

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/bodies"
)

// net/http's HTTP/2 may close a body, and then read it.
func TestBodyThatIsClosedBeforeItIsReadIsClosedOnce(t *testing.T) {
	for _, failed := range []bool{false, true} {
		body := &bodies.Tracked{Reader: strings.NewReader("content")}
		req, err := http.NewRequest(http.MethodPut, "http://service.example/", body)
		require.NoError(t, err)
		g := guardBody(req)
		require.NoError(t, req.Body.Close())
		_, err = io.ReadAll(req.Body)
		assert.Error(t, err)
		assert.False(t, g.end(failed, false))
		require.NoError(t, req.Body.Close())
		assert.EqualValues(t, 1, body.Closes.Load())
	}
}

func TestBodyThatIsClosedUnreadCanBeSentAgain(t *testing.T) {
	body := &bodies.Tracked{Reader: strings.NewReader("content")}
	req, err := http.NewRequest(http.MethodPut, "http://service.example/", body)
	require.NoError(t, err)
	g := guardBody(req)
	require.NoError(t, req.Body.Close())
	_, err = io.ReadAll(req.Body)
	assert.Error(t, err)
	assert.True(t, g.end(true, true))
	assert.Zero(t, body.Closes.Load())
	content, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.Equal(t, "content", string(content))
}
