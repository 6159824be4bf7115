package retryhttp

import "net/http"

// keyOf returns the key of req: what a Gate, a Hedge or a TokenBucket knows req's host by. No base
// sends a request without a URL, so a caller's function need not expect one. A nil req, which only a
// gauge can be asked about, has no URL either.
func keyOf(req *http.Request, key func(*http.Request) string) string {
	switch {
	case req == nil || req.URL == nil:
		return ""
	case key != nil:
		return key(req)
	}
	return req.URL.Host
}
