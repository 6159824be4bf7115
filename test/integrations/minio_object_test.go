package integrations_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// objects serves one object, and counts how often it is fetched.
type objects struct {
	content []byte
	gets    atomic.Int32
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		o.gets.Add(1)
	}
	w.Header().Set("ETag", `"17"`)
	http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(o.content))
}

// A copy of an Object fetches it once for each attempt. Each ReadAt would be a request of its own.
func TestMinioObjectIsFetchedOnceForEachAttempt(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	for answers, failures := range map[string]int32{"200": 0, "503 and 200": 1, "an early 503 and 200": -1} {
		for _, known := range []bool{false, true} {
			for _, http2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, known length %t, HTTP/2 %t", answers, known, http2), func(t *testing.T) {
					source := &objects{content: content}
					from := httptest.NewServer(source)
					defer from.Close()
					object, err := minioClient(t, from.URL, minioPolicy).
						GetObject(t.Context(), "books", "17", minio.GetObjectOptions{})
					require.NoError(t, err)

					var attempts atomic.Int32
					var got []byte
					to := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						fails := attempts.Add(1) == 1 && failures != 0
						if !fails || failures > 0 {
							body, err := io.ReadAll(r.Body)
							if err != nil {
								return // the client went away
							}
							got = body
						}
						if fails {
							w.WriteHeader(http.StatusServiceUnavailable)
						}
					}))
					to.EnableHTTP2 = http2
					to.StartTLS()
					defer to.Close()

					req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, to.URL, object)
					require.NoError(t, err)
					if known {
						req.ContentLength = int64(len(content))
					}
					policy := retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)}
					resp, err := retryhttp.New(to.Client().Transport, policy).RoundTrip(req)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Equal(t, http.StatusOK, resp.StatusCode)
					require.True(t, bytes.Equal(content, got))
					require.LessOrEqual(t, source.gets.Load(), attempts.Load(), "one GET for each attempt")
				})
			}
		}
	}
}
