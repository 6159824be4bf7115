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
	"testing/iotest"
	"testing/synctest"
	"time"
	"weak"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/pause"
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
	pingEvent  = "event: ping\ndata: {}\n\n"
)

// event sends some of a stream.
func event(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// stream sends its events, with a pause before each.
func stream(before time.Duration, events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		event(w, "")
		for _, text := range events {
			if pause.For(r.Context(), before) != nil {
				return
			}
			event(w, text)
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

// inPieces sends the pieces of a stream, with a pause before each, and then does what end does.
func inPieces(pause time.Duration, end http.HandlerFunc, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		stream(pause, pieces...)(w, r)
		end(w, r)
	}
}

// requireBodyIs reads resp's body, which must be text and end well, and closes it.
func requireBodyIs(t *testing.T, text string, resp *http.Response) {
	t.Helper()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
	require.NoError(t, resp.Body.Close())
}

// overBoth runs test in a bubble for each protocol, with a server that plays answers.
func overBoth(t *testing.T, answers []http.HandlerFunc, test func(t *testing.T, base http.RoundTripper, srv *server)) {
	t.Helper()
	inBubbles(t, map[string]bool{"HTTP/1": false, "HTTP/2": true}, func(t *testing.T, http2 bool) {
		srv := &server{answers: answers}
		_, base, stop := memnet.ServeProtocol(srv.ServeHTTP, http2)
		defer stop()
		test(t, base, srv)
	})
}

// Without a retry the caller gets as much as without PeekBytes: the response, and then the error.
func TestStreamThatFailedBeforeItsFirstEventIsHandedOverAtTheEnd(t *testing.T) {
	type testCase struct {
		answer http.HandlerFunc
		after  time.Duration
		text   string
		err    string // how the caller's Read ends
	}
	inBubbles(t, map[string]testCase{
		"silence":        {silence, time.Second, "", "no first byte of the response body within 1s"},
		"a break":        {breakOff, 0, "", "unexpected EOF"},
		"an end":         {stream(0), 0, "", "EOF"},
		"an error event": {stream(0, errorEvent), 0, errorEvent, "EOF"},
	}, func(t *testing.T, c testCase) {
		_, base, stop := memnet.Serve(c.answer)
		defer stop()
		budget := &countingBudget{}
		p := peeks
		p.MaxAttempts, p.Budget = 2, budget
		var sent context.Context
		began := time.Now()
		resp := opened(t, script.Step(func(req *http.Request) (*http.Response, error) {
			sent = req.Context()
			return base.RoundTrip(req)
		}), p)
		assert.Equal(t, 2*c.after, time.Since(began))
		if c.after > 0 {
			assert.EqualError(t, context.Cause(sent), c.err)
		}
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, retryhttp.StopAttempts, retryhttp.OutcomeOf(resp).Stop)
		got := make([]byte, len(c.text))
		_, err := io.ReadFull(resp.Body, got)
		require.NoError(t, err)
		assert.Equal(t, c.text, string(got))
		_, err = resp.Body.Read(make([]byte, 1))
		assert.EqualError(t, err, c.err)
		require.NoError(t, resp.Body.Close())
		assert.Zero(t, budget.deposit)
	})
}

func TestResponseWithoutABodyIsNotAwaited(t *testing.T) {
	never := &bodies.Hooked{OnRead: func([]byte) (int, error) { panic("a Read") }}
	for name, c := range map[string]struct {
		method string
		length int64
		body   io.ReadCloser
	}{
		"HEAD":               {"HEAD", 9, never},
		"an empty body":      {"GET", 0, never},
		"net/http's NoBody":  {"GET", -1, http.NoBody},
		"a base without one": {"GET", -1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := peeks
			p.AttemptTimeout = 0
			base := edited(script.Respond(200, c.body), func(resp *http.Response) { resp.ContentLength = c.length })
			resp := responseTo(t, base, p, requestOf(t, c.method, nil))
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
		requireBodyIs(t, firstEvent, opened(t, base, p))
	})
}

// All headers come at once. The first events decide, and an attempt whose peek fails is a failed attempt.
func TestHedgeWinsWithItsFirstEvent(t *testing.T) {
	for name, c := range map[string]struct {
		first, hedge http.HandlerFunc
		at           time.Duration
		won          bool
	}{
		"the first is silent":     {silence, stream(0, firstEvent), 100 * ms, true},
		"the first breaks":        {inPieces(150*ms, breakOff, ": "), stream(100*ms, firstEvent), 200 * ms, true},
		"the first is sooner":     {stream(150*ms, firstEvent), stream(100*ms, lastEvent), 150 * ms, false},
		"the hedge is overloaded": {stream(150*ms, firstEvent), stream(0, errorEvent), 150 * ms, false},
		"there is no hedge yet":   {stream(50*ms, errorEvent), stream(0, firstEvent), 1050 * ms, false},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, play(c.first, c.hedge), func(t *testing.T, base http.RoundTripper, _ *server) {
				p := peeks
				p.Backoff = retryhttp.Constant(time.Second) // for which a hedge is awaited
				p.Hedge = &retryhttp.Hedge{After: 100 * ms, Share: 1}
				began := time.Now()
				resp := opened(t, base, p)
				assert.Equal(t, c.at, time.Since(began))
				assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
				assert.Equal(t, c.won, retryhttp.OutcomeOf(resp).HedgeWon)
				requireBodyIs(t, firstEvent, resp)
				time.Sleep(time.Second) // which a hedge that has lost does not take
			})
		})
	}
}

