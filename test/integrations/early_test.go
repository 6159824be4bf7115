package integrations_test

import (
	"io"
	"net/http"
	"sync/atomic"
)

// answeringEarly answers the first request with a 503 while its client is still sending, and reads
// on. It leaves all other requests to handler.
func answeringEarly(handler http.HandlerFunc) http.HandlerFunc {
	var requests atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			io.CopyN(io.Discard, r.Body, 1<<20)
			w.WriteHeader(http.StatusServiceUnavailable)
			http.NewResponseController(w).Flush()
			io.CopyN(io.Discard, r.Body, 1<<20)
			return
		}
		handler(w, r)
	}
}
