package retryhttp_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// readingBase reads the body of each request and puts it back, as recorders and old signers do. They
// also do so with a body that is not there.
type readingBase struct {
	http.RoundTripper
	bodies []io.ReadCloser // of the requests, as they came
}

func (b *readingBase) RoundTrip(req *http.Request) (*http.Response, error) {
	b.bodies = append(b.bodies, req.Body)
	var content []byte
	if req.Body != nil {
		content, _ = io.ReadAll(req.Body)
	}
	req.Body = io.NopCloser(bytes.NewReader(content))
	req.ContentLength = -1
	return b.RoundTripper.RoundTrip(req)
}

// Whether a request has a body is decided before the first attempt.
func TestBodyThatTheBasePutsOnARequestIsNotTheCallers(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"zero": {},
		"full": {
			AttemptTimeout: time.Hour, BufferBytes: 1 << 16, PeekBytes: 1 << 12, Resume: true, StallTimeout: time.Hour,
			Hedge: &retryhttp.Hedge{After: time.Minute},
		},
	} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"} {
			for kind, body := range map[string]io.ReadCloser{"nil": nil, "NoBody": http.NoBody} {
				t.Run(name+" "+method+" "+kind, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						base := &readingBase{RoundTripper: script.New(script.Status(503), script.Fail(errBroken), script.Status(200))}
						p.Backoff = retryhttp.Constant(time.Second)
						req := get(t, t.Context())
						req.Method, req.Body = method, body
						resp, err := retryhttp.New(base, p).RoundTrip(req)
						require.NoError(t, err)
						assert.Equal(t, 200, resp.StatusCode)
						require.Len(t, base.bodies, 3)
						for _, got := range base.bodies[1:] {
							assert.True(t, got == nil || got == http.NoBody, "a retry has no body")
						}
					})
				})
			}
		}
	}
}

func TestDownloadIsResumedThoughTheBasePutsABodyOnItsRequest(t *testing.T) {
	base := &readingBase{RoundTripper: script.New(cutAfter(10), rest(10))}
	got, err := download(t, base, resumes)
	require.NoError(t, err)
	assert.Equal(t, object, got)
	assert.Len(t, base.bodies, 2)
	assert.Nil(t, base.bodies[1])
}