// A hook that reads would take the bytes away from the caller. Many such hooks close the body, too, and
// put what they have read in its place.
func TestHookThatReadsGetsAnErrorAndTheCallerEveryByte(t *testing.T) {
	for name, buffer := range map[string]int64{"peeked": 0, "buffered": 100} {
		for _, reading := range []string{"Classify", "RetryAfter"} {
			t.Run(reading+", "+name, func(t *testing.T) {
				read := false
				hook := func(name string, resp *http.Response) {
					if name != reading {
						return
					}
					read = true
					text, err := io.ReadAll(resp.Body)
					assert.Empty(t, text)
					assert.EqualError(t, err, "a Classify or RetryAfter must not read the response body: its bytes are in Attempt.Body or Attempt.Peek")
					assert.NoError(t, resp.Body.Close())
					resp.Body = io.NopCloser(bytes.NewReader(text))
				}
				p := peeks
				p.MaxAttempts, p.BufferBytes = 1, buffer
				p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
					hook("Classify", a.Response)
					return retryhttp.Retryable
				}
				p.RetryAfter = func(a retryhttp.Attempt) (time.Duration, bool) {
					hook("RetryAfter", a.Response)
					return 0, false
				}
				body := &piece{text: firstEvent, err: io.EOF}
				requireBodyIs(t, firstEvent, opened(t, script.New(script.Respond(200, body)), p))
				assert.EqualValues(t, 1, body.closes.Load())
				assert.True(t, read)
			})
		}
	}
}

func TestPanicOfAHookClosesAPeekedBody(t *testing.T) {
	inBubbles(t, map[string]func(*retryhttp.Policy){
		"Classify": func(p *retryhttp.Policy) { p.Classify = func(retryhttp.Attempt) retryhttp.Class { panic("no") } },
		"RetryAfter": func(p *retryhttp.Policy) {
			p.RetryAfter = func(retryhttp.Attempt) (time.Duration, bool) { panic("no") }
		},
	}, func(t *testing.T, edit func(*retryhttp.Policy)) {
		p := peeks
		edit(&p)
		body := &piece{text: errorEvent, err: io.EOF}
		assert.PanicsWithValue(t, "no", func() {
			_, _ = retryhttp.New(script.New(script.Respond(200, body)), p).RoundTrip(get(t, t.Context()))
		})
		assert.EqualValues(t, 1, body.closes.Load())
	})
}

