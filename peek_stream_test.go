package retryhttp_test

import (
	"compress/gzip"
	"context"
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
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

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

// A stream that falls silent after its first event is a matter of StallTimeout, and not of the attempt.
func TestStallAfterTheFirstEventIsTheCallers(t *testing.T) {
	answers := play(func(w http.ResponseWriter, r *http.Request) {
		memnet.EndConnection(w, r)
		event(w, firstEvent)
		<-r.Context().Done()
	})
	overBoth(t, answers, func(t *testing.T, base http.RoundTripper, srv *server) {
		p := peeks
		p.StallTimeout = 3 * time.Second
		began := time.Now()
		got, err := download(t, base, p)
		assert.Equal(t, firstEvent, got)
		assert.EqualError(t, err, "the response body stalled for 3s")
		assert.Equal(t, 3*time.Second, time.Since(began), "AttemptTimeout is over")
		assert.Len(t, srv.got, 1)
	})
}

func TestAttemptsContextHasTheDeadlineUntilTheFirstBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var deadlines []time.Duration
		base := script.New(func(req *http.Request) (*http.Response, error) {
			reads := 0
			return script.Respond(200, &bodies.Hooked{OnRead: func(b []byte) (int, error) {
				deadline, ok := req.Context().Deadline()
				assert.True(t, ok)
				deadlines = append(deadlines, deadline.Sub(began))
				if reads++; reads > 2 {
					return 0, io.EOF
				}
				return copy(b, firstEvent), nil
			}})(req)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := readAll(t, base, peeks, get(t, ctx))
		require.NoError(t, err)
		assert.Equal(t, firstEvent+firstEvent, got)
		assert.Equal(t, []time.Duration{peeks.AttemptTimeout, time.Minute, time.Minute}, deadlines)
	})
}

// The question is repeated whole, and the answer may come while it is still sent.
func TestPostIsSentAgainIfItsStreamFailsBeforeTheFirstEvent(t *testing.T) {
	answers := play(breakOff, stream(0, errorEvent), stream(0, firstEvent))
	overBoth(t, answers, func(t *testing.T, base http.RoundTripper, srv *server) {
		p := peeks
		p.Idempotent = func(*http.Request) bool { return true }
		question := strings.Repeat("why? ", 10_000)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://host.example/", strings.NewReader(question))
		require.NoError(t, err)
		got, err := readAll(t, base, p, req)
		require.NoError(t, err)
		assert.Equal(t, firstEvent, got)
		require.Len(t, srv.got, 3)
		for _, r := range srv.got {
			assert.True(t, question == r.body)
		}
	})
}

func TestPostIsNotSentAgainIfItMayHaveTakenEffect(t *testing.T) {
	for name, edit := range map[string]func(*retryhttp.Policy){
		"by default":       func(*retryhttp.Policy) {},
		"if not processed": func(p *retryhttp.Policy) { p.RetryUnprocessed = true },
	} {
		t.Run(name, func(t *testing.T) {
			p := peeks
			edit(&p)
			req := get(t, t.Context())
			req.Method = http.MethodPost
			resp, err := retryhttp.New(script.New(sends(200, "", errLost)), p).RoundTrip(req)
			require.NoError(t, err, "the caller gets the response, and then the error")
			o := retryhttp.OutcomeOf(resp)
			assert.Equal(t, retryhttp.StopNotIdempotent, o.Stop)
			assert.Equal(t, 1, o.Attempts)
			_, err = io.ReadAll(resp.Body)
			assert.Equal(t, errLost, err)
			require.NoError(t, resp.Body.Close())
		})
	}
}

func TestPeekIsSwitchedOffForARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(stream(time.Hour, firstEvent))
		defer stop()
		ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.PeekBytes = 0 })
		began := time.Now()
		resp, err := retryhttp.New(base, peeks).RoundTrip(get(t, ctx))
		require.NoError(t, err)
		assert.Zero(t, time.Since(began))
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, firstEvent, string(got))
		require.NoError(t, resp.Body.Close())
	})
}

// A break before the first byte is a failed attempt, and needs no range.
func TestBreakBeforeTheFirstByteIsRetriedAndNotResumed(t *testing.T) {
	p := peeks
	p.Resume = true
	base := script.New(cutAfter(0), cutAfter(9), rest(9))
	got, err := download(t, base, p)
	require.NoError(t, err)
	assert.Equal(t, object, got)
	assert.Equal(t, []string{"", "", "bytes=9-35"}, ranges(base))
}

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
