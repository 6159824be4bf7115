package retryhttp_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// What a server sends instead of an answer is quoted in net/http's errors.
func TestNothingOfTheAnswerIsTold(t *testing.T) {
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
			said := logged(t, base, getURL(t, rawServer(t, say(answer))))
			assert.NotContains(t, said, "secret")
			assert.NotContains(t, said, "Cookie")
		})
	}
}

func TestWhatIsQuotedIsNotTold(t *testing.T) {
	for name, text := range map[string]string{
		"a header that is none":       `net/http: invalid header field name "Authorization: Bearer secret"`,
		"a header over HTTP/2":        `stream error: stream ID 1; PROTOCOL_ERROR; invalid header field name "cookie secret"`,
		"a pseudo-header":             `http2: invalid pseudo-header ":secret"`,
		"a redirect":                  `failed to parse Location header "/cb?token=\"secret\" secret": invalid character`,
		"a proxy":                     `invalid proxy address "http://user:secret#x@proxy": first path segment`,
		"an upgrade":                  `net/http: invalid Upgrade request header: ["secret"]`,
		"a URL that cannot be parsed": `the base: parse "http://user:secret/x@host": invalid port ":secret" after host`,
		"a header line":               `malformed MIME header line: "X-Token secret"`,
		"a trailer":                   `bad trailer key "secret"`,
		"what a GOAWAY says":          `http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug="secret"`,
		"a host with userinfo":        `dial tcp: lookup user:secret@host.example: no such host`,
	} {
		t.Run(name, func(t *testing.T) {
			told := (&retryhttp.Error{Err: errors.New(text)}).Error()
			assert.NotContains(t, told, "secret")
		})
	}
}

// Certificates and what a GOAWAY says are the server's to choose.
func TestALongErrorIsToldInTimeThatGrowsWithItsLength(t *testing.T) {
	for _, fragment := range []string{"://", "://@", "://#", "? ", "://a@b?c#d ", `debug="x"`, "Content-Length "} {
		t.Run(fragment, func(t *testing.T) {
			err := &retryhttp.Error{Err: errors.New(strings.Repeat(fragment, 1<<20/len(fragment)))}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_ = err.Error()
			runtime.ReadMemStats(&after)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "for a megabyte of text")
		})
	}
}

// wireServer answers 503, 503, 200 and so on, and keeps each request's header as it
// came.
func wireServer(t *testing.T) (url string, heads func() []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var got []string
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var head bytes.Buffer
			req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &head)))
			if err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
			}
			before, _, _ := strings.Cut(head.String(), "\r\n\r\n")
			mu.Lock()
			got = append(got, before)
			mu.Unlock()
			status := "503 Service Unavailable"
			if n%3 == 0 {
				status = "200 OK"
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)
			_ = c.Close()
		}
	})
	return "http://" + l.Addr().String(), func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { got = nil }()
		return got
	}
}

func TestHeadersOnTheWireAreThoseOfTheRequest(t *testing.T) {
	bodies := map[string]func(*http.Request){
		"none": func(*http.Request) {},
		"with GetBody": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("content")), nil }
			r.Body, _ = r.GetBody()
			r.ContentLength = 7
		},
		"stream of known length":   func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("content")), 7 },
		"stream of unknown length": func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("content")), -1 },
		"with a trailer": func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("content")), -1
			r.Trailer = http.Header{"Sum": {"1"}}
		},
		"Expect: 100-continue": func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("content")), 7
			r.Header.Set("Expect", "100-continue")
		},
	}
	url, heads := wireServer(t)
	base := &http.Transport{}
	for _, method := range []string{"", "GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
		for name, setBody := range bodies {
			t.Run(method+" "+name, func(t *testing.T) {
				request := func() *http.Request {
					req, err := http.NewRequest(method, url+"/path?query", nil)
					require.NoError(t, err)
					req.Header = http.Header{"X-Own": {"1", "2"}, "lower": {"x"}, "User-Agent": nil}
					setBody(req)
					return req
				}
				for range 3 {
					resp, err := base.RoundTrip(request())
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
				}
				bare := heads()
				resp, err := retryhttp.New(base, retryhttp.Policy{
					Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}, IdempotencyKey: retryhttp.RandomKey,
				}).RoundTrip(request())
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, bare, heads())
			})
		}
	}
}

func TestARedirectDoesNotTakeAGeneratedKeyAlong(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			keys := make(chan string, 10)
			take := func(r *http.Request) { keys <- r.Header.Get("Idempotency-Key") }
			other := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { take(r) }))
			first := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				take(r)
				http.Redirect(w, r, other, code)
			}))
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

// A response's header is looked at where it is, and let go before the wait.
func TestAHugeResponseHeaderIsNotCopied(t *testing.T) {
	huge := http.Header{"Retry-After": {"soon"}}
	for i := range 20_000 {
		huge[fmt.Sprintf("X-%d", i)] = []string{strings.Repeat("x", 50)}
	}
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 503, Header: huge, Body: http.NoBody, Request: req}, nil
	})
	req := getURL(t, "http://server.example")
	rt := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0), Logger: slog.New(slog.DiscardHandler)})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, err := rt.RoundTrip(req)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	assert.Equal(t, 4, retryhttp.OutcomeOf(resp).Attempts)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10))
}

func TestNothingOfTheRequestIsTold(t *testing.T) {
	for name, base := range map[string]http.RoundTripper{
		"an error":   script.New(script.Fail(errBroken)),
		"a response": script.New(script.Status(503, "Set-Cookie", "secret", "Location", "http://user:secret@host/?secret")),
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			req, err := http.NewRequest("PUT", "http://user:secret@server.example/path?token=secret#secret", strings.NewReader("secret"))
			require.NoError(t, err)
			req.Header = http.Header{"Authorization": {"secret"}, "Idempotency-Key": {"secret"}, "Secret": {"secret"}}
			resp, err := (&http.Client{Transport: retryhttp.New(base, retryhttp.Policy{
				Backoff: retryhttp.Constant(0), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})}).Do(req)
			if err != nil {
				assert.NotContains(t, errorOf(t, err).Error(), "secret")
			} else {
				require.NoError(t, resp.Body.Close())
			}
			assert.Contains(t, log.String(), "http://server.example/path")
			assert.NotContains(t, log.String(), "secret")
		})
	}
}
