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

// wrapping is a body that names the body on which the answer depends.
type wrapping struct {
	io.ReadCloser
	as io.ReadCloser
}

func (w wrapping) ClosableAs() io.ReadCloser { return w.as }

// bodyEOFSignal has the name of one of net/http's bodies.
type bodyEOFSignal struct{ io.ReadCloser }

// bodyOf returns a response body of net/http.
func bodyOf(t *testing.T, http2, zipped bool) io.ReadCloser {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if zipped {
			w.Header().Set("Content-Encoding", "gzip")
		}
		_, _ = io.WriteString(w, "body")
	}))
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	resp, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, zipped, resp.Uncompressed)
	require.Equal(t, http2, resp.ProtoMajor == 2)
	return resp.Body
}

func TestWhileReadKnowsEachBodyOfNetHTTP(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, zipped := range []bool{false, true} {
			body := bodyOf(t, http2, zipped)
			assert.True(t, closing.WhileRead(body), "%T", body)
		}
	}
}

func TestWhileReadTrustsNetHTTPAlone(t *testing.T) {
	body := bodyOf(t, false, false)
	other := io.NopCloser(new(bytes.Buffer))
	assert.False(t, closing.WhileRead(other))
	assert.False(t, closing.WhileRead(http.MaxBytesReader(nil, body, 10)), "it may wrap anything")
	assert.False(t, closing.WhileRead(&bodyEOFSignal{body}), "of another package")
	assert.True(t, closing.WhileRead(http.NoBody))
	assert.True(t, closing.WhileRead(wrapping{other, body}))
	assert.True(t, closing.WhileRead(wrapping{other, wrapping{other, body}}))
	assert.False(t, closing.WhileRead(wrapping{body, other}))
	assert.False(t, closing.WhileRead(wrapping{body, nil}))
}
