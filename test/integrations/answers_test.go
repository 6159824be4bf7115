package integrations_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

func answerOK(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

func serviceUnavailable(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "down", http.StatusServiceUnavailable)
}

// failingInMemory is like failing, on a network in memory, for bubbles.
func failingInMemory(answer http.HandlerFunc, statuses ...int) (base http.RoundTripper, stop func()) {
	var n atomic.Int32
	_, transport, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := int(n.Add(1)); n <= len(statuses) {
			w.WriteHeader(statuses[n-1])
			return
		}
		answer(w, r)
	}))
	return transport, stop
}

func bodyOf(t *testing.T, resp *http.Response) string {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// countedBody can be read only once.
type countedBody struct {
	io.Reader
	closed atomic.Int32
}

func (b *countedBody) Close() error {
	b.closed.Add(1)
	return nil
}
