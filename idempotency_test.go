package retryhttp_test

import (
	"github.com/retryhttp/retryhttp/internal/test/script"
	"math/bits"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func TestIdempotentFollowsTheMethodRegistry(t *testing.T) {
	for method, want := range map[string]bool{
		"": true, "GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "PUT": true, "DELETE": true, "QUERY": true,

		"ACL": true, "BASELINE-CONTROL": true, "BIND": true, "CHECKIN": true, "CHECKOUT": true, "COPY": true,
		"LABEL": true, "LINK": true, "MERGE": true, "MKACTIVITY": true, "MKCALENDAR": true, "MKCOL": true,
		"MKREDIRECTREF": true, "MKWORKSPACE": true, "MOVE": true, "ORDERPATCH": true, "PRI": true,
		"PROPFIND": true, "PROPPATCH": true, "REBIND": true, "REPORT": true, "SEARCH": true, "UNBIND": true,
		"UNCHECKOUT": true, "UNLINK": true, "UNLOCK": true, "UPDATE": true, "UPDATEREDIRECTREF": true, "VERSION-CONTROL": true,

		"POST": false, "PATCH": false, "CONNECT": false, "LOCK": false,

		// Names are case-sensitive, and taken as a whole.
		"get": false, "Get": false, "put": false, "Delete": false, "query": false, "propfind": false,
		"GET ": false, " GET": false, "GETS": false, "GE": false, "*": false, "BREW": false, "PURGE": false,
	} {
		t.Run(method, func(t *testing.T) {
			assert.Equal(t, want, retryhttp.Idempotent(&http.Request{Method: method}))
			assert.Equal(t, want, retryhttp.Idempotent(&http.Request{Method: method, Header: http.Header{}}))
		})
	}
}

func TestIdempotentHonorsAKeyWhateverTheMethod(t *testing.T) {
	for name, c := range map[string]struct {
		header http.Header
		want   bool
	}{
		"no header":              {nil, false},
		"empty header":           {http.Header{}, false},
		"key":                    {http.Header{"Idempotency-Key": {"8e03"}}, true},
		"quoted key":             {http.Header{"Idempotency-Key": {`"8e03"`}}, true},
		"key of spaces":          {http.Header{"Idempotency-Key": {" "}}, true},
		"x key":                  {http.Header{"X-Idempotency-Key": {"8e03"}}, true},
		"mark, nil":              {http.Header{"Idempotency-Key": nil}, true},
		"mark, empty slice":      {http.Header{"Idempotency-Key": {}}, true},
		"x mark, nil":            {http.Header{"X-Idempotency-Key": nil}, true},
		"x mark, empty slice":    {http.Header{"X-Idempotency-Key": {}}, true},
		"empty string":           {http.Header{"Idempotency-Key": {""}}, false},
		"empty strings":          {http.Header{"Idempotency-Key": {"", ""}}, false},
		"x empty string":         {http.Header{"X-Idempotency-Key": {""}}, false},
		"both empty strings":     {http.Header{"Idempotency-Key": {""}, "X-Idempotency-Key": {""}}, false},
		"empty, then a key":      {http.Header{"Idempotency-Key": {"", "8e03"}}, true},
		"empty beside an x key":  {http.Header{"Idempotency-Key": {""}, "X-Idempotency-Key": {"8e03"}}, true},
		"empty beside an x mark": {http.Header{"Idempotency-Key": {""}, "X-Idempotency-Key": nil}, true},
		"key beside an empty x":  {http.Header{"Idempotency-Key": {"8e03"}, "X-Idempotency-Key": {""}}, true},
		"precondition only":      {http.Header{"If-Match": {`"v1"`}, "If-None-Match": {"*"}}, false},
		"another's key":          {http.Header{"Paypal-Request-Id": {"8e03"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{"POST", "PATCH", "LOCK", "CONNECT", "post", "BREW"} {
				assert.Equal(t, c.want, retryhttp.Idempotent(&http.Request{Method: method, Header: c.header}), method)
			}
			assert.True(t, retryhttp.Idempotent(&http.Request{Method: "PUT", Header: c.header}), "a key takes nothing away")
		})
	}
}

func TestIdempotentSetsNothing(t *testing.T) {
	req := &http.Request{Method: "POST", Header: http.Header{"Idempotency-Key": {"", "8e03"}}}
	retryhttp.Idempotent(req)
	assert.Equal(t, &http.Request{Method: "POST", Header: http.Header{"Idempotency-Key": {"", "8e03"}}}, req)
}

func TestRandomKeyIsLongRandomAndFitForAHeader(t *testing.T) {
	const keys = 10000
	seen := make(map[string]bool, keys)
	length := len(retryhttp.RandomKey(nil))
	alphabet := make([]map[byte]int, length) // per position
	for i := range alphabet {
		alphabet[i] = make(map[byte]int)
	}
	for range keys {
		key := retryhttp.RandomKey(&http.Request{})
		if seen[key] || len(key) != length || strings.Trim(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
			require.FailNow(t, "drawn twice, or not of letters and digits, which need no quotes", key)
		}
		seen[key] = true
		for i := range len(key) {
			alphabet[i][key[i]]++
		}
	}
	entropy := 0
	for i, counts := range alphabet {
		// Every one of the letters is drawn at every position: that one is
		// missing has odds of e^-300.
		entropy += bits.Len(uint(len(counts))) - 1
		for letter, n := range counts {
			require.InDelta(t, keys/len(counts), n, 150, "%q at position %d", letter, i) // 8 standard deviations
		}
	}
	require.GreaterOrEqual(t, entropy, 128, "bits")

	req, err := http.NewRequest("POST", "http://example.test/", nil)
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", retryhttp.RandomKey(req))
	assert.True(t, retryhttp.Idempotent(req))
}

func TestEmptyKeyIsReplacedHoweverItIsSpelled(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY", "X-Idempotency-Key", "x-idempotency-key"} {
		t.Run(name, func(t *testing.T) {
			base := script.New(script.Status(503), script.Status(200))
			p := noWait
			p.IdempotencyKey = func(*http.Request) string { return "made" }
			req, err := http.NewRequest("POST", "http://host.example/", nil)
			require.NoError(t, err)
			req.Header[name] = []string{""}
			req.Header.Set("Other", "kept")
			resp, err := retryhttp.New(base, p).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Len(t, base.Requests(), 2)
			for _, r := range base.Requests() {
				assert.Equal(t, http.Header{"Idempotency-Key": {"made"}, "Other": {"kept"}}, r.Header)
			}
			assert.Equal(t, http.Header{name: {""}, "Other": {"kept"}}, req.Header, "the caller's")
		})
	}
}
