package retryhttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// peeks is a Policy for streams whose first event belongs to the attempt. It retries at once.
var peeks = retryhttp.Policy{
	PeekBytes: 4096, AttemptTimeout: time.Second,
	Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{},
	Classify: func(a retryhttp.Attempt) retryhttp.Class {
		if strings.Contains(string(a.Peek), "overloaded_error") {
			return retryhttp.Retryable
		}
		return retryhttp.Classify(a)
	},
}

const (
	errorEvent = "event: error\ndata: {\"type\":\"overloaded_error\"}\n\n"
	firstEvent = "data: 1\n\n"
	lastEvent  = "data: 2\n\n"
)

// event sends some of a stream.
func event(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// stream sends its events, with a pause before each.
func stream(pause time.Duration, events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		event(w, "")
		for _, text := range events {
			select {
			case <-time.After(pause):
				event(w, text)
			case <-r.Context().Done():
				return
			}
		}
	}
}

func silence(w http.ResponseWriter, r *http.Request) {
	event(w, "")
	<-r.Context().Done()
}

func breakOff(w http.ResponseWriter, _ *http.Request) {
	event(w, "")
	panic(http.ErrAbortHandler)
}

// overBoth runs test in a bubble for each protocol, with a server that plays answers.
func overBoth(t *testing.T, answers []http.HandlerFunc, test func(t *testing.T, base http.RoundTripper, srv *server)) {
	t.Helper()
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &server{answers: answers}
				_, base, stop := memnet.ServeProtocol(srv.ServeHTTP, http2)
				defer stop()
				test(t, base, srv)
			})
		})
	}
}

func TestStreamThatFailsBeforeItsFirstEventIsRetried(t *testing.T) {
	for name, c := range map[string]struct {
		first http.HandlerFunc
		after time.Duration
	}{
		"silence":        {silence, time.Second},
		"a break":        {breakOff, 0},
		"an end":         {stream(0), 0},
		"an error event": {stream(0, errorEvent), 0},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, play(c.first, stream(0, firstEvent, lastEvent)), func(t *testing.T, base http.RoundTripper, srv *server) {
				began := time.Now()
				resp, err := retryhttp.New(base, peeks).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				assert.Equal(t, c.after, time.Since(began))
				assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				assert.Equal(t, firstEvent+lastEvent, string(got), "each event once")
				require.NoError(t, resp.Body.Close())
				assert.Len(t, srv.got, 2)
			})
		})
	}
}

func TestLaterEventsComeWhenTheyAreSent(t *testing.T) {
	answers := play(stream(900*time.Millisecond, firstEvent, lastEvent, "data: 3\n\n"))
	overBoth(t, answers, func(t *testing.T, base http.RoundTripper, _ *server) {
		began := time.Now()
		resp, err := retryhttp.New(base, peeks).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		for i, want := range []string{firstEvent, lastEvent, "data: 3\n\n"} {
			text := make([]byte, 100)
			n, err := resp.Body.Read(text)
			require.NoError(t, err)
			assert.Equal(t, want, string(text[:n]))
			assert.Equal(t, time.Duration(i+1)*900*time.Millisecond, time.Since(began))
		}
		require.NoError(t, resp.Body.Close())
	})
}

// Without a retry the caller gets as much as without PeekBytes: the response, and then the error.
func TestStreamThatFailedBeforeItsFirstEventIsHandedOverAtTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		text    string
		failure error
	}{
		"silence":        {silence, "", context.DeadlineExceeded},
		"a break":        {breakOff, "", io.ErrUnexpectedEOF},
		"an end":         {stream(0), "", nil},
		"an error event": {stream(0, errorEvent), errorEvent, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, base, stop := memnet.Serve(c.answer)
				defer stop()
				budget := &countingBudget{}
				p := peeks
				p.MaxAttempts, p.Budget = 2, budget
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode)
				assert.Equal(t, retryhttp.StopAttempts, retryhttp.OutcomeOf(resp).Stop)
				got, err := io.ReadAll(resp.Body)
				assert.Equal(t, c.text, string(got))
				assert.ErrorIs(t, err, c.failure)
				require.NoError(t, resp.Body.Close())
				assert.Zero(t, budget.deposit)
			})
		})
	}
}

func TestSilenceNamesWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(silence))
		defer stop()
		p := peeks
		p.MaxAttempts = 1
		_, err := download(t, base, p)
		assert.EqualError(t, err, "no first byte of the response body within 1s")
	})
}

// The server has answered, so it may have worked on the request.
func TestStreamThatFailsBeforeItsFirstEventIsNotUnprocessed(t *testing.T) {
	p := peeks
	p.RetryUnprocessed = true
	p.Classify = func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Unprocessed }
	req := get(t, t.Context())
	req.Method = http.MethodPost
	base := script.New(sends(200, "", httperr.HTTP2{StreamID: 1, Code: 7}))
	resp, err := retryhttp.New(base, p).RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, retryhttp.StopNotIdempotent, retryhttp.OutcomeOf(resp).Stop)
	require.NoError(t, resp.Body.Close())
}

func TestResponseWithoutABodyIsNotAwaited(t *testing.T) {
	never := &bodies.Hooked{OnRead: func([]byte) (int, error) { panic("a Read") }}
	for name, c := range map[string]struct {
		method string
		code   int
		length int64
		body   io.ReadCloser
		header []string
	}{
		"HEAD":               {"HEAD", 200, 9, never, nil},
		"CONNECT":            {"CONNECT", 200, -1, never, nil},
		"a 101":              {"GET", 101, -1, never, nil},
		"a 204":              {"GET", 204, -1, never, nil},
		"a 304":              {"GET", 304, -1, never, nil},
		"a redirect":         {"GET", 307, -1, never, []string{"Location", "/there"}},
		"an empty body":      {"GET", 200, 0, never, nil},
		"net/http's NoBody":  {"GET", 200, -1, http.NoBody, nil},
		"a base without one": {"GET", 200, -1, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := peeks
			p.AttemptTimeout = 0
			req := get(t, t.Context())
			req.Method = c.method
			resp, err := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
				resp := script.Response(req, c.code, c.header...)
				resp.Body, resp.ContentLength = c.body, c.length
				return resp, nil
			}), p).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, c.body, resp.Body, "as it came")
			assert.Equal(t, 1, retryhttp.OutcomeOf(resp).Attempts)
		})
	}
}

func TestPeekTakesWhatBufferBytesLeaves(t *testing.T) {
	stream := []string{"Content-Type", "text/event-stream"}
	for name, c := range map[string]struct {
		text       string
		header     []string
		body, peek string
	}{
		"a stream":               {"data: 1\n\n", stream, "", "data:"},
		"a short body":           {"0123456789", nil, "0123456789", ""},
		"a longer body":          {"0123456789A", nil, "", "01234"},
		"a longer declared body": {"0123456789A", []string{"Content-Length", "11"}, "", "01234"},
	} {
		t.Run(name, func(t *testing.T) {
			p := peeks
			p.BufferBytes, p.PeekBytes = 10, 5
			judged := false
			p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
				judged = true
				assert.Equal(t, c.body, string(a.Body))
				assert.Equal(t, c.peek, string(a.Peek))
				return retryhttp.Final
			}
			got, err := download(t, script.New(sends(200, c.text, io.EOF, c.header...)), p)
			require.NoError(t, err)
			assert.Equal(t, c.text, got)
			assert.True(t, judged)
		})
	}
}

// A failed response is awaited for a moment: a retry does not need its body.
func TestPeekOfAFailedResponseTakesAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(503)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Second):
				_, _ = io.WriteString(w, "late")
			}
		}))
		defer stop()
		p := peeks
		p.AttemptTimeout, p.MaxAttempts = 0, 1
		began := time.Now()
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 250*time.Millisecond, time.Since(began))
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "late", string(got))
		require.NoError(t, resp.Body.Close())
	})
}

