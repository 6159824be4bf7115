package retryhttp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
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

// An empty body is an answer, unless the response has promised an event or a number of bytes.
func TestEndBeforeAnyByteIsAFailureOnlyIfBytesAreOwed(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		header []string
		err    error // of the attempt
		caller error // of the body that the caller gets
	}{
		"events":                       {200, []string{"Content-Type", "text/event-stream; charset=utf-8"}, io.ErrUnexpectedEOF, nil},
		"events of AWS":                {200, []string{"Content-Type", "application/vnd.amazon.eventstream"}, io.ErrUnexpectedEOF, nil},
		"a part":                       {206, []string{"Content-Range", "bytes 0-9/10"}, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF},
		"no type":                      {200, nil, nil, nil},
		"JSON":                         {200, []string{"Content-Type", "application/json"}, nil, nil},
		"rows, and there are none":     {200, []string{"Content-Type", "application/x-ndjson"}, nil, nil},
		"messages, and there are none": {200, []string{"Content-Type", "application/grpc"}, nil, nil},
		"events, refused":              {404, []string{"Content-Type", "text/event-stream"}, nil, nil},
		"a failure":                    {503, nil, nil, nil},
		"a failure of events":          {503, []string{"Content-Type", "text/event-stream"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := peeks
			p.MaxAttempts = 1
			var judged []retryhttp.Attempt
			p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
				judged = append(judged, a)
				return retryhttp.Classify(a)
			}
			got, err := download(t, script.New(sends(c.code, "", io.EOF, c.header...)), p)
			assert.Equal(t, c.caller, err, "no less than without PeekBytes")
			assert.Empty(t, got)
			require.Len(t, judged, 1)
			assert.Equal(t, c.err, judged[0].Err)
			if c.err != nil {
				assert.Nil(t, judged[0].Response)
				assert.Nil(t, judged[0].Peek)
				return
			}
			assert.Equal(t, c.code, judged[0].Response.StatusCode)
			assert.Equal(t, []byte{}, judged[0].Peek, "Classify sees that the body is empty")
		})
	}
}

// HTTP/2 can end a stream in its header, and a server can declare a length of 0.
func TestEventsWithoutABodyAreAFailure(t *testing.T) {
	for name, body := range map[string]io.ReadCloser{"no body": http.NoBody, "a length of 0": io.NopCloser(strings.NewReader(""))} {
		for kind, attempts := range map[string]int{"text/event-stream": 2, "application/json": 1} {
			t.Run(name+", "+kind, func(t *testing.T) {
				p := peeks
				p.MaxAttempts = 2
				base := script.New(func(req *http.Request) (*http.Response, error) {
					resp, err := sends(200, "", io.EOF, "Content-Type", kind)(req)
					resp.Body, resp.ContentLength = body, 0
					return resp, err
				}, sends(200, "data: x\n\n", io.EOF, "Content-Type", kind))
				_, err := download(t, base, p)
				require.NoError(t, err)
				assert.Len(t, base.Requests(), attempts)
			})
		}
	}
}

// For a server whose answers are never empty.
func TestClassifyMayRetryAnEmptyBody(t *testing.T) {
	p := peeks
	p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		if a.Response != nil && a.Peek != nil && len(a.Peek) == 0 {
			return retryhttp.Retryable
		}
		return retryhttp.Classify(a)
	}
	got, err := download(t, script.New(sends(200, "", io.EOF), sends(200, "x", io.EOF)), p)
	require.NoError(t, err)
	assert.Equal(t, "x", got)
}

func TestBodyOfAFailedPeekIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		end    error
		length int64
	}{"a break": {errLost, -1}, "an end": {io.EOF, -1}, "a declared length of 0": {io.EOF, 0}} {
		t.Run(name, func(t *testing.T) {
			var first *piece
			var failed context.Context
			base := script.New(func(req *http.Request) (*http.Response, error) {
				resp, err := sends(200, "", c.end, "Content-Type", "text/event-stream")(req)
				first, failed = resp.Body.(*piece), req.Context()
				resp.ContentLength = c.length
				return resp, err
			}, sends(200, firstEvent, io.EOF))
			got, err := download(t, base, peeks)
			require.NoError(t, err)
			assert.Equal(t, firstEvent, got)
			assert.EqualValues(t, 1, first.closes.Load())
			assert.Error(t, failed.Err(), "what the attempt has held is let go")
		})
	}
}

// Over HTTP/2, a length of 0 does not end a stream.
func TestStreamOfADeclaredLengthOf0IsEnded(t *testing.T) {
	hangs := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "0")
		silence(w, r)
	})
	synctest.Test(t, func(t *testing.T) {
		srv := &server{answers: play(hangs, stream(0, firstEvent))}
		var open atomic.Int64
		_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
			open.Add(1)
			defer open.Add(-1)
			srv.ServeHTTP(w, r)
		}, true)
		defer stop()
		got, err := download(t, base, peeks)
		require.NoError(t, err)
		assert.Equal(t, firstEvent, got)
		assert.Len(t, srv.got, 2)
		time.Sleep(time.Minute)
		assert.Zero(t, open.Load())
	})
}

// A RoundTripper that somebody has written for a test often leaves the ContentLength at 0.
func TestEventsOfABaseThatSetsNoLengthAreAnAnswer(t *testing.T) {
	base := script.New(func(req *http.Request) (*http.Response, error) {
		resp, err := sends(200, firstEvent, io.EOF, "Content-Type", "text/event-stream")(req)
		resp.ContentLength = 0
		return resp, err
	})
	got, err := download(t, base, peeks)
	require.NoError(t, err)
	assert.Equal(t, firstEvent, got)
	assert.Len(t, base.Requests(), 1)
}

func TestPeekedSuccessIsDepositedOnceItsFirstBytesAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := []string{"Content-Type", "text/event-stream"}
		for name, c := range map[string]struct {
			steps    []script.Step
			deposits int
		}{
			"an event":              {[]script.Step{sends(200, firstEvent, io.EOF, events...)}, 1},
			"an event, and a break": {[]script.Step{sends(200, firstEvent, errLost, events...)}, 1},
			"a break":               {[]script.Step{sends(200, "", errLost, events...)}, 0},
			"an end":                {[]script.Step{sends(200, "", io.EOF, events...)}, 0},
			"a break, and an event": {[]script.Step{sends(200, "", errLost, events...), sends(200, firstEvent, io.EOF, events...)}, 1},
		} {
			budget := &countingBudget{}
			p := peeks
			p.Budget, p.MaxAttempts = budget, 2
			_, _ = download(t, script.New(c.steps...), p)
			assert.Equal(t, c.deposits, budget.deposit, name)
		}
	})
}

// After a failed peek, a host counts as failing, as after a failure to buffer its body.
func TestStreamsThatFailBeforeTheirFirstEventMarkAHostAsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := new(retryhttp.Gate)
		p := peeks
		p.Gate, p.MaxAttempts = gate, 1
		p.Classify = nil
		base := script.New(sends(200, "", errors.New("reset")))
		rt := retryhttp.New(base, p)
		for range 8 {
			resp, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			time.Sleep(20 * ms)
		}
		down := gate.Status(get(t, t.Context())).Down
		assert.True(t, down)
	})
}
