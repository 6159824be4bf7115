package http2_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2/hpack"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// The caller has read all of the answer, and has not closed it, while the request is still being
// sent. A client of a stream in both directions does so.
func TestUploadOutlastsTheAnswer(t *testing.T) {
	outlasts(t, "all", func(s *stream) {
		_, _ = io.WriteString(s, "all")
		s.finish(nil)
	}, -1, func(resp *http.Response) {})
}

// net/http has read the end of such an upload before it sends the last bytes, for which the server has no window yet.
func TestUploadOfKnownLengthOutlastsTheAnswer(t *testing.T) {
	outlasts(t, "all", func(s *stream) {
		_, _ = io.WriteString(s, "all")
		s.finish(nil)
	}, int64(len("upload")), func(resp *http.Response) {})
}

// An answer without a body was over with its header. So a Close of its body does nothing.
func TestUploadOutlastsAnAnswerThatHasNoBodyAndIsClosed(t *testing.T) {
	outlasts(t, "", func(s *stream) {
		s.conn.write(func() {
			s.begun, s.ended = true, true
			s.conn.writeHeaders(s.number, true, s.header, hpack.HeaderField{Name: ":status", Value: "204"})
		})
	}, -1, func(resp *http.Response) { require.NoError(t, resp.Body.Close()) })
}

func outlasts(t *testing.T, want string, answer func(*stream), length int64, got func(*http.Response)) {
	inBubble(t, func(t *testing.T, b base) {
		received := make(chan string, 1)
		n := memnet.New()
		server := newServer(n, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer(w.(*stream))
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			received <- string(body)
		}), window)
		rt := retryhttp.New(b.open(n.Dial), retryhttp.Policy{AttemptTimeout: time.Minute})
		body, upload := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://server/", body)
		require.NoError(t, err)
		req.ContentLength = length
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
		got(resp)
		time.Sleep(time.Hour)
		_, err = io.WriteString(upload, "upload")
		assert.NoError(t, err)
		require.NoError(t, upload.Close())
		assert.Equal(t, "upload", <-received)
		require.NoError(t, resp.Body.Close())
		rt.CloseIdleConnections()
		server.close()
		time.Sleep(time.Minute) // what a base keeps for a closed stream
	})
}