// A retry may wait for long. It must not retain what was read of the failed response.
func TestPeekIsForgottenBeforeTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := peeks
		p.Backoff = retryhttp.Constant(time.Second)
		p.OnRetry = func(a retryhttp.Attempt) {
			peeked := weak.Make(&a.Peek[0])
			time.AfterFunc(p.Backoff(1, 0)/2, func() {
				runtime.GC()
				assert.Nil(t, peeked.Value())
			})
		}
		base := script.New(sends(200, errorEvent, io.EOF), sends(200, firstEvent, io.EOF))
		got, err := download(t, base, p)
		require.NoError(t, err)
		assert.Equal(t, firstEvent, got)
	})
}

func TestStallBeforeTheFirstEventIsAFailure(t *testing.T) {
	answers := play(silence, stream(0, firstEvent))
	overBoth(t, answers, func(t *testing.T, base http.RoundTripper, _ *server) {
		p := peeks
		p.AttemptTimeout, p.StallTimeout = 0, 3*time.Second
		began := time.Now()
		got, err := download(t, base, p)
		require.NoError(t, err)
		assert.Equal(t, firstEvent, got)
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestNestedTransportsAwaitTheFirstEventOnce(t *testing.T) {
	overBoth(t, play(breakOff), func(t *testing.T, base http.RoundTripper, srv *server) {
		inner := retryhttp.New(base, peeks)
		resp, err := retryhttp.New(inner, peeks).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, retryhttp.StopNested, retryhttp.OutcomeOf(resp).Stop)
		assert.Len(t, srv.got, 4)
		_, err = io.ReadAll(resp.Body)
		assert.Error(t, err)
		require.NoError(t, resp.Body.Close())
	})
}

func TestHedgeWinsWithItsFirstEvent(t *testing.T) {
	overBoth(t, play(silence, stream(0, firstEvent)), func(t *testing.T, base http.RoundTripper, _ *server) {
		p := peeks
		p.Hedge = &retryhttp.Hedge{After: 100 * time.Millisecond, Share: 1}
		began := time.Now()
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 100*time.Millisecond, time.Since(began))
		assert.True(t, retryhttp.OutcomeOf(resp).HedgeWon)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, firstEvent, string(got))
		require.NoError(t, resp.Body.Close())
	})
}

// A hook that reads would take the bytes away from the caller. Many such hooks close the body, too, and
// put what they have read in its place.
func TestHookThatReadsGetsAnErrorAndTheCallerEveryByte(t *testing.T) {
	reads := func(t *testing.T, resp *http.Response) {
		text, err := io.ReadAll(resp.Body)
		assert.Empty(t, text)
		assert.EqualError(t, err, "a Classify or RetryAfter must not read the response body: its bytes are in Attempt.Body or Attempt.Peek")
		assert.NoError(t, resp.Body.Close())
		resp.Body = io.NopCloser(strings.NewReader(string(text)))
	}
	classify := func(t *testing.T, p *retryhttp.Policy) {
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			reads(t, a.Response)
			return retryhttp.Final
		}
	}
	retryAfter := func(t *testing.T, p *retryhttp.Policy) {
		p.Classify = func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Retryable }
		p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
			reads(t, a.Response)
			return 0, false
		}
	}
	for name, c := range map[string]struct {
		buffer int64
		hook   func(*testing.T, *retryhttp.Policy)
	}{
		"Classify, peeked":     {0, classify},
		"Classify, buffered":   {100, classify},
		"RetryAfter, peeked":   {0, retryAfter},
		"RetryAfter, buffered": {100, retryAfter},
	} {
		t.Run(name, func(t *testing.T) {
			p := peeks
			p.MaxAttempts, p.BufferBytes = 1, c.buffer
			c.hook(t, &p)
			body := &piece{text: firstEvent, err: io.EOF}
			got, err := download(t, script.New(script.Respond(200, body)), p)
			require.NoError(t, err)
			assert.Equal(t, firstEvent, got)
			assert.EqualValues(t, 1, body.closes.Load())
		})
	}
}

