package respbody

import (
	"mime"
	"net/http"
	"strings"

	"github.com/retryhttp/retryhttp/internal/field"
)

// mayHaveBody reports whether resp may have a body that somebody reads.
func mayHaveBody(req *http.Request, resp *http.Response) bool {
	switch req.Method {
	case http.MethodHead, http.MethodConnect:
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
	_, parameters, _ := mime.ParseMediaType(h.Get("Content-Type")) // none if it is malformed
	switch media {
	case "text/event-stream", "multipart/x-mixed-replace", "application/vnd.amazon.eventstream",
		"application/vnd.docker.raw-stream", "application/vnd.docker.multiplexed-stream":
		return true
	case "multipart/mixed":
		if _, incremental := parameters["deferspec"]; incremental { // GraphQL
			return true
		}
	}
	return isSequence(media) || strings.EqualFold(parameters["stream"], "watch") || // Kubernetes
		strings.HasPrefix(media, "application/grpc") || strings.HasPrefix(media, "application/connect")
}

// isSequence reports whether a body of this media type is made of values that follow one another.
func isSequence(media string) bool {
	_, subtype, _ := strings.Cut(media, "/")
	switch subtype {
	case "x-ndjson", "ndjson", "jsonl", "jsonlines", "x-jsonlines",
		"json-seq", "cbor-seq", "stream+json":
		return true
	}
	return strings.HasSuffix(subtype, "+json-seq") || strings.HasSuffix(subtype, "+cbor-seq")
}
