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

// newGuarded returns a body, a request whose body guards it, and the guard.
func newGuarded(t *testing.T) (*bodies.Tracked, *http.Request, *guarded) {
	t.Helper()
	body := &bodies.Tracked{Reader: strings.NewReader("content")}
	req, err := http.NewRequest(http.MethodPut, "http://service.example/", body)
	require.NoError(t, err)
	return body, req, guardBody(req)
}

// net/http's HTTP/2 may close a body, and then read it.
func TestBodyThatIsClosedBeforeItIsReadIsClosedOnce(t *testing.T) {
	for _, end := range []func(*guarded){
		func(g *guarded) { assert.False(t, g.failed(false)) },
		func(g *guarded) { g.answered(func() {}) },
	} {
		body, req, g := newGuarded(t)
		require.NoError(t, req.Body.Close())
		_, err := io.ReadAll(req.Body)
		assert.Error(t, err)
		end(g)
		require.NoError(t, req.Body.Close())
		assert.EqualValues(t, 1, body.Closes.Load())
	}
}

func TestBodyThatIsClosedUnreadCanBeSentAgain(t *testing.T) {
	body, req, g := newGuarded(t)
	require.NoError(t, req.Body.Close())
	_, err := io.ReadAll(req.Body)
	assert.Error(t, err)
	assert.True(t, g.failed(true))
	assert.Zero(t, body.Closes.Load())
	content, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.Equal(t, "content", string(content))
}

func TestBodyThatIsReadCannotBeSentAgain(t *testing.T) {
	body, req, g := newGuarded(t)
	_, err := io.ReadFull(req.Body, make([]byte, 1))
	require.NoError(t, err)
	assert.False(t, g.failed(true))
	assert.EqualValues(t, 1, body.Closes.Load())
	_, err = req.Body.Read(make([]byte, 1))
	assert.ErrorIs(t, err, http.ErrBodyReadAfterClose, "the caller may use its body again")
	require.NoError(t, req.Body.Close())
	assert.EqualValues(t, 1, body.Closes.Load())
}

func TestBodyThatIsReadAfterItIsClosedIsClosedOnce(t *testing.T) {
	for _, end := range []func(*guarded){
		func(g *guarded) { assert.False(t, g.failed(true)) },
		func(g *guarded) { g.answered(func() {}) },
	} {
		body, req, g := newGuarded(t)
		_, err := io.ReadAll(req.Body)
		require.NoError(t, err)
		require.NoError(t, req.Body.Close())
		_, err = req.Body.Read(make([]byte, 1))
		assert.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		end(g)
		assert.EqualValues(t, 1, body.Closes.Load())
	}
}

// A sender that has failed may still run.
func TestBodyThatIsSentAgainIsNotReadByTheSenderBefore(t *testing.T) {
	body, req, g := newGuarded(t)
	assert.True(t, g.failed(true))
	_, err := req.Body.Read(make([]byte, 1))
	assert.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	require.NoError(t, req.Body.Close())
	assert.Zero(t, body.Closes.Load())
}

func TestBodyIsClosedAfterAnEarlyAnswer(t *testing.T) {
	body, req, g := newGuarded(t)
	var sent int
	g.answered(func() { sent++ })
	assert.Zero(t, body.Closes.Load()+int32(sent))
	for range 2 {
		require.NoError(t, req.Body.Close())
		assert.EqualValues(t, 1, body.Closes.Load())
		assert.Equal(t, 1, sent)
	}
	g.answered(func() { sent++ })
	assert.Equal(t, 2, sent, "it was closed before")
}

func TestRequestWithoutBodyHasNoGuard(t *testing.T) {
	for _, body := range []io.Reader{nil, http.NoBody} {
		req, err := http.NewRequest(http.MethodPut, "http://service.example/", body)
		require.NoError(t, err)
		before := req.Body
		g := guardBody(req)
		assert.Equal(t, before, req.Body)
		assert.True(t, g.failed(true))
		assert.False(t, g.failed(false))
		var sent int
		g.answered(func() { sent++ })
		assert.Equal(t, 1, sent)
	}
}
