package respbody

import (
	"net/http"
	"strings"

	"github.com/retryhttp/retryhttp/internal/field"
)

// mayHaveBody reports whether resp may have a body that somebody reads.
func mayHaveBody(req *http.Request, resp *http.Response) bool {
	if req.Method == http.MethodHead || req.Method == http.MethodConnect {
		return false
	}
	switch resp.StatusCode {
	case http.StatusSwitchingProtocols, http.StatusNoContent, http.StatusNotModified:
		return false
	}
	return !IsRedirect(resp)
}

// IsRedirect reports whether resp refers to another place. Nobody needs the body of a redirect:
// http.Client follows its Location.
func IsRedirect(resp *http.Response) bool {
	return resp.StatusCode >= 300 && resp.StatusCode <= 399 && resp.Header.Get("Location") != ""
}

// isStream reports whether a body with this header may continue while its reader listens.
func isStream(h http.Header) bool {
	media := field.MediaType(h)
	// The parameters may be malformed. A body that is taken for a stream by mistake is only not buffered.
	names := func(word string) bool { return strings.Contains(strings.ToLower(h.Get("Content-Type")), word) }
	switch media {
	case "text/event-stream", "multipart/x-mixed-replace", "application/vnd.amazon.eventstream",
		"application/vnd.docker.raw-stream", "application/vnd.docker.multiplexed-stream":
		return true
	}
	_, subtype, _ := strings.Cut(media, "/")
	switch subtype { // of values that follow one another
	case "x-ndjson", "ndjson", "jsonl", "jsonlines", "x-jsonlines", "json-seq", "cbor-seq", "stream+json":
		return true
	}
	return strings.HasSuffix(subtype, "+json-seq") || strings.HasSuffix(subtype, "+cbor-seq") ||
		strings.HasPrefix(media, "application/grpc") || strings.HasPrefix(media, "application/connect") ||
		media == "multipart/mixed" && names("deferspec=") || // GraphQL
		names("stream") && names("watch") // Kubernetes
}
