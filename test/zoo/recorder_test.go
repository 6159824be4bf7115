package zoo

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/dnaeon/go-vcr.v4/pkg/recorder"

	"github.com/retryhttp/retryhttp"
)

// recorded are the policies under which a recording must be the same in the replay.
func recorded() map[string]retryhttp.Policy {
	wait := retryhttp.Constant(time.Millisecond)
	return map[string]retryhttp.Policy{
		"zero": {Backoff: wait},
		"full": {
			Backoff: wait, AttemptTimeout: time.Minute, BufferBytes: 1 << 16, PeekBytes: 1 << 12, Resume: true,
			StallTimeout: time.Minute, Hedge: &retryhttp.Hedge{After: time.Hour},
		},
	}
}

// go-vcr puts an empty body on a request that has none.
func TestRecorderReplaysTheRetriesThatItRecorded(t *testing.T) {
	for name, p := range recorded() {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "DELETE", "PUT", "PUT hello"} {
			t.Run(name+" "+method, func(t *testing.T) {
				method, body, _ := strings.Cut(method, " ")
				var calls atomic.Int32
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got, _ := io.ReadAll(r.Body)
					assert.Equal(t, body, string(got))
					if calls.Add(1) < 3 {
						w.WriteHeader(http.StatusServiceUnavailable)
					}
				}))
				defer server.Close()
				cassette := filepath.Join(t.TempDir(), "cassette")
				for _, mode := range []recorder.Mode{recorder.ModeRecordOnly, recorder.ModeReplayOnly} {
					rec, err := recorder.New(cassette, recorder.WithMode(mode), recorder.WithSkipRequestLatency(true))
					require.NoError(t, err)
					req, err := http.NewRequestWithContext(t.Context(), method, server.URL, nil)
					require.NoError(t, err)
					if body != "" {
						req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
					}
					resp, err := (&http.Client{Transport: retryhttp.New(rec, p)}).Do(req)
					require.NoError(t, err)
					resp.Body.Close()
					assert.Equal(t, 200, resp.StatusCode)
					assert.Equal(t, 3, retryhttp.OutcomeOf(resp).Attempts)
					require.NoError(t, rec.Stop())
				}
				assert.EqualValues(t, 3, calls.Load(), "the replay asks no server")
			})
		}
	}
}

func TestMockAnswersRetries(t *testing.T) {
	for name, p := range recorded() {
		t.Run(name, func(t *testing.T) {
			mock := httpmock.NewMockTransport()
			mock.RegisterResponder("GET", "http://host.example/", httpmock.ResponderFromMultipleResponses([]*http.Response{
				httpmock.NewStringResponse(503, "no"), httpmock.NewStringResponse(503, "no"), httpmock.NewStringResponse(200, "fine"),
			}))
			resp, err := (&http.Client{Transport: retryhttp.New(mock, p)}).Get("http://host.example/")
			require.NoError(t, err)
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, "fine", string(got))
			assert.Equal(t, 3, mock.GetTotalCallCount())
		})
	}
}