// A retry that waits in line keeps the whole response, of which the first bytes have been read.
func TestResponseThatWasPeekedAtIsKeptInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) {
			p.PeekBytes = 2
			p.OnRetry = func(a retryhttp.Attempt) { requireBodyIs(t, "body of 503", a.Response) }
		})
		l.at(40*ms, "/200,a")
		l.at(240*ms, "/200,b")
		resp, _, took := l.ask("/503,200")
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, 240*ms, took)
		l.others.Wait()
	})
}

// randomAnswer sends random pieces of events, with or without a length, and may break off.
func randomAnswer(seed uint64) http.HandlerFunc {
	media := []string{"text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream", "application/json"}
	words := []string{"data: 1", "\n", "\n\n", "\r\n\r\n", "\r", "{}", "\x00\x00\x00\x06ab", "\x00\x00\x00\x04", pingEvent}
	return func(w http.ResponseWriter, _ *http.Request) {
		dice := rand.New(rand.NewPCG(seed, 0))
		pieces := make([]string, dice.IntN(8))
		for i := range pieces {
			for range 1 + dice.IntN(6) {
				pieces[i] += words[dice.IntN(len(words))]
			}
		}
		w.Header().Set("Content-Type", media[dice.IntN(len(media))])
		if dice.IntN(3) == 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(strings.Join(pieces, ""))))
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

// Whatever is awaited, whatever Classify answers, and however the caller reads, the caller reads what the server has sent.
func TestCallerReadsTheSameHoweverMuchIsAwaited(t *testing.T) {
	asItComes := func(r io.Reader) io.Reader { return r }
	readers := []func(io.Reader) io.Reader{asItComes, iotest.OneByteReader, iotest.HalfReader}
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
				got, err := io.ReadAll(readers[dice.IntN(len(readers))](resp.Body))
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

// The caller gets an event when it is whole, and waits for nothing else. A packet may bring a part of an
// event, or several events.
func TestPeekEndsWithTheFirstEventWhateverAPacketBrings(t *testing.T) {
	const events, messages, lines = "text/event-stream", "application/vnd.amazon.eventstream", "application/x-ndjson"
	message := func(payload string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(4+len(payload)))) + payload
	}
	long := "data: " + strings.Repeat("x", 4096)
	for name, c := range map[string]struct {
		media    string
		encoding string
		packets  []string // a tenth of a second apart
		after    int      // the number of packets until the response is the caller's
		peek     string
	}{
		"an event":                {events, "", []string{"data: 1\n", "\n", lastEvent}, 2, firstEvent},
		"several events":          {events + ";charset=utf-8", "", []string{firstEvent + errorEvent}, 1, firstEvent},
		"an event, with CR":       {events, "", []string{"data: 1\r", "\r", "data: 2\r\r"}, 2, "data: 1\r\r"},
		"a comment, with CRLF":    {events, "", []string{": wait\r\n", "\r\n" + errorEvent}, 2, ": wait\r\n\r\n"},
		"PeekBytes of an event":   {events, "", []string{long[:6], long[6:], "y\n\n"}, 2, long[:4096]},
		"an end without an event": {events, "", []string{"{\"error\":", "1}"}, 3, "{\"error\":1}"},
		"a message":               {messages, "", []string{"\x00\x00", "\x00\x07a", "bc", "d"}, 3, message("abc")},
		"a line":                  {lines, "", []string{"{\"a\":", "1}\n", "{}\n"}, 2, "{\"a\":1}\n"},
		"any byte of JSON":        {"application/json", "", []string{"{", "}"}, 1, "{"},
		"what net/http unpacks":   {events, "gzip", []string{"data: 1\n", "\n" + errorEvent}, 2, firstEvent},
		"what it leaves packed":   {events, "zstd", []string{"packed", "more"}, 1, "packed"},
	} {
		answer := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.media)
			write := func(text string) { _, _ = io.WriteString(w, text) }
			if c.encoding != "" {
				w.Header().Set("Content-Encoding", c.encoding)
			}
			_ = http.NewResponseController(w).Flush()
			if c.encoding == "gzip" {
				z := gzip.NewWriter(w)
				defer z.Close()
				write = func(text string) {
					_, _ = io.WriteString(z, text)
					_ = z.Flush()
				}
			}
			for _, packet := range c.packets {
				time.Sleep(100 * ms)
				write(packet)
				_ = http.NewResponseController(w).Flush()
			}
			time.Sleep(100 * ms)
		}
		t.Run(name, func(t *testing.T) {
			overBoth(t, play(answer), func(t *testing.T, base http.RoundTripper, _ *server) {
				var seen []string
				p := peeks
				p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
					seen = append(seen, string(a.Peek))
					return retryhttp.Classify(a)
				}
				began := time.Now()
				resp := opened(t, base, p)
				assert.Equal(t, time.Duration(c.after)*100*ms, time.Since(began))
				assert.Equal(t, []string{c.peek}, seen)
				assert.Equal(t, c.encoding == "gzip", resp.Uncompressed)
				requireBodyIs(t, strings.Join(c.packets, ""), resp)
			})
		})
	}
}

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

