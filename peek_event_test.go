package retryhttp_test

import (
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// inPieces sends the pieces of a stream, with a pause before each, and then does what end does.
func inPieces(pause time.Duration, end http.HandlerFunc, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		stream(pause, pieces...)(w, r)
		end(w, r)
	}
}

// A server, or a proxy before it, may cut a stream anywhere. What is not yet an event is not the caller's.
func TestFirstEventBelongsToTheAttemptHoweverItIsCut(t *testing.T) {
	for name, first := range map[string]http.HandlerFunc{
		"an error event, line by line": inPieces(time.Millisecond, silence, "event: error\n", "data: {\"type\":\"overloaded_error\"}\n", "\n"),
		"an error event, cut in a word": inPieces(time.Millisecond, silence,
			"event: error\ndata: {\"type\":\"overl", "oaded_error\"}\n\n"),
		"an error event, with CR and LF": inPieces(time.Millisecond, silence, "event: error\r\n", "data: {\"type\":\"overloaded_error\"}\r\n\r\n"),
		"silence in the first event":     inPieces(time.Millisecond, silence, "event: message\n"),
		"a break in the first event":     inPieces(time.Millisecond, breakOff, "event: message\ndata: 0"),
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, play(first, stream(0, firstEvent, lastEvent)), func(t *testing.T, base http.RoundTripper, srv *server) {
				got, err := download(t, base, peeks)
				require.NoError(t, err)
				assert.Equal(t, firstEvent+lastEvent, got, "each event once")
				assert.Len(t, srv.got, 2)
			})
		})
	}
}

// The caller gets an event when it is whole, and waits for nothing else.
func TestStreamIsHandedOverWithItsFirstEvent(t *testing.T) {
	message := func(payload string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(4+len(payload)))) + payload
	}
	for name, c := range map[string]struct {
		media  string
		pieces []string // a tenth of a second apart
		after  int      // the number of pieces until the response is the caller's
	}{
		"an event":                   {"text/event-stream; charset=utf-8", []string{"data: 1\n", "\n", "data: 2\n\n"}, 2},
		"an event, with CR":          {"text/event-stream", []string{"data: 1\r", "\r", "data: 2\r\r"}, 2},
		"a comment":                  {"text/event-stream", []string{": wait\n", "\n", "data: 2\n\n"}, 2},
		"PeekBytes of an event":      {"text/event-stream", []string{"data: ", strings.Repeat("x", 4096), "y\n\n"}, 2},
		"an end without an event":    {"text/event-stream", []string{"{\"error\":", "1}"}, 3},
		"a message":                  {"application/vnd.amazon.eventstream", []string{message("abc")[:2], message("abc")[2:6], message("abc")[6:], "d"}, 3},
		"two messages at once":       {"application/vnd.amazon.eventstream", []string{message("") + message("b"), "c"}, 1},
		"a line":                     {"application/x-ndjson", []string{"{\"a\":", "1}\n", "{}\n"}, 2},
		"any byte of something else": {"application/json", []string{"{", "}"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", c.media)
					_ = http.NewResponseController(w).Flush()
					for _, piece := range c.pieces {
						time.Sleep(100 * time.Millisecond)
						_, _ = io.WriteString(w, piece)
						_ = http.NewResponseController(w).Flush()
					}
					time.Sleep(100 * time.Millisecond)
				}, false)
				defer stop()
				p := peeks
				p.MaxAttempts = 1
				began := time.Now()
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				assert.Equal(t, time.Duration(c.after)*100*time.Millisecond, time.Since(began))
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				assert.Equal(t, strings.Join(c.pieces, ""), string(got))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// Compressed bytes do not show where an event ends.
func TestFirstBytesOfACompressedStreamAreEnough(t *testing.T) {
	answers := play(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "zstd")
		inPieces(0, silence, "compressed")(w, r)
	})
	overBoth(t, answers, func(t *testing.T, base http.RoundTripper, srv *server) {
		began := time.Now()
		resp, err := retryhttp.New(base, peeks).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Zero(t, time.Since(began))
		require.NoError(t, resp.Body.Close())
		assert.Len(t, srv.got, 1)
	})
}

// AttemptTimeout is how long the first event may take, and StallTimeout how long each later one may.
func TestStallTimeoutBeginsAfterTheFirstEvent(t *testing.T) {
	const slow = 20 * time.Second
	for name, c := range map[string]struct {
		attempt time.Duration
		answer  http.HandlerFunc
		want    string
		err     string
		at      time.Duration
	}{
		"a slow first event": {30 * time.Second, stream(slow, firstEvent), firstEvent, "", slow},
		"a slow second event": {
			30 * time.Second, stream(slow, firstEvent, lastEvent), firstEvent, "the response body stalled for 10s", slow + 10*time.Second,
		},
		"without AttemptTimeout": {0, stream(slow, firstEvent), "", "the response body stalled for 10s", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, play(c.answer), func(t *testing.T, base http.RoundTripper, srv *server) {
				p := peeks
				p.MaxAttempts, p.AttemptTimeout, p.StallTimeout = 1, c.attempt, 10*time.Second
				began := time.Now()
				got, err := download(t, base, p)
				assert.Equal(t, c.want, got)
				if c.err == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, c.err)
				}
				assert.Equal(t, c.at, time.Since(began))
				assert.Len(t, srv.got, 1)
			})
		})
	}
}

// The last attempt's body is the caller's as it came, also if it broke off in its first event.
func TestLastStreamThatBrokeInItsFirstEventIsHandedOver(t *testing.T) {
	base := script.New(func(r *http.Request) (*http.Response, error) {
		resp := script.Response(r, http.StatusOK, "Content-Type", "text/event-stream")
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("data: 0"), iotest.ErrReader(errBroken)))
		resp.ContentLength = -1
		return resp, nil
	})
	p := peeks
	p.MaxAttempts = 2
	resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	assert.ErrorIs(t, err, errBroken)
	assert.Equal(t, "data: 0", string(got))
	assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
	assert.Equal(t, retryhttp.StopAttempts, retryhttp.OutcomeOf(resp).Stop)
}
