package retryhttp

import (
	"cmp"
	"crypto/rand"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Idempotent is the default for [Policy.Idempotent]. It reports whether req has a method that the
// IANA registry calls idempotent (RFC 9110, section 9.2.2), or an Idempotency-Key or
// X-Idempotency-Key that is not "". Methods are case-sensitive, and "" is GET. An empty slice
// counts, and is not sent.
func Idempotent(req *http.Request) bool {
	return idempotentMethod(req.Method) || hasIdempotencyKey(req.Header)
}

// RandomKey is a [Policy.IdempotencyKey]: at least 128 random bits, as text.
func RandomKey(*http.Request) string {
	return rand.Text()
}

const idempotencyKeyHeader = "Idempotency-Key"

// withKey returns a copy of req that carries an Idempotency-Key, if p makes one
// for it, and otherwise req. A key of the caller's that holds only empty strings
// is left out, in whatever case its name is spelled.
func withKey(req *http.Request, p *Policy) *http.Request {
	if p.IdempotencyKey == nil || hasIdempotencyKey(req.Header) || p.Idempotent(req) {
		return req
	}
	key := p.IdempotencyKey(req)
	if key == "" {
		return req
	}
	keyed := req.WithContext(req.Context())
	keyed.Header = make(http.Header, len(req.Header)+1)
	maps.Copy(keyed.Header, req.Header)
	maps.DeleteFunc(keyed.Header, func(name string, _ []string) bool { return namesKey(name) })
	keyed.Header[idempotencyKeyHeader] = []string{key}
	return keyed
}

// namesKey accepts any case: a key that was put into the map by hand is sent as
// it stands there.
func namesKey(name string) bool {
	return strings.EqualFold(name, idempotencyKeyHeader) || strings.EqualFold(name, "X-Idempotency-Key")
}

func hasIdempotencyKey(h http.Header) bool {
	for name, values := range h {
		if namesKey(name) {
			if len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { return v != "" }) {
				return true
			}
		}
	}
	return false
}

// idempotentMethod knows the IANA Hypertext Transfer Protocol (HTTP) Method
// Registry as of 2026-06-17.
func idempotentMethod(method string) bool {
	if safeMethod(method) {
		return true
	}
	switch method {
	case "PUT", "DELETE",
		"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "MERGE",
		"MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH",
		"PROPPATCH", "REBIND", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF",
		"VERSION-CONTROL":
		return true
	}
	return false
}

// safeMethod reports whether the method asks for no change of state at the
// server (RFC 9110, section 9.2.1).
func safeMethod(method string) bool {
	switch cmp.Or(method, http.MethodGet) {
	case "GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PRI", "PROPFIND", "REPORT", "SEARCH":
		return true
	}
	return false
}

// keyedForNetHTTP goes by the entry's presence alone, as net/http does.
func keyedForNetHTTP(h http.Header) bool {
	_, key := h["Idempotency-Key"]
	_, xKey := h["X-Idempotency-Key"]
	return key || xKey
}

// resendable reports whether net/http may have sent req before, by itself: it goes
// by the key, and returns the last error only. It goes by the method, too, but then
// nothing depends on it: those methods are safe.
func resendable(req *http.Request) bool {
	return req != nil && !safeMethod(req.Method) && keyedForNetHTTP(req.Header)
}