func TestUndecidedAwaitsTheNextEvent(t *testing.T) {
	for name, answers := range map[string][]http.HandlerFunc{
		"together": play(stream(0, pingEvent+pingEvent+errorEvent), stream(0, pingEvent+firstEvent+errorEvent)),
		"apart":    play(stream(100*ms, pingEvent, pingEvent, errorEvent), stream(100*ms, pingEvent, firstEvent, errorEvent)),
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, answers, func(t *testing.T, base http.RoundTripper, srv *server) {
				var seen []string
				requireBodyIs(t, pingEvent+firstEvent+errorEvent, opened(t, base, patient(&seen))) // each event once, and pings too
				assert.Equal(t, []string{
					pingEvent, pingEvent + pingEvent, pingEvent + pingEvent + errorEvent,
					pingEvent, pingEvent + firstEvent,
				}, seen, "each event is judged once")
				assert.Len(t, srv.got, 2)
			})
		})
	}
}

// An answer may come with its end in one Read. Each of its events is judged all the same.
func TestUndecidedAwaitsTheNextEventThoughTheBodyHasEnded(t *testing.T) {
	var seen []string
	whole := func(text string) script.Step {
		step := script.Respond(200, io.NopCloser(iotest.DataErrReader(strings.NewReader(text))))
		return func(req *http.Request) (*http.Response, error) {
			resp, err := step(req)
			resp.Header.Set("Content-Type", "text/event-stream")
			return resp, err
		}
	}
	base := script.New(whole(pingEvent+errorEvent), whole(pingEvent+firstEvent))
	requireBodyIs(t, pingEvent+firstEvent, opened(t, base, patient(&seen)))
	assert.Equal(t, []string{pingEvent, pingEvent + errorEvent, pingEvent, pingEvent + firstEvent}, seen)
}

// An answer that stays Undecided is Final in the end.
func TestUndecidedIsFinalWhereNothingCanFollow(t *testing.T) {
	events := []string{"Content-Type", "text/event-stream"}
	long := strings.Repeat(": "+strings.Repeat("wait", 300)+"\n\n", 100)
	for name, c := range map[string]struct {
		peek, buffer int64
		step         script.Step
		last         string // what Classify saw last
	}{
		"the end":              {4096, 0, sends(200, pingEvent+"data: 0", io.EOF, events...), pingEvent + "data: 0"},
		"PeekBytes":            {4096, 0, sends(200, long, io.EOF, events...), long[:4096]},
		"64 KiB":               {1 << 40, 0, sends(200, long, io.EOF, events...), long[:64<<10]},
		"no PeekBytes":         {0, 0, sends(200, pingEvent, io.EOF, events...), ""},
		"a body in a buffer":   {4096, 100, sends(200, pingEvent, io.EOF), ""},
		"a failed response":    {4096, 0, sends(503, pingEvent, io.EOF, events...), pingEvent},
		"an error of the base": {4096, 0, sends(200, "", errLost, events...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var last string
			p := peeks
			p.PeekBytes, p.BufferBytes = c.peek, c.buffer
			p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
				last = string(a.Peek)
				return retryhttp.Undecided
			}
			base := script.New(c.step)
			resp := opened(t, base, p)
			assert.Equal(t, retryhttp.StopFinal, retryhttp.OutcomeOf(resp).Stop)
			assert.True(t, c.last == last, "%.100q", last)
			require.NoError(t, resp.Body.Close())
			assert.Len(t, base.Requests(), 1)
		})
	}
}

