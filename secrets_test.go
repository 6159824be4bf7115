package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// Retry-After plus backoff must saturate.
func TestHugeRetryAfterIsWaitedFor(t *testing.T) {
	for _, v := range []string{"9223372036", "99999999999999999999"} {
		t.Run(v, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), math.MaxInt64)
				_ = ctx
				defer cancel()
				cctx, stop := context.WithCancel(t.Context())
				time.AfterFunc(time.Hour, stop)
				base := script.New(script.Status(503, "Retry-After", v))
				_, err := retryhttp.New(base, retryhttp.Policy{MaxRetryAfter: math.MaxInt64, Backoff: retryhttp.Constant(time.Second), Budget: retryhttp.Unlimited{}}).RoundTrip(get(t, cctx))
				assert.Error(t, err)
				assert.Len(t, base.Requests(), 1, "attempts within the hour, waits %v", base.Waits())
			})
		})
	}
}

// A hostile header of 1 MB (net/http takes 10 MB by default).
func TestHostileRetryAfterIsCheap(t *testing.T) {
	// A megabyte of header: what is looked at more than once for each line shows
	// in what is allocated.
	h := http.Header{"Date": {strings.Repeat("x", 500_000)}}
	for range 10_000 {
		h["Retry-After"] = append(h["Retry-After"], strings.Repeat("y", 50))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok := retryhttp.RetryAfter(h)
	runtime.ReadMemStats(&after)
	assert.False(t, ok)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// logged returns what is logged and what the error says.
func logged(t *testing.T, base http.RoundTripper, req *http.Request) string {
	var buf strings.Builder
	_, err := retryhttp.New(base, retryhttp.Policy{MaxAttempts: 2, Backoff: retryhttp.Constant(0), Logger: slog.New(slog.NewTextHandler(&buf, nil))}).RoundTrip(req)
	require.Error(t, err)
	return buf.String() + "\n" + err.Error()
}

func TestNoSecretIsTold(t *testing.T) {
	ue := func(u string) error { return &url.Error{Op: "Get", URL: u, Err: io.EOF} }
	for name, err := range map[string]error{
		"joined":   errors.Join(ue("http://a/?token=one"), ue("http://b/?token=secret"), ue("http://user:secret/x@c/")),
		"wrapped":  fmt.Errorf("the base: %w", ue("http://user:secret/x@b/")),
		"nested":   &url.Error{Op: "Get", URL: "http://a/", Err: ue("http://u:secret@b/")},
		"location": &url.Error{Op: "Get", URL: "http://a/", Err: fmt.Errorf("failed to parse Location header %q: %w", "http://b/%zz?t=secret", ue("http://b/%zz?t=secret"))},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NotContains(t, logged(t, script.New(script.Fail(err)), get(t, t.Context())), "secret")
		})
	}
	t.Run("proxy password with a slash", func(t *testing.T) {
		base := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) {
			return url.Parse(strings.Join([]string{"http://user", "secret/x@proxy", "3128"}, ":"))
		}}
		assert.NotContains(t, logged(t, base, get(t, t.Context())), "secret")
	})
	t.Run("HTTP/2 path", func(t *testing.T) {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(status(200)))
		srv.EnableHTTP2 = true
		srv.StartTLS()
		defer srv.Close()
		req, _ := http.NewRequest("GET", srv.URL, nil)
		req.URL.Path, req.URL.RawQuery = "foo", "token=secret"
		assert.NotContains(t, logged(t, srv.Client().Transport, req), "secret")
	})
	t.Run("redirect through a client", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://b.example/%zz?token=secret")
			w.WriteHeader(302)
		}))
		defer srv.Close()
		c := &http.Client{}
		req, _ := http.NewRequest("GET", srv.URL, nil)
		assert.NotContains(t, logged(t, roundTripperFunc(c.Do), req), "secret")
	})
	t.Run("userinfo in Host", func(t *testing.T) {
		req := get(t, t.Context())
		req.URL.Host = "user:secret@host.example"
		assert.NotContains(t, logged(t, script.New(script.Fail(errBroken)), req), "secret")
	})
}

// Whoever logs a context has its type printed, if it does not say what to.
func TestContextsTellNothing(t *testing.T) {
	base := &numbers{failures: 1}
	req := get(t, t.Context())
	req.Header.Set("Authorization", "secret")
	resp, err := retryhttp.New(base, noWait).RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, "retryhttp.attempt", fmt.Sprint(base.requests[1].Context()))
	assert.Equal(t, "retryhttp.outcome", fmt.Sprint(resp.Request.Context()))
}

func TestWhatIsNoSecretIsTold(t *testing.T) {
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

// An outage of more hosts than there are buckets.
func TestOutageOfManyHostsDiesOut(t *testing.T) {
	var b retryhttp.TokenBucket
	granted := 0
	reqs := make([]*http.Request, 4196)
	for i := range reqs {
		reqs[i] = requestTo("h" + strconv.Itoa(i))
	}
	for range 2 {
		for _, r := range reqs {
			for range 3 { // retries wanted by each failing request
				if b.Withdraw(r) {
					granted++
				}
			}
		}
	}
	assert.LessOrEqual(t, granted, 5*len(reqs), "each host has Burst 5 and no success")
}
