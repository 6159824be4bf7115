package retryhttp_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

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
	for i, n := range ones {
		if !slices.Contains([]int{48, 49, 50, 51, 64, 65}, i) { // the version and the variant, which are fixed
			assert.InDelta(t, keys/2, n, 400, "bit %d", i) // 8 standard deviations
		}
	}
	require.Regexp(t, form, retryhttp.RandomKey(nil))
}

// A base that changes the request it is given breaks the rules of http.RoundTripper. Under a new key
// for each attempt, the server would carry out every one.
func TestKeyThatTheBaseAddsMakesNothingSafeToRepeat(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"by default":         {},
		"if unprocessed":     {RetryUnprocessed: true},
		"in a copy":          {AttemptTimeout: time.Hour},
		"with a key of \"\"": {IdempotencyKey: func(*http.Request) string { return "" }},
	} {
		t.Run(name, func(t *testing.T) {
			base := script.New(script.Status(503))
			keys := script.Step(func(req *http.Request) (*http.Response, error) {
				req.Header.Set("Idempotency-Key", retryhttp.RandomKey(req))
				return base.RoundTrip(req)
			})
			p.Backoff = retryhttp.Constant(0)
			req := requestOf(t, "POST", strings.NewReader("pay"))
			resp := answerTo(t, retryhttp.New(keys, p), req)
			assert.Len(t, base.Requests(), 1)
			assert.Equal(t, retryhttp.StopNotIdempotent, retryhttp.OutcomeOf(resp).Stop)
		})
	}
}

func TestIdempotencyKeyThatIsEmptyIsReplacedHoweverItIsSpelled(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "idempotency-key", "X-Idempotency-Key", "x-IDEMPOTENCY-key"} {
		t.Run(name, func(t *testing.T) {
			base := script.New(script.Status(503), script.Status(200))
			p := noWait
			p.IdempotencyKey = func(*http.Request) string { return "made" }
			req := get(t, t.Context())
			req.Method, req.Header = "POST", http.Header{name: {""}, "Other": {"kept"}}
			answerTo(t, retryhttp.New(base, p), req)
			require.Len(t, base.Requests(), 2)
			for _, r := range base.Requests() {
				assert.Equal(t, http.Header{"Idempotency-Key": {"made"}, "Other": {"kept"}}, r.Header)
			}
			assert.Equal(t, http.Header{name: {""}, "Other": {"kept"}}, req.Header, "the caller's")
		})
	}
}

// A redirect to another host is a request of its own, and so are its retries.
func TestRedirectToAnotherHostCarriesNoCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			auth, cookie := req.Header.Get("Authorization"), req.Header.Get("Cookie")
			number := retryhttp.AttemptOf(req.Context()).Number
			seen = append(seen, fmt.Sprintf("%s %q %q %d", req.URL.Host, auth, cookie, number))
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
	for _, code := range []int{303, 307} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			base := script.New(script.Status(code, "Location", "http://other.example/"), script.Status(200))
			client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{IdempotencyKey: retryhttp.RandomKey})}
			resp, err := client.Post("http://first.example/", "text/plain", strings.NewReader("content"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Len(t, base.Requests(), 2)
			first, next := base.Requests()[0].Header, base.Requests()[1].Header
			assert.NotEmpty(t, first.Get("Idempotency-Key"))
			assert.NotEqual(t, first.Get("Idempotency-Key"), next.Get("Idempotency-Key"))
			assert.Equal(t, code >= 307, next.Get("Idempotency-Key") != "", "a POST gets a key of its own, and a GET none")
		})
	}
}
