package integrations_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// failedStreams are the ways in which a stream fails after its header and before its first event, except
// for events that say so.
var failedStreams = map[string]http.HandlerFunc{
	"silence":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"a break":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"no event": func(http.ResponseWriter, *http.Request) {},
}

// streaming starts a server that sends the header of a stream at once. Its first answer then goes on as fail
// does, and all others as good does.
func streaming(contentType string, fail, good http.HandlerFunc) *server {
	var s *server
	s = failing(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		send(w, "")
		if len(s.got()) == 1 {
			fail(w, r)
			return
		}
		good(w, r)
	})
	return s
}

// send sends some of a stream at once.
func send(w http.ResponseWriter, text string) {
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// sending returns a handler that sends events, one after the other.
func sending(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, e := range events {
			send(w, e)
		}
	}
}

// requireOneRetry calls read with a server whose first stream fails in each of the ways, and requires that
// read has made one retry.
func requireOneRetry(t *testing.T, contentType string, good http.HandlerFunc, errorEvent string, read func(*testing.T, string)) {
	ways := map[string]http.HandlerFunc{"an error event": sending(errorEvent)}
	for name, fail := range failedStreams {
		ways[name] = fail
	}
	for name, fail := range ways {
		t.Run(name, func(t *testing.T) {
			server := streaming(contentType, fail, good)
			defer server.Close()
			read(t, server.URL)
			require.Len(t, server.got(), 2)
			require.Equal(t, server.got()[0].Body, server.got()[1].Body)
		})
	}
}

// soon is a policy as p, but impatient.
func soon(p retryhttp.Policy) retryhttp.Policy {
	p.AttemptTimeout, p.Backoff = time.Second, retryhttp.Constant(0)
	return p
}
