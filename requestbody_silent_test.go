package retryhttp_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// Over HTTP/2, net/http looks at the context only when the Read of the request body has returned.
func TestContextEndsAnAttemptWhoseBodyHasNothingToSend(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"the first bytes": {PeekBytes: 100},
		"the whole body":  {BufferBytes: 100},
		"both":            {BufferBytes: 100, PeekBytes: 100},
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			t.Run(name+" of a "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
						_ = http.NewResponseController(w).Flush()
						_, _ = io.Copy(io.Discard, r.Body)
					}, true)
					defer stop()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					silent, silence := io.Pipe()
					time.AfterFunc(time.Minute, func() { silence.Close() }) // or a failure never ends
					req, err := http.NewRequestWithContext(ctx, method, "http://host.example/", silent)
					require.NoError(t, err)
					began := time.Now()
					_, err = readAll(t, base, p, req)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Equal(t, time.Second, time.Since(began))
				})
			})
		}
	}
}
