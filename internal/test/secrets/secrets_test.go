package secrets_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

var errBroken = errors.New("connection broken")

func get(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

// logged returns the log and the error's text.
func logged(t *testing.T, base http.RoundTripper, req *http.Request) string {
	var buf strings.Builder
	p := retryhttp.Policy{MaxAttempts: 2, Backoff: retryhttp.Constant(0), Logger: slog.New(slog.NewTextHandler(&buf, nil))}
	_, err := retryhttp.New(base, p).RoundTrip(req)
	require.Error(t, err)
	return buf.String() + "\n" + err.Error()
}

func TestSecretsOfURLsAreLeftOut(t *testing.T) {
	ue := func(u string) error { return &url.Error{Op: "Get", URL: u, Err: io.EOF} }
	for name, err := range map[string]error{
		"joined":  errors.Join(ue("http://a/?token=one"), ue("http://b/?token=secret"), ue("http://user:secret/x@c/")),
		"wrapped": fmt.Errorf("the base: %w", ue("http://user:secret/x@b/")),
		"nested":  &url.Error{Op: "Get", URL: "http://a/", Err: ue("http://u:secret@b/")},
		"location": &url.Error{
			Op: "Get", URL: "http://a/",
			Err: fmt.Errorf("failed to parse Location header %q: %w", "http://b/%zz?t=secret", ue("http://b/%zz?t=secret")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NotContains(t, logged(t, script.New(script.Fail(err)), get(t, "http://host.example/path")), "secret")
		})
	}
	t.Run("proxy password with a slash", func(t *testing.T) {
		base := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) {
			return url.Parse(strings.Join([]string{"http://user", "secret/x@proxy", "3128"}, ":"))
		}}
		assert.NotContains(t, logged(t, base, get(t, "http://host.example/path")), "secret")
	})
	t.Run("HTTP/2 path", func(t *testing.T) {
		url, base := loopback.ServeTLS(t, true, func(http.ResponseWriter, *http.Request) {})
		req, _ := http.NewRequest("GET", url, nil)
		req.URL.Path, req.URL.RawQuery = "foo", "token=secret"
		assert.NotContains(t, logged(t, base, req), "secret")
	})
	t.Run("redirect through a client", func(t *testing.T) {
		url := loopback.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://b.example/%zz?token=secret")
			w.WriteHeader(http.StatusFound)
		})
		c := &http.Client{}
		req, _ := http.NewRequest("GET", url, nil)
		assert.NotContains(t, logged(t, script.Step(c.Do), req), "secret")
	})
	for _, host := range []string{"user:secret@[::1]:1", "user:se: secret@[::1]:1", "user:a secret@host.example:1", "user:secret@a b"} {
		t.Run("userinfo in Host, and no host: "+host, func(t *testing.T) { // no name server is asked for these
			req := get(t, "http://host.example/path")
			req.URL.Host = host
			assert.NotContains(t, logged(t, &http.Transport{}, req), "secret")
		})
	}
	t.Run("userinfo in Host", func(t *testing.T) {
		req := get(t, "http://host.example/path")
		req.URL.Host = "user:secret@host.example"
		assert.NotContains(t, logged(t, script.New(script.Fail(errBroken)), req), "secret")
	})
}

func TestSecretsOfURLsInTextsAreLeftOut(t *testing.T) {
	for _, raw := range []string{
		"http://user:o'brienSECRET@h/", "http://h/?q=it's-SECRET", "http://h/#token=SECRET", "http://h/?a=b#x'SECRET",
	} {
		_, perr := url.Parse(raw)
		assert.NoError(t, perr)
		inner := &url.Error{Op: "Get", URL: raw, Err: io.ErrUnexpectedEOF}
		req, _ := http.NewRequest("GET", "http://server/", nil)
		for _, e := range []error{inner, fmt.Errorf("token: %v", inner)} {
			_, err := retryhttp.New(script.New(script.Fail(e)), retryhttp.Policy{MaxAttempts: 1}).RoundTrip(req)
			assert.NotContains(t, err.Error(), "SECRET")
		}
	}
	deep := &url.Error{
		Op: "Get", URL: "http://h:SECRET/",
		Err: &url.Error{Op: "parse", URL: "http://h:SECRET/", Err: errors.New(`invalid port ":SECRET" after host`)},
	}
	req, _ := http.NewRequest("GET", "http://server/", nil)
	_, err := retryhttp.New(script.New(script.Fail(deep)), retryhttp.Policy{MaxAttempts: 1}).RoundTrip(req)
	assert.NotContains(t, err.Error(), "SECRET")
}

