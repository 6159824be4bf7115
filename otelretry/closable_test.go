package otelretry_test

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// stuck is a body whose Read gets nothing for an hour, and ends sooner only if it is closed.
type stuck struct {
	closed          chan struct{}
	once            sync.Once
	reading, beside atomic.Bool // beside: it was closed during a Read
}

func (s *stuck) Read([]byte) (int, error) {
	s.reading.Store(true)
	defer s.reading.Store(false)
	select {
	case <-s.closed:
	case <-time.After(time.Hour):
	}
	return 0, io.ErrUnexpectedEOF
}

func (s *stuck) Close() error {
	if s.reading.Load() {
		s.beside.Store(true)
	}
	s.once.Do(func() { close(s.closed) })
	return nil
}

// closableStuck may be closed while it is read, as net/http's own bodies may be.
type closableStuck struct{ *stuck }

func (closableStuck) ClosableAs() io.ReadCloser { return http.NoBody }

// A stall closes a body beside its Read only if the base's body allows it. The Transport that
// notices the stall finds that body by the names of methods, through what otelretry wraps.
func TestAStallClosesABodyBesideItsReadOnlyIfTheBaseAllowsIt(t *testing.T) {
	stalling := retryhttp.Policy{StallTimeout: time.Second}
	for name, layers := range map[string]func(builder, http.RoundTripper) http.RoundTripper{
		"the Transport itself": func(build builder, base http.RoundTripper) http.RoundTripper {
			return build(base, stalling)
		},
		"a Transport above it": func(build builder, base http.RoundTripper) http.RoundTripper {
			return retryhttp.New(build(base, retryhttp.Policy{}), stalling)
		},
		"a Transport above one that resumes": func(build builder, base http.RoundTripper) http.RoundTripper {
			return retryhttp.New(build(base, resuming()), stalling)
		},
	} {
		for _, allowed := range []bool{true, false} {
			forBoth(t, func(t *testing.T, build builder) {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						body := &stuck{closed: make(chan struct{})}
						rt := layers(build, roundTripperFunc(func(req *http.Request) (*http.Response, error) {
							resp := &http.Response{StatusCode: 200, ContentLength: 9, Body: body, Request: req}
							resp.Header = http.Header{"Etag": {`"v1"`}}
							if allowed {
								resp.Body = closableStuck{body}
							}
							return resp, nil
						}))
						resp, err := rt.RoundTrip(asked(t))
						require.NoError(t, err)
						start := time.Now()
						_, err = resp.Body.Read(make([]byte, 1))
						require.Error(t, err)
						assert.Equal(t, allowed, body.beside.Load())
						assert.Equal(t, map[bool]time.Duration{true: time.Second, false: time.Hour}[allowed], time.Since(start))
						_ = resp.Body.Close()
					})
				})
			})
		}
	}
}
