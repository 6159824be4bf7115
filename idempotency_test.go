package retryhttp_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestIdempotentFollowsTheMethodRegistry(t *testing.T) {
	for method, want := range map[string]bool{
		"": true, "GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "PUT": true, "DELETE": true, "QUERY": true,

		"ACL": true, "BASELINE-CONTROL": true, "BIND": true, "CHECKIN": true, "CHECKOUT": true, "COPY": true,
		"LABEL": true, "LINK": true, "MERGE": true, "MKACTIVITY": true, "MKCALENDAR": true, "MKCOL": true,
		"MKREDIRECTREF": true, "MKWORKSPACE": true, "MOVE": true, "ORDERPATCH": true, "PRI": true,
		"PROPFIND": true, "PROPPATCH": true, "REBIND": true, "REPORT": true, "SEARCH": true, "UNBIND": true,
		"UNCHECKOUT": true, "UNLINK": true, "UNLOCK": true, "UPDATE": true,
		"UPDATEREDIRECTREF": true, "VERSION-CONTROL": true,

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

func TestRandomKeyIsARandomUUID(t *testing.T) {
	const keys = 10000
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string]bool, keys)
	var ones [128]int // how often each bit was set
	for range keys {
		key := retryhttp.RandomKey(&http.Request{})
		require.Regexp(t, form, key)
		require.False(t, seen[key], "drawn twice: %s", key)
		seen[key] = true
		id, err := hex.DecodeString(strings.ReplaceAll(key, "-", ""))
		require.NoError(t, err)
		for i := range ones {
			ones[i] += int(id[i/8] >> (7 - i%8) & 1)
		}
	}
	fixed := map[int]int{48: 0, 49: keys, 50: 0, 51: 0, 64: keys, 65: 0} // the version, 0100, and the variant, 10
	for i, n := range ones {
		if want, ok := fixed[i]; ok {
			assert.Equal(t, want, n, "bit %d", i)
		} else {
			assert.InDelta(t, keys/2, n, 400, "bit %d", i) // 8 standard deviations
		}
	}
	require.Regexp(t, form, retryhttp.RandomKey(nil))

	req, err := http.NewRequest("POST", "http://example.test/", nil)
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", retryhttp.RandomKey(req))
	assert.True(t, retryhttp.Idempotent(req))
}

// A base that changes the request it is given breaks the rules of http.RoundTripper. Under a new key
// for each attempt, the server would carry out every one.
func TestKeyThatTheBaseAddsMakesNothingSafeToRepeat(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"by default":         noWait,
		"if unprocessed":     {RetryUnprocessed: true, Backoff: retryhttp.Constant(0)},
		"in a copy":          {AttemptTimeout: time.Hour, Backoff: retryhttp.Constant(0)},
		"with a key of \"\"": {IdempotencyKey: func(*http.Request) string { return "" }, Backoff: retryhttp.Constant(0)},
	} {
		t.Run(name, func(t *testing.T) {
			base := script.New(script.Status(503))
			keys := script.Step(func(req *http.Request) (*http.Response, error) {
				req.Header.Set("Idempotency-Key", retryhttp.RandomKey(req))
				return base.RoundTrip(req)
			})
			req, err := http.NewRequest("POST", "http://host.example/", strings.NewReader("pay"))
			require.NoError(t, err)
			resp, err := retryhttp.New(keys, p).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Len(t, base.Requests(), 1)
			assert.Equal(t, retryhttp.StopNotIdempotent, retryhttp.OutcomeOf(resp).Stop)
		})
	}
}

func TestIdempotencyKeyIsOneForAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.New(script.Status(503), script.Fail(errBroken), script.Status(200))
		rt := retryhttp.New(base, retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey})
		for range 2 {
			req, err := http.NewRequest("POST", "http://host.example/", strings.NewReader("pay"))
			require.NoError(t, err)
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.NotContains(t, req.Header, "Idempotency-Key")
		}
		var keys []string
		for _, sent := range base.Requests() {
			keys = append(keys, sent.Header.Get("Idempotency-Key"))
		}
		require.Len(t, keys, 4)
		assert.Equal(t, keys[0], keys[1])
		assert.Equal(t, keys[0], keys[2])
		assert.NotEqual(t, keys[0], keys[3], "another request, another key")
	})
}