func TestPanicOfAHookClosesAPeekedBody(t *testing.T) {
	for name, edit := range map[string]func(*retryhttp.Policy){
		"Classify": func(p *retryhttp.Policy) { p.Classify = func(retryhttp.Attempt) retryhttp.Class { panic("no") } },
		"RetryAfter": func(p *retryhttp.Policy) {
			p.RetryAfter = func(retryhttp.Attempt) (time.Duration, bool) { panic("no") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := peeks
				edit(&p)
				body := &piece{text: errorEvent, err: io.EOF}
				assert.PanicsWithValue(t, "no", func() {
					_, _ = retryhttp.New(script.New(script.Respond(200, body)), p).RoundTrip(get(t, t.Context()))
				})
				assert.EqualValues(t, 1, body.closes.Load())
			})
		})
	}
}

func TestPeekGivesUpOnABodyOfEmptyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty := 0
		body := &bodies.Hooked{OnRead: func([]byte) (int, error) { empty++; return 0, nil }}
		p := peeks
		p.MaxAttempts = 1
		got, err := download(t, script.New(script.Respond(200, body)), p)
		assert.Empty(t, got)
		assert.Equal(t, io.ErrNoProgress, err)
		assert.Equal(t, 100, empty)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

func TestPanicOfAPeekedBodySurfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{200, 503} {
			body := &bodies.Hooked{OnRead: func([]byte) (int, error) { panic("no") }}
			assert.PanicsWithValue(t, "no", func() {
				_, _ = retryhttp.New(script.New(script.Respond(code, body)), peeks).RoundTrip(get(t, t.Context()))
			})
			assert.EqualValues(t, 1, body.Closes.Load())
		}
	})
}

// A retry that waits in line keeps the whole response, of which the first event has been read.
func TestStreamThatBeganWithAnErrorWaitsInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) {
			p.PeekBytes = 2
			p.Classify = peeks.Classify
		})
		l.at(40*ms, "/200,a")
		l.at(240*ms, "/200,b")
		resp, o, took := l.ask("/503,200")
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, 2, o.Attempts)
		assert.Equal(t, 240*ms, took)
		l.others.Wait()
	})
}

// randomAnswer sends random pieces of events, with or without a length, and may break off.
func randomAnswer(seed uint64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		dice := rand.New(rand.NewPCG(seed, 0))
		media := []string{"text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream", "application/json"}
		w.Header().Set("Content-Type", media[dice.IntN(len(media))])
		words := []string{"data: 1", "\n", "\n\n", "\r\n\r\n", "\r", "{}", "\x00\x00\x00\x06ab", "\x00\x00\x00\x04", pingEvent}
		pieces := make([]string, dice.IntN(8))
		length := 0
		for i := range pieces {
			for range 1 + dice.IntN(6) {
				pieces[i] += words[dice.IntN(len(words))]
			}
			length += len(pieces[i])
		}
		if dice.IntN(3) == 0 {
			w.Header().Set("Content-Length", fmt.Sprint(length))
		}
		if dice.IntN(8) == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = http.NewResponseController(w).Flush()
		for _, piece := range pieces {
			_, _ = io.WriteString(w, piece)
			if dice.IntN(2) == 0 {
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Duration(dice.IntN(2)) * 100 * ms)
			}
			if dice.IntN(12) == 0 {
				panic(http.ErrAbortHandler)
			}
		}
	}
}

