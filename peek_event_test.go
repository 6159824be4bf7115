package retryhttp_test

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inPieces sends the pieces of a stream, with a pause before each, and then does what end does.
func inPieces(pause time.Duration, end http.HandlerFunc, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		stream(pause, pieces...)(w, r)
		end(w, r)
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

func TestBodyOfAFailedPeekIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		end    error
		length int64
	}{"a break": {errLost, -1}, "an end": {io.EOF, -1}, "a declared length of 0": {io.EOF, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
		})
	}
}

// These tests follow a stream past its first event.

// The base undoes gzip, and the client asks for none.
func TestPeekHoldsWhatGzipHasHidden(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		event(w, "")
		z := gzip.NewWriter(w)
		for _, text := range []string{firstEvent, lastEvent} {
			time.Sleep(900 * ms)
			_, _ = io.WriteString(z, text)
			_ = z.Flush()
			_ = http.NewResponseController(w).Flush()
		}
		_ = z.Close()
	}
	overBoth(t, play(answer), func(t *testing.T, base http.RoundTripper, _ *server) {
		p := peeks
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			assert.Equal(t, firstEvent, string(a.Peek))
			return retryhttp.Classify(a)
		}
		began := time.Now()
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 900*ms, time.Since(began))
		assert.True(t, resp.Uncompressed)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, firstEvent+lastEvent, string(got))
		require.NoError(t, resp.Body.Close())
	})
}

func TestPeekedBytesComeOnceWhateverTheReadsAreLike(t *testing.T) {
	text := strings.Repeat("0123456789", 1000)
	for name, read := range map[string]func(io.Reader) io.Reader{
		"by the base, byte by byte":       iotest.OneByteReader,
		"by the base, in halves":          iotest.HalfReader,
		"by the base, the end with bytes": iotest.DataErrReader,
		"by the base, with empty Reads":   hesitant,
	} {
		for _, size := range []int{1, 7, 100_000} {
			for _, peek := range []int64{1, 1000, 5000, 20_000} {
				p := peeks
				p.PeekBytes = peek
				body := &bodies.Hooked{OnRead: read(strings.NewReader(text)).Read}
				resp, err := retryhttp.New(script.New(script.Respond(200, body)), p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				var got []byte
				for err == nil {
					part, n := make([]byte, size), 0
					n, err = resp.Body.Read(part)
					got = append(got, part[:n]...)
				}
				assert.Equal(t, io.EOF, err)
				assert.True(t, text == string(got), "%s, Reads of %d, PeekBytes %d: %d bytes", name, size, peek, len(got))
				require.NoError(t, resp.Body.Close())
				assert.EqualValues(t, 1, body.Closes.Load())
			}
		}
	}
}

// hesitant returns a Reader whose first Reads bring nothing.
func hesitant(r io.Reader) io.Reader {
	empty := 0
	return readerFunc(func(p []byte) (int, error) {
		if empty++; empty < 100 {
			return 0, nil
		}
		return r.Read(p)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestNestedTransportsRetryAStreamOnce(t *testing.T) {
	outer := func(edit func(*retryhttp.Policy)) retryhttp.Policy {
		p := retryhttp.Policy{Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}}
		edit(&p)
		return p
	}
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		above   retryhttp.Policy
		text    string
		stop    retryhttp.Stop
		sent    int
	}{
		"a success, limited above": {
			play(breakOff, stream(0, firstEvent)),
			outer(func(p *retryhttp.Policy) { p.AttemptTimeout = time.Minute }), firstEvent, retryhttp.StopFinal, 2,
		},
		"a success, peeked above": {
			play(breakOff, stream(0, firstEvent)), peeks, firstEvent, retryhttp.StopFinal, 2,
		},
		"ends, peeked above":  {play(stream(0)), peeks, "", retryhttp.StopNested, 4},
		"ends, limited above": {play(stream(0)), outer(func(p *retryhttp.Policy) { p.AttemptTimeout = time.Minute }), "", retryhttp.StopFinal, 4},
		"error events":        {play(stream(0, errorEvent)), peeks, errorEvent, retryhttp.StopNested, 4},
		"buffered above": {
			play(breakOff), outer(func(p *retryhttp.Policy) { p.BufferBytes = 100 }), "", retryhttp.StopFinal, 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, c.answers, func(t *testing.T, base http.RoundTripper, srv *server) {
				resp, err := retryhttp.New(retryhttp.New(base, peeks), c.above).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				assert.Equal(t, c.stop, retryhttp.OutcomeOf(resp).Stop)
				got, _ := io.ReadAll(resp.Body)
				assert.Equal(t, c.text, string(got))
				require.NoError(t, resp.Body.Close())
				assert.Len(t, srv.got, c.sent)
			})
		})
	}
}
