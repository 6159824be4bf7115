package retryhttp

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/retryhttp/retryhttp/internal/field"
)

// Idempotent is the default for [Policy.Idempotent]. It reports whether req has an idempotent method
// of the IANA registry (RFC 9110, section 9.2.2), or an Idempotency-Key or
// X-Idempotency-Key that is not "". Methods are case-sensitive, and "" is GET. An empty slice
// counts, but sends no key.
func Idempotent(req *http.Request) bool {
	return field.IdempotentMethod(req.Method) || hasIdempotencyKey(req.Header)
}

// RandomKey returns a new UUID of version 4 as text (RFC 9562, section 5.4), for any request or nil.
// It has 122 random bits.
func RandomKey(*http.Request) string {
	var id [16]byte
	_, _ = rand.Read(id[:])      // it never fails
	id[6] = id[6]&0x0f | 4<<4    // the version
	id[8] = id[8]&0x3f | 0b10<<6 // the variant
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

const idempotencyKeyHeader = "Idempotency-Key"

// withKey returns the request to send, and whether it may be repeated. The request is req, or a
// copy that carries an Idempotency-Key if newKey, which may be nil, makes a key for req. The copy
// omits a key of the caller that holds only empty strings. The case of the field name does not
// matter.
func withKey(req *http.Request, repeatable func(*http.Request) bool, newKey func(*http.Request) string) (keyed *http.Request, idempotent bool) {
	if repeatable(req) {
		return req, true
	}
	if newKey == nil || hasIdempotencyKey(req.Header) {
		return req, false
	}
	key := newKey(req)
	if key == "" {
		return req, false
	}
	keyed = req.WithContext(req.Context())
	keyed.Header = make(http.Header, len(req.Header)+1)
	maps.Copy(keyed.Header, req.Header)
	maps.DeleteFunc(keyed.Header, func(name string, _ []string) bool { return namesKey(name) })
	keyed.Header[idempotencyKeyHeader] = []string{key}
	return keyed, repeatable(keyed)
}

// namesKey reports whether name is the name of an idempotency key field. It accepts any case,
// because a name that was put into the map by hand is sent unchanged.
func namesKey(name string) bool {
	return strings.EqualFold(name, idempotencyKeyHeader) || strings.EqualFold(name, "X-Idempotency-Key")
}

func hasIdempotencyKey(h http.Header) bool {
	for name, values := range h {
		if namesKey(name) && (len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { return v != "" })) {
			return true
		}
	}
	return false
}

// hidesGetBody reports whether GetBody is removed from every attempt of req. net/http would send the
// request again unseen. It decides by GetBody, and by the key, the method or the end of the connection.
func hidesGetBody(req *http.Request, idempotent bool) bool {
	return !idempotent && (req.GetBody == nil || keyedForNetHTTP(req.Header))
}

// keyedForNetHTTP reports whether net/http finds an idempotency key in h. Like net/http, it
// checks only that the entry is present.
func keyedForNetHTTP(h http.Header) bool {
	_, key := h["Idempotency-Key"]
	_, xKey := h["X-Idempotency-Key"]
	return key || xKey
}

// resendable reports whether net/http may have sent req by itself before the send that failed.
// net/http resends a request that has a key, and returns only the last error. It also resends
// some methods without a key. Nothing depends on them, because these methods are safe.
func resendable(req *http.Request) bool {
	return req != nil && !field.SafeMethod(req.Method) && keyedForNetHTTP(req.Header)
}