// Whatever is awaited, and whatever Classify answers, the caller reads what the server has sent.
func TestCallerReadsTheSameHoweverMuchIsAwaited(t *testing.T) {
	for seed := range uint64(150) {
		dice := rand.New(rand.NewPCG(seed, 1))
		p := retryhttp.Policy{
			MaxAttempts: 1,
			PeekBytes:   dice.Int64N(3) * dice.Int64N(100),
			BufferBytes: dice.Int64N(2) * dice.Int64N(100),
			Classify:    func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Class(dice.IntN(4)) },
		}
		if dice.IntN(2) == 0 {
			p.AttemptTimeout, p.StallTimeout = time.Hour, time.Hour
		}
		for _, http2 := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				_, base, stop := memnet.ServeProtocol(randomAnswer(seed), http2)
				defer stop()
				bare, err := base.RoundTrip(get(t, t.Context()))
				require.NoError(t, err)
				want, end := io.ReadAll(bare.Body)
				require.NoError(t, bare.Body.Close())
				synctest.Wait() // or the next request might be written while the server closes its connection
				resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
				require.NoError(t, err, "seed %d", seed)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, string(want), string(got), "seed %d", seed)
				if whole := int64(len(want)) == bare.ContentLength; !whole { // a break after the last byte may go unseen
					assert.Equal(t, end == nil, err == nil, "seed %d: %v, %v", seed, end, err)
				}
				assert.Equal(t, bare.StatusCode, resp.StatusCode)
			})
		}
	}
}

// late is a body that brings nothing before a pause, and then its text and its end.
type late struct {
	pause time.Duration
	text  string
	end   error // nil: io.EOF

	attempt context.Context // ends the pause
}

func (l *late) Read(p []byte) (int, error) {
	select {
	case <-time.After(l.pause):
	case <-l.attempt.Done():
		return 0, context.Cause(l.attempt)
	}
	l.pause = 0
	if l.text != "" {
		n := copy(p, l.text)
		l.text = l.text[n:]
		return n, nil
	}
	if l.end == nil {
		return 0, io.EOF
	}
	return 0, l.end
}

// All headers come at once. The first bytes decide which of two attempts wins, and an attempt whose
// peek fails is a failed attempt.
func TestFirstBytesDecideBetweenAnAttemptAndItsHedge(t *testing.T) {
	answer := func(l late) lap {
		return lap{code: 200, body: &l, do: func(req *http.Request) { l.attempt = req.Context() }}
	}
	for name, c := range map[string]struct {
		laps     []late
		at       time.Duration
		got      string
		attempts int
		hedges   int
		won      bool
	}{
		"the first is silent":     {[]late{{pause: time.Hour, text: "1"}, {pause: 10 * ms, text: "2"}}, 60 * ms, "2", 2, 1, true},
		"the first is sooner":     {[]late{{pause: 70 * ms, text: "1"}, {pause: 60 * ms, text: "2"}}, 70 * ms, "1", 2, 1, false},
		"the first breaks":        {[]late{{pause: 70 * ms, end: errLost}, {pause: 60 * ms, text: "2"}}, 110 * ms, "2", 2, 1, true},
		"the hedge breaks":        {[]late{{pause: 90 * ms, text: "1"}, {pause: 10 * ms, end: errLost}}, 90 * ms, "1", 2, 1, false},
		"the hedge is overloaded": {[]late{{pause: 90 * ms, text: "1"}, {pause: 10 * ms, text: errorEvent}}, 90 * ms, "1", 2, 1, false},
		"both break":              {[]late{{pause: 70 * ms, end: errLost}, {pause: 60 * ms, end: errLost}, {text: "3"}}, 1070 * ms, "3", 3, 1, false},
		"the first breaks alone":  {[]late{{pause: 10 * ms, end: errLost}, {text: "2"}}, 1010 * ms, "2", 2, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var laps []lap
				for _, l := range c.laps {
					laps = append(laps, answer(l))
				}
				r := newTrack(laps...)
				p := hedging()
				p.PeekBytes, p.Classify = peeks.PeekBytes, peeks.Classify
				f := r.begin(t, p, get(t, t.Context()))
				require.NoError(t, f.err)
				assert.Equal(t, c.at, f.at)
				f.read(t)
				assert.Equal(t, c.got, f.body)
				assert.Equal(t, c.attempts, f.out.Attempts)
				assert.Equal(t, c.hedges, f.out.Hedges)
				assert.Equal(t, c.won, f.out.HedgeWon)
				time.Sleep(time.Second) // which a hedge that has lost does not take
				r.requireClosed(t)
			})
		})
	}
}

const pingEvent = "event: ping\ndata: {}\n\n"