// An error or the end may come with the last bytes, in one Read.
func TestErrorThatComesWithAnEventIsOfTheNextOne(t *testing.T) {
	events := []string{"Content-Type", "text/event-stream"}
	for name, c := range map[string]struct {
		text string
		peek int64
		err  error
		seen []string // by Classify
		want error    // of the attempt
	}{
		"the end":              {pingEvent, 4096, io.EOF, []string{pingEvent}, nil},
		"no room for another":  {pingEvent, int64(len(pingEvent)), nil, []string{pingEvent}, nil},
		"an event is expected": {pingEvent, int64(len(pingEvent)), errLost, []string{pingEvent, ""}, errLost},
		"no event is expected": {firstEvent, 4096, errLost, []string{firstEvent}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []string
			p := patient(&seen)
			p.PeekBytes, p.MaxAttempts, p.AttemptTimeout = c.peek, 1, 0
			var failed error
			p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { failed = a.Err }
			resp := opened(t, edited(sends(200, c.text, c.err, events...), func(resp *http.Response) {
				resp.Body = &bodies.Hooked{OnRead: iotest.DataErrReader(resp.Body).Read}
			}), p)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, c.seen, seen)
			assert.Equal(t, c.want, failed)
		})
	}
}

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
		"a break with a ping":   {cutGzip(pingEvent), 0, "unexpected EOF"},
		"silence":               {inPieces(0, silence, pingEvent), time.Second, "no whole event of the response body within 1s"},
		"pings that never stop": {inPieces(400*ms, silence, pingEvent, pingEvent, pingEvent), time.Second, "no whole event"},
	} {
		t.Run(name, func(t *testing.T) {
			answers := play(c.first, stream(0, pingEvent, firstEvent))
			overBoth(t, answers, func(t *testing.T, base http.RoundTripper, srv *server) {
				var seen []string
				p := patient(&seen)
				var failed error
				p.OnRetry = func(a retryhttp.Attempt) { failed = a.Err }
				began := time.Now()
				requireBodyIs(t, pingEvent+firstEvent, opened(t, base, p))
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
			requireBodyIs(t, pingEvent+pingEvent+pingEvent+firstEvent, resp)
			time.Sleep(time.Second)
		}
		assert.Greater(t, asked.Load(), int32(5*4), "by hedges too")
	})
}

// The first attempt's event comes while Classify judges the hedge, which wins.
func TestClassifyIsNotAskedAboutAnAttemptThatHasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{answers: play(stream(150*ms, firstEvent), stream(0, firstEvent))}
		_, base, stop := memnet.ServeProtocol(srv.ServeHTTP, true)
		defer stop()
		p := peeks
		p.Hedge = &retryhttp.Hedge{After: 100 * ms, Share: 1}
		var asked []int
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			asked = append(asked, a.Number)
			time.Sleep(100 * ms)
			return retryhttp.Final
		}
		resp := opened(t, base, p)
		assert.True(t, retryhttp.OutcomeOf(resp).HedgeWon)
		requireBodyIs(t, firstEvent, resp)
		time.Sleep(time.Second)
		assert.Equal(t, []int{2}, asked)
	})
}

