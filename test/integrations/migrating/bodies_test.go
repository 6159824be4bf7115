package migrating_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/PuerkitoBio/rehttp"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// written is a file that has just been written, and so its position is at its end.
func written(t *testing.T, text string) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	_, err = file.WriteString(text)
	require.NoError(t, err)
	return file
}

// put sends a body, and closes the response.
func put(t *testing.T, client doer, body io.Reader) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, "http://example.com/", body)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	return resp
}

func TestFromWhereAFileIsSent(t *testing.T) {
	const start, here = "hello", ""
	forEach(t, map[string]string{
		"go-retryablehttp": start, "rehttp": here, "heimdall": here, "resty": here, "failsafehttp": start,
		"retryhttp": here,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want string) {
		base := answering(http.StatusOK)
		put(t, build(base), written(t, "hello"))
		assert.Equal(t, want, base.sent)
	})
}

func TestFromWhereAFileIsSentByTheClientsOfRetryablehttp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := answering(http.StatusOK)
		put(t, newRetryable(base).StandardClient(), written(t, "hello"))
		assert.Equal(t, "hello", base.sent)

		base = answering(http.StatusOK)
		resp, err := newRetryable(base).Post("http://example.com/", "text/plain", written(t, "hello"))
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, "hello", base.sent)
	})
}

func TestHowOftenTheRequestsBodyIsClosed(t *testing.T) {
	forEach(t, map[string]int64{
		"go-retryablehttp": 0, "rehttp": 1, "heimdall": 0, "resty": 1, "failsafehttp": 0,
		"retryhttp": 1,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want int64) {
		var closed atomic.Int64
		base := answering(http.StatusOK)
		put(t, build(base), &countedBody{strings.NewReader("hello"), &closed})
		assert.Equal(t, "hello", base.sent)
		assert.Equal(t, want, closed.Load())
	})
}

func TestRetryablehttpKnowsTheLengthOfAnyReader(t *testing.T) {
	var lengths []int64
	base := &stub{answer: func(_ int, req *http.Request) (*http.Response, error) {
		lengths = append(lengths, req.ContentLength)
		return response(req, http.StatusOK), nil
	}}
	body := func() io.Reader { return io.LimitReader(strings.NewReader("hello"), 5) }
	synctest.Test(t, func(t *testing.T) {
		resp, err := newRetryable(base).Post("http://example.com/", "text/plain", body())
		require.NoError(t, err)
		resp.Body.Close()

		put(t, peers["retryhttp"](base), body())

		req, err := http.NewRequest(http.MethodPut, "http://example.com/", body())
		require.NoError(t, err)
		req.ContentLength = 5
		resp, err = peers["retryhttp"](base).Do(req)
		require.NoError(t, err)
		resp.Body.Close()
	})
	const unknown = 0
	assert.Equal(t, []int64{5, unknown, 5}, lengths)
}

func TestWhichRequestsWithABodyFollowA307(t *testing.T) {
	theirs := func(t *testing.T, base http.RoundTripper, body io.Reader) *http.Response {
		req, err := retryablehttp.NewRequest(http.MethodPut, "http://example.com/", body)
		require.NoError(t, err)
		resp, err := newRetryable(base).Do(req)
		require.NoError(t, err)
		return resp
	}
	ours := func(t *testing.T, base http.RoundTripper, body io.Reader) *http.Response {
		return put(t, peers["retryhttp"](base), body)
	}
	oursWithGetBody := func(t *testing.T, base http.RoundTripper, body io.Reader) *http.Response {
		req, err := http.NewRequest(http.MethodPut, "http://example.com/", body)
		require.NoError(t, err)
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("hello")), nil }
		resp, err := peers["retryhttp"](base).Do(req)
		require.NoError(t, err)
		return resp
	}
	for name, of := range map[string]struct {
		send func(*testing.T, http.RoundTripper, io.Reader) *http.Response
		want int
	}{
		"go-retryablehttp":        {theirs, http.StatusOK},
		"retryhttp":               {ours, http.StatusTemporaryRedirect},
		"retryhttp, with GetBody": {oursWithGetBody, http.StatusOK},
	} {
		for kind, body := range map[string]io.Reader{
			"file": written(t, "hello"), "stream": io.LimitReader(strings.NewReader("hello"), 5),
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := &stub{answer: func(n int, req *http.Request) (*http.Response, error) {
						if n == 1 {
							return response(req, http.StatusTemporaryRedirect, "Location", "/target"), nil
						}
						return response(req, http.StatusOK), nil
					}}
					resp := of.send(t, base, body)
					resp.Body.Close()
					assert.Equal(t, of.want, resp.StatusCode)
					if of.want == http.StatusOK {
						assert.Equal(t, "hello", base.sent)
					}
				})
			})
		}
	}
}

// busy reports whether a response with status 200 has a body that refuses the request. The body
// can be read again afterwards.
func busy(resp *http.Response) bool {
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return string(body) == "busy"
}

func TestARuleThatReadsTheBodyLiesBelow(t *testing.T) {
	for name, build := range map[string]func(http.RoundTripper) doer{
		"go-retryablehttp, CheckRetry": func(base http.RoundTripper) doer {
			client := newRetryable(base)
			client.CheckRetry = func(_ context.Context, resp *http.Response, _ error) (bool, error) { return busy(resp), nil }
			return viaRetryable{client}
		},
		"rehttp, RetryFn": func(base http.RoundTripper) doer {
			rule := func(attempt rehttp.Attempt) bool { return busy(attempt.Response) }
			return &http.Client{Transport: rehttp.NewTransport(base, rule, rehttp.ConstDelay(wait))}
		},
		"failsafehttp, HandleIf": failsafe(func(b failsafeBuilder) failsafeBuilder {
			return b.HandleIf(func(resp *http.Response, _ error) bool { return busy(resp) })
		}),
		"retryhttp, below": func(base http.RoundTripper) doer {
			return peers["retryhttp"](roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := base.RoundTrip(req)
				if err == nil && busy(resp) {
					return nil, errors.New("busy")
				}
				return resp, err
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &stub{answer: func(n int, req *http.Request) (*http.Response, error) {
					resp := response(req, http.StatusOK)
					if n == 1 {
						resp.Body = io.NopCloser(strings.NewReader("busy"))
					}
					return resp, nil
				}}
				resp, err := get(t, t.Context(), build(base))
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				assert.Equal(t, "hello", string(body))
				assert.Equal(t, 2, base.count())
			})
		})
	}
}
