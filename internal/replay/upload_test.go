package replay

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// holds is whether a body needs a context.
type holds bool

func (h *holds) Hold(needs bool) { *h = holds(needs) }

func TestUploadHasNoCopyIfGetBodyHasNone(t *testing.T) {
	for _, want := range []error{nil, errors.New("gone")} {
		req, err := http.NewRequest(http.MethodPut, "http://host.example/", io.MultiReader(strings.NewReader(text)))
		require.NoError(t, err)
		req.GetBody = func() (io.ReadCloser, error) { return nil, want }
		held := new(holds)
		Watch(req, held)
		body, err := req.GetBody()
		assert.Nil(t, body)
		assert.Equal(t, want, err)
		assert.Equal(t, holds(true), *held)
		require.NoError(t, req.Body.Close())
		assert.False(t, bool(*held))
	}
}

// A Read of a body that is over needs no context: nobody would give it back.
func TestUploadThatIsOverNeedsNoContext(t *testing.T) {
	req, err := http.NewRequest(http.MethodPut, "http://host.example/", textBody())
	require.NoError(t, err)
	req.GetBody = func() (io.ReadCloser, error) { return textBody(), nil }
	held := new(holds)
	Watch(req, held)
	hashed, err := req.GetBody()
	require.NoError(t, err)
	readAll(t, hashed)
	assert.Equal(t, holds(true), *held)
	readAll(t, req.Body)
	require.NoError(t, req.Body.Close())
	assert.False(t, bool(*held))
	for _, body := range []io.Reader{hashed, req.Body} {
		_, _ = body.Read(make([]byte, 1))
		assert.False(t, bool(*held))
	}
}
