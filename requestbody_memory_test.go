package retryhttp_test

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// uploadBody is a request body of a MiB, whose memory is watched.
type uploadBody struct {
	*bytes.Reader
	content [1 << 20]byte
}

func (*uploadBody) Close() error { return nil }

// A body of each attempt is in memory while the attempt and the next one are made, and no longer.
func TestBodiesOfPastAttemptsAreNotKept(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"by default":     {},
		"AttemptTimeout": {AttemptTimeout: time.Hour},
		"BufferBytes":    {BufferBytes: 100},
		"Hedge":          {Hedge: &retryhttp.Hedge{After: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			var made []weak.Pointer[uploadBody]
			newBody := func() (io.ReadCloser, error) {
				b := new(uploadBody)
				b.Reader = bytes.NewReader(b.content[:])
				made = append(made, weak.Make(b))
				return b, nil
			}
			const attempts = 400
			base := script.Step(func(req *http.Request) (*http.Response, error) {
				n, err := io.Copy(io.Discard, req.Body)
				assert.NoError(t, err)
				assert.EqualValues(t, 1<<20, n)
				assert.NoError(t, req.Body.Close())
				if len(made)%50 == 0 {
					runtime.GC()
					for _, body := range made[1 : len(made)-2] { // the first is the caller's
						assert.True(t, body.Value() == nil, "a body of a past attempt is kept")
					}
				}
				if len(made) == attempts {
					return script.Response(req, 200), nil
				}
				return script.Response(req, 503), nil
			})
			p.MaxAttempts, p.Backoff, p.Budget = attempts, retryhttp.Constant(0), retryhttp.Unlimited{}
			req := get(t, t.Context())
			req.Method, req.GetBody = "QUERY", newBody
			req.Body, _ = newBody()
			resp, err := retryhttp.New(base, p).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, attempts, retryhttp.OutcomeOf(resp).Attempts)
		})
	}
}