// AttemptTimeout is how long the first event may take, and StallTimeout how long each later one may.
func TestStallTimeoutBeginsAfterTheFirstEvent(t *testing.T) {
	const slow, stall, limit = 20 * time.Second, 10 * time.Second, 25 * time.Second
	for name, c := range map[string]struct {
		attempt time.Duration
		answer  http.HandlerFunc
		want    string
		err     error
		at      time.Duration
		failed  bool // the attempt
	}{
		"a slow first event":     {limit, stream(slow, firstEvent), firstEvent, nil, slow, false},
		"a slow second event":    {limit, stream(slow, firstEvent, lastEvent), firstEvent, context.DeadlineExceeded, slow + stall, false},
		"without AttemptTimeout": {0, stream(slow, firstEvent), "", context.DeadlineExceeded, stall, true},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, play(c.answer), func(t *testing.T, base http.RoundTripper, _ *server) {
				p := peeks
				p.MaxAttempts, p.AttemptTimeout, p.StallTimeout = 1, c.attempt, stall
				began := time.Now()
				resp := opened(t, base, p)
				assert.Equal(t, c.failed, retryhttp.OutcomeOf(resp).Stop == retryhttp.StopAttempts)
				got, err := io.ReadAll(resp.Body)
				assert.Equal(t, c.want, string(got))
				assert.ErrorIs(t, err, c.err)
				assert.Equal(t, c.at, time.Since(began))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// An empty body is an answer, unless the response has promised an event or a number of bytes.
func TestEndBeforeAnyByteIsAFailureOnlyIfBytesAreOwed(t *testing.T) {
	events := []string{"Content-Type", "text/event-stream"}
	type testCase struct {
		code   int
		header []string
		err    error // of the attempt
		caller error // of the body that the caller gets
	}
	inBubbles(t, map[string]testCase{
		"events":                   {200, events, io.ErrUnexpectedEOF, nil},
		"events of a length of 0":  {200, append(events, "Content-Length", "0"), io.ErrUnexpectedEOF, nil},
		"events of AWS":            {200, []string{"Content-Type", "application/vnd.amazon.eventstream"}, io.ErrUnexpectedEOF, nil},
		"a part":                   {206, []string{"Content-Range", "bytes 0-9/10"}, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF},
		"JSON":                     {200, []string{"Content-Type", "application/json"}, nil, nil},
		"rows, and there are none": {200, []string{"Content-Type", "application/x-ndjson"}, nil, nil},
		"events, refused":          {404, events, nil, nil},
		"a failure of events":      {503, events, nil, nil},
	}, func(t *testing.T, c testCase) {
		var body *piece
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			resp, err := sends(c.code, "", io.EOF, c.header...)(req)
			body = resp.Body.(*piece)
			return resp, err
		})
		var judged []retryhttp.Attempt
		p := peeks
		p.MaxAttempts = 1
		p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
			judged = append(judged, a)
			assert.Equal(t, a.Err != nil, body.closes.Load() == 1, "a failed body is closed")
			return retryhttp.Classify(a)
		}
		got, err := download(t, base, p)
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

func TestNestedTransportsRetryAStreamOnce(t *testing.T) {
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		text    string
		stop    retryhttp.Stop
		sent    int
	}{
		"a success":    {play(breakOff, stream(0, firstEvent)), firstEvent, retryhttp.StopFinal, 2},
		"breaks":       {play(breakOff), "", retryhttp.StopNested, 4},
		"ends":         {play(stream(0)), "", retryhttp.StopNested, 4},
		"error events": {play(stream(0, errorEvent)), errorEvent, retryhttp.StopNested, 4},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, c.answers, func(t *testing.T, base http.RoundTripper, srv *server) {
				resp := opened(t, retryhttp.New(base, peeks), peeks)
				assert.Equal(t, c.stop, retryhttp.OutcomeOf(resp).Stop)
				got, _ := io.ReadAll(resp.Body) // which breaks off again
				assert.Equal(t, c.text, string(got))
				require.NoError(t, resp.Body.Close())
				assert.Len(t, srv.got, c.sent)
			})
		})
	}
}