// patient is peeks for a server that sends pings first. It records what Classify sees.
func patient(seen *[]string) retryhttp.Policy {
	p := peeks
	p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		*seen = append(*seen, string(a.Peek))
		switch {
		case a.Response == nil || a.Response.StatusCode != http.StatusOK:
			return retryhttp.Classify(a)
		case strings.Contains(string(a.Peek), "overloaded_error"):
			return retryhttp.Retryable
		case strings.Contains(string(a.Peek), "data: 1"):
			return retryhttp.Final
		}
		return retryhttp.Undecided
	}
	return p
}

// A packet may bring several events, and another time one.
func TestPeekEndsWithTheFirstEventWhateverAPacketBrings(t *testing.T) {
	message := func(payload string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(4+len(payload)))) + payload
	}
	for media, events := range map[string][]string{
		"text/event-stream":                  {firstEvent, errorEvent, lastEvent},
		"text/event-stream; charset=utf-8":   {": wait\r\n\r\n", errorEvent},
		"application/x-ndjson":               {"{}\n", "{\"error\":1}\n", "{"},
		"application/vnd.amazon.eventstream": {message("one"), message("two"), "\x00"},
	} {
		for _, apart := range []bool{false, true} {
			answer := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", media)
				for _, event := range events {
					_, _ = io.WriteString(w, event)
					if apart {
						_ = http.NewResponseController(w).Flush()
						time.Sleep(time.Millisecond)
					}
				}
			}
			overBoth(t, play(answer), func(t *testing.T, base http.RoundTripper, _ *server) {
				var seen []string
				p := peeks
				p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
					seen = append(seen, string(a.Peek))
					return retryhttp.Classify(a)
				}
				got, err := download(t, base, p)
				require.NoError(t, err)
				assert.Equal(t, strings.Join(events, ""), got, "the caller reads what has come")
				assert.Equal(t, events[:1], seen)
			})
		}
	}
}

func TestUndecidedAwaitsTheNextEvent(t *testing.T) {
	together := func(events ...string) http.HandlerFunc { return stream(0, strings.Join(events, "")) }
	apart := func(events ...string) http.HandlerFunc { return stream(100*ms, events...) }
	for name, send := range map[string]func(...string) http.HandlerFunc{"together": together, "apart": apart} {
		t.Run(name, func(t *testing.T) {
			answers := play(send(pingEvent, pingEvent, errorEvent), send(pingEvent, firstEvent, errorEvent))
			overBoth(t, answers, func(t *testing.T, base http.RoundTripper, srv *server) {
				var seen []string
				got, err := download(t, base, patient(&seen))
				require.NoError(t, err)
				assert.Equal(t, pingEvent+firstEvent+errorEvent, got, "each event once, and pings too")
				assert.Equal(t, []string{
					pingEvent, pingEvent + pingEvent, pingEvent + pingEvent + errorEvent,
					pingEvent, pingEvent + firstEvent,
				}, seen, "each event is judged once")
				assert.Len(t, srv.got, 2)
			})
		})
	}
}

// What never decides is Final in the end.
func TestUndecidedIsFinalWhereNothingCanFollow(t *testing.T) {
	events := []string{"Content-Type", "text/event-stream"}
	long := strings.Repeat(": "+strings.Repeat("wait", 300)+"\n\n", 100)
	for name, c := range map[string]struct {
		edit func(*retryhttp.Policy)
		step script.Step
		last string // what Classify saw last
	}{
		"the end":              {nil, sends(200, pingEvent+"data: 0", io.EOF, events...), pingEvent + "data: 0"},
		"the end of an event":  {nil, sends(200, pingEvent, io.EOF, events...), pingEvent},
		"PeekBytes":            {nil, sends(200, long, io.EOF, events...), long[:4096]},
		"PeekBytes in a ping":  {func(p *retryhttp.Policy) { p.PeekBytes = 100 }, sends(200, long, io.EOF, events...), long[:100]},
		"64 KiB":               {func(p *retryhttp.Policy) { p.PeekBytes = 1 << 40 }, sends(200, long, io.EOF, events...), long[:64<<10]},
		"a failed response":    {func(p *retryhttp.Policy) { p.Classify = undecided }, sends(503, pingEvent, io.EOF, events...), ""},
		"no PeekBytes":         {func(p *retryhttp.Policy) { p.PeekBytes = 0 }, sends(200, pingEvent, io.EOF, events...), ""},
		"an error of the base": {func(p *retryhttp.Policy) { p.Classify = undecided }, sends(200, "", errLost, events...), ""},
		"a body in a buffer":   {func(p *retryhttp.Policy) { p.BufferBytes = 100 }, sends(200, pingEvent, io.EOF), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []string
			p := patient(&seen)
			if c.edit != nil {
				c.edit(&p)
			}
			base := script.New(c.step)
			resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			assert.Equal(t, retryhttp.StopFinal, retryhttp.OutcomeOf(resp).Stop)
			if len(seen) > 0 {
				assert.True(t, c.last == seen[len(seen)-1], "%.100q", seen[len(seen)-1])
			}
			require.NoError(t, resp.Body.Close())
			assert.Len(t, base.Requests(), 1)
		})
	}
}