func TestSecretsThatErrorsQuoteAreLeftOut(t *testing.T) {
	for name, text := range map[string]string{
		"a header that is none":       `net/http: invalid header field name "Authorization: Bearer secret"`,
		"a header over HTTP/2":        `stream error: stream ID 1; PROTOCOL_ERROR; invalid header field name "cookie secret"`,
		"a pseudo-header":             `http2: invalid pseudo-header ":secret"`,
		"a pseudo-header twice":       `duplicate pseudo-header ":secret"`,
		"a redirect":                  `failed to parse Location header "/cb?token=\"secret\" secret": invalid character`,
		"a proxy":                     `invalid proxy address "http://user:secret#x@proxy": first path segment`,
		"an upgrade":                  `net/http: invalid Upgrade request header: ["secret"]`,
		"a field of the connection":   `http2: invalid Connection request header: ["secret"]`,
		"a URL that cannot be parsed": `the base: parse "http://user:secret/x@host": invalid port ":secret" after host`,
		"a header line":               `malformed MIME header line: "X-Token secret"`,
		"a trailer":                   `bad trailer key "secret"`,
		"what a GOAWAY says": `http2: server sent GOAWAY and closed the connection; ` +
			`LastStreamID=1, ErrCode=NO_ERROR, debug="secret"`,
		"a host with userinfo": `dial tcp: lookup user:secret@host.example: no such host`,
	} {
		t.Run(name, func(t *testing.T) {
			told := (&retryhttp.Error{Err: errors.New(text)}).Error()
			assert.NotContains(t, told, "secret")
		})
	}
}

// net/http's errors quote malformed answers.
func TestSecretsOfTheAnswerAreLeftOut(t *testing.T) {
	for name, answer := range map[string]string{
		"no HTTP at all":         "secret\r\n\r\n",
		"another protocol":       "RTSP/1.0 200 secret\r\n\r\n",
		"a version":              "HTTP/secret 200 OK\r\n\r\n",
		"a status code":          "HTTP/1.1 secret\r\n\r\n",
		"a line without a colon": "HTTP/1.1 200 OK\r\nCookie secret\r\n\r\n",
		"a line that goes on":    "HTTP/1.1 200 OK\r\n secret\r\n\r\n",
		"a length":               "HTTP/1.1 200 OK\r\nContent-Length: secret\r\n\r\n",
		"two lengths":            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: secret] \"secret\r\n\r\n",
		"an encoding":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: secret\r\n\r\n",
		"two encodings":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: secret\r\n\r\n",
		"a label in a label":     "malformed HTTP response \"malformed HTTP response secret\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			said := logged(t, base, get(t, loopback.ServeRaw(t, loopback.Say(answer))))
			assert.NotContains(t, said, "secret")
			assert.NotContains(t, said, "Cookie")
		})
	}
}

func TestSecretsOfTheRequestAreLeftOut(t *testing.T) {
	for name, base := range map[string]http.RoundTripper{
		"an error":   script.New(script.Fail(errBroken)),
		"a response": script.New(script.Status(503, "Set-Cookie", "secret", "Location", "http://user:secret@host/?secret")),
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			req, err := http.NewRequest("PUT", "http://user:secret@server.example/path?token=secret#secret",
				strings.NewReader("secret"))
			require.NoError(t, err)
			req.Header = http.Header{"Authorization": {"secret"}, "Idempotency-Key": {"secret"}, "Secret": {"secret"}}
			p := retryhttp.Policy{
				Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{},
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			}
			resp, err := (&http.Client{Transport: retryhttp.New(base, p)}).Do(req)
			if err != nil {
				var e *retryhttp.Error
				require.ErrorAs(t, err, &e)
				assert.NotContains(t, e.Error(), "secret")
			} else {
				require.NoError(t, resp.Body.Close())
			}
			assert.Contains(t, log.String(), "http://server.example/path")
			assert.NotContains(t, log.String(), "secret")
		})
	}
}

// A logged context prints its fields, unless it has a String method.
func TestSecretsOfContextsAreLeftOut(t *testing.T) {
	base := script.New(script.Status(503), script.Status(200))
	req := get(t, "http://host.example/path")
	req.Header.Set("Authorization", "secret")
	resp, err := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0)}).RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, "retryhttp.attempt", fmt.Sprint(base.Requests()[1].Context()))
	assert.Equal(t, "retryhttp.outcome", fmt.Sprint(resp.Request.Context()))
}

func TestSecretsAreAllThatIsLeftOut(t *testing.T) {
	for text, want := range map[string]string{
		"Get http://user:secret@a/path?token=secret#secret failed": "Get http://a/path failed",
		"is it http://a/? no, and not http://b/? either":           "is it http://a/ no, and not http://b/ either",
		"what follows is no URL? http://a/?token=secret":           "what follows is no URL http://a/",
		"file:///home/user@host is missing":                        "file:///home/user@host is missing",
		"no host in http:// and #2 of 3 failed":                    "no host in http:// and #2 of 3 failed",
		"two  blanks, http://a/#secret and more":                   "two  blanks, http://a/ and more",
	} {
		assert.Equal(t, want, (&retryhttp.Error{Err: errors.New(text)}).Error())
	}
}