func TestIdempotencyKeyLeavesTheCallersAlone(t *testing.T) {
	cases := []struct {
		name   string
		method string
		header http.Header
		policy retryhttp.Policy
		want   http.Header
	}{
		{
			name: "a key", method: "POST", header: http.Header{"Idempotency-Key": {"mine"}},
			want: http.Header{"Idempotency-Key": {"mine"}},
		},
		{
			name: "an X- key", method: "POST", header: http.Header{"X-Idempotency-Key": {"mine"}},
			want: http.Header{"X-Idempotency-Key": {"mine"}},
		},
		{
			name: "a mark that is not sent", method: "POST", header: http.Header{"Idempotency-Key": {}},
			want: http.Header{"Idempotency-Key": {}},
		},
		{name: "an idempotent method", method: "PUT", header: http.Header{}, want: http.Header{}},
		{
			name: "an empty key is replaced", method: "POST", header: http.Header{"Idempotency-Key": {""}},
			want: http.Header{"Idempotency-Key": {"made"}},
		},
		{name: "no header at all", method: "POST", want: http.Header{"Idempotency-Key": {"made"}}},
		{
			name: "a key of no use to Policy.Idempotent", method: "POST", header: http.Header{"Idempotency-Key": {"mine"}},
			policy: retryhttp.Policy{Idempotent: func(*http.Request) bool { return false }},
			want:   http.Header{"Idempotency-Key": {"mine"}},
		},
		{
			name: "none made", method: "POST", header: http.Header{},
			policy: retryhttp.Policy{IdempotencyKey: func(*http.Request) string { return "" }},
			want:   http.Header{},
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			base := script.New(script.Status(200))
			if tc.policy.IdempotencyKey == nil {
				tc.policy.IdempotencyKey = func(*http.Request) string { return "made" }
			}
			req := get(t, t.Context())
			req.Method, req.Header = tc.method, tc.header
			before := tc.header.Clone()
			resp, err := retryhttp.New(base, tc.policy).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, tc.want, base.Requests()[0].Header)
			assert.Equal(t, before, req.Header)
		})
	}
}

func TestIdempotencyKeyThatIsEmptyIsReplacedHoweverItIsSpelled(t *testing.T) {
	for _, name := range []string{
		"Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY", "X-Idempotency-Key", "x-idempotency-key",
	} {
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

func TestIdempotencyKeyInAnotherCase(t *testing.T) {
	var keys []string
	url := loopback.Serve(t, func(_ http.ResponseWriter, r *http.Request) { keys = r.Header["Idempotency-Key"] })
	req, _ := http.NewRequest("POST", url, nil)
	req.Header["idempotency-key"] = []string{"mine"}
	resp, err := retryhttp.New(&http.Transport{}, retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey}).RoundTrip(req)
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, []string{"mine"}, keys)
}

// A redirect to another host is a request of its own, and so are its retries.
func TestRedirectToAnotherHostCarriesNoCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			seen = append(seen, fmt.Sprintf("%s %q %q %d", req.URL.Host, req.Header.Get("Authorization"), req.Header.Get("Cookie"),
				retryhttp.AttemptOf(req.Context()).Number))
			switch {
			case req.URL.Host == "first.example":
				return script.Status(http.StatusFound, "Location", "http://other.example/")(req)
			case len(seen) < 4:
				return script.Status(http.StatusServiceUnavailable)(req)
			}
			return script.Status(http.StatusOK)(req)
		})
		client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{})}
		req := getURL(t, "http://first.example/")
		req.Header.Set("Authorization", "Bearer secret")
		req.Header.Set("Cookie", "session=secret")
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, []string{
			`first.example "Bearer secret" "session=secret" 1`,
			`other.example "" "" 1`, `other.example "" "" 2`, `other.example "" "" 3`,
		}, seen)
		assert.Equal(t, 3, retryhttp.OutcomeOf(resp).Attempts)
	})
}

func TestIdempotencyKeyThatWasGeneratedIsNotRedirected(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			keys := make(chan string, 10)
			take := func(r *http.Request) { keys <- r.Header.Get("Idempotency-Key") }
			other := loopback.Serve(t, func(_ http.ResponseWriter, r *http.Request) { take(r) })
			first := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				take(r)
				http.Redirect(w, r, other, code)
			})
			client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey})}
			defer client.CloseIdleConnections()
			resp, err := client.Post(first, "text/plain", strings.NewReader("content"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			generated, next := <-keys, <-keys
			assert.NotEmpty(t, generated)
			assert.NotEqual(t, generated, next)
			assert.Equal(t, code >= 307, next != "", "a POST gets a key of its own, and a GET none")
		})
	}
}
