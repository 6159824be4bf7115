package retryhttp

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
)

// Idempotent reports whether req may be sent again without harm although an
// earlier attempt may have taken effect. It is the default for
// [Policy.Idempotent].
//
// The method decides: GET, HEAD, OPTIONS, TRACE, PUT and DELETE (RFC 9110,
// section 9.2.2), QUERY (RFC 10008), and the further methods that the IANA
// registry of HTTP methods lists as idempotent. Names are case-sensitive, the
// empty method is GET, and a method that is not known is not idempotent.
//
// A request with any other method is idempotent if it carries an
// Idempotency-Key or X-Idempotency-Key header. As in net/http, an entry of
// req.Header whose slice is empty marks the request and is not sent; an entry
// that holds nothing but empty strings does not count.
func Idempotent(req *http.Request) bool {
	return idempotentMethod(req.Method) || hasIdempotencyKey(req.Header)
}

// RandomKey returns a new key of 128 random bits or more. It is made for
// [Policy.IdempotencyKey], and the same key goes with every attempt of the
// request it was made for.
func RandomKey(*http.Request) string {
	return rand.Text()
}

const idempotencyKeyHeader = "Idempotency-Key"

// hasIdempotencyKey looks for the names in any case: a key that was put into the
// map by hand is sent as it stands there.
func hasIdempotencyKey(h http.Header) bool {
	for name, values := range h {
		if strings.EqualFold(name, idempotencyKeyHeader) || strings.EqualFold(name, "X-Idempotency-Key") {
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
