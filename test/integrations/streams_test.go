package integrations_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrytest"
)

// stream is an answer that is sent as it is made.
func stream(contentType, content string) retrytest.Step {
	return retrytest.Status(http.StatusOK, "Content-Type", contentType).Body(content).Unsized()
}

// streaming starts a server whose first stream is first, and whose others are good.
func streaming(first, good retrytest.Step) *httptest.Server {
	return httptest.NewServer(retrytest.NewHandler(nil, nil, first.Nth(1), good.Always()))
}

// requireOneRetry calls read with a server whose first stream fails before its first event, or begins with
// an error, and requires that read has made one retry.
func requireOneRetry(t *testing.T, contentType, good, errorEvent string, read func(*testing.T, string)) {
	for name, first := range map[string]retrytest.Step{
		"silence":        stream(contentType, good).Stall(0),
		"a break":        stream(contentType, good).Cut(0),
		"no event":       stream(contentType, ""),
		"an error event": stream(contentType, errorEvent),
	} {
		t.Run(name, func(t *testing.T) {
			h := retrytest.NewHandler(t, nil, first.Nth(1), stream(contentType, good).Always())
			server := httptest.NewServer(h)
			defer server.Close()
			read(t, server.URL)
			got := h.Records()
			require.Len(t, got, 2)
			require.Equal(t, got[0].Body, got[1].Body)
		})
	}
}

// soon is a policy as p, but impatient.
func soon(p retryhttp.Policy) retryhttp.Policy {
	p.AttemptTimeout, p.Backoff = time.Second, retryhttp.Constant(0)
	return p
}