func undecided(retryhttp.Attempt) retryhttp.Class { return retryhttp.Undecided }

// cutGzip sends a compressed stream without its end, so that net/http returns its last bytes with an error.
func cutGzip(event string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		var compressed bytes.Buffer
		z := gzip.NewWriter(&compressed)
		_, _ = io.WriteString(z, event)
		_ = z.Close()
		_, _ = w.Write(compressed.Bytes()[:compressed.Len()-10])
	}
}

// The events after a ping are the attempt's as the ping was.
func TestFailureAfterAPingFailsTheAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		first http.HandlerFunc
		after time.Duration
		err   string
	}{
		"a break":               {inPieces(0, breakOff, pingEvent), 0, ""},
		"a break in an event":   {inPieces(0, breakOff, pingEvent, "data: "), 0, ""},
		"a break with a ping":   {cutGzip(pingEvent), 0, "unexpected EOF"},
		"silence":               {inPieces(0, silence, pingEvent), time.Second, "no whole event of the response body within 1s"},
		"pings that never stop": {stream(300*ms, pingEvent, pingEvent, pingEvent, pingEvent, pingEvent), time.Second, "no whole event"},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, play(c.first, stream(0, pingEvent, firstEvent)), func(t *testing.T, base http.RoundTripper, srv *server) {
				var seen []string
				p := patient(&seen)
				var failed error
				p.OnRetry = func(a retryhttp.Attempt) { failed = a.Err }
				began := time.Now()
				got, err := download(t, base, p)
				require.NoError(t, err)
				assert.Equal(t, pingEvent+firstEvent, got)
				assert.Equal(t, c.after, time.Since(began))
				assert.ErrorContains(t, failed, c.err)
			})
		})
	}
}

// Classify judges the two attempts of a hedged request in turn, also while they peek.
func TestAttemptsThatPeekAreJudgedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.ServeProtocol(stream(10*ms, pingEvent, pingEvent, pingEvent, firstEvent), true)
		defer stop()
		var judging, asked atomic.Int32
		var over atomic.Bool
		p := peeks
		p.Hedge = &retryhttp.Hedge{After: 5 * ms, Share: 1}
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			assert.EqualValues(t, 1, judging.Add(1), "one at a time")
			assert.False(t, over.Load(), "not after RoundTrip")
			defer judging.Add(-1)
			asked.Add(1)
			time.Sleep(7 * ms)
			if strings.Contains(string(a.Peek), "data: 1") {
				return retryhttp.Final
			}
			return retryhttp.Undecided
		}
		rt := retryhttp.New(base, p)
		for range 5 {
			over.Store(false)
			resp, err := rt.RoundTrip(get(t, t.Context()))
			over.Store(true)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, pingEvent+pingEvent+pingEvent+firstEvent, string(got))
			require.NoError(t, resp.Body.Close())
			time.Sleep(time.Second)
		}
		assert.Greater(t, asked.Load(), int32(5*4), "by hedges too")
	})
}
