package closing_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// saying is a body that says whether it may be closed while it is read.
type saying struct {
	io.ReadCloser
	may bool
}

func (s saying) ClosableWhileRead() bool { return s.may }

// wrapping is a body that names the body on which the answer depends.
type wrapping struct {
	io.ReadCloser
	as io.ReadCloser
}

func (w wrapping) ClosableAs() io.ReadCloser { return w.as }

// bodyEOFSignal has the name of one of net/http's bodies.
type bodyEOFSignal struct{ io.ReadCloser }

func TestWhileReadTrustsNetHTTPAlone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "body")
	}))
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	other := io.NopCloser(new(bytes.Buffer))
	assert.True(t, closing.WhileRead(resp.Body))
	assert.False(t, closing.WhileRead(other))
	assert.False(t, closing.WhileRead(http.MaxBytesReader(nil, resp.Body, 10)), "it may wrap anything")
	assert.False(t, closing.WhileRead(&bodyEOFSignal{resp.Body}), "of another package")
	assert.True(t, closing.WhileRead(saying{other, true}))
	assert.False(t, closing.WhileRead(saying{resp.Body, false}))
	assert.True(t, closing.WhileRead(wrapping{other, resp.Body}))
	assert.True(t, closing.WhileRead(wrapping{other, wrapping{other, resp.Body}}))
	assert.False(t, closing.WhileRead(wrapping{resp.Body, other}))
	assert.False(t, closing.WhileRead(wrapping{resp.Body, nil}))
}
