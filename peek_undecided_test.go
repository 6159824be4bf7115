package retryhttp_test

import (
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/retryhttp/retryhttp/retrytest"
)

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

// A test in memory finds what happens over a network.
func TestUndecidedInMemoryIsAsOverANetwork(t *testing.T) {
	events := retrytest.Status(200, "Content-Type", "text/event-stream")
	for name, step := range map[string]retrytest.Step{
		"event by event": events.Events(pingEvent, errorEvent),
		"at once":        events.Body(pingEvent + errorEvent),
	} {
		var seen []string
		rt := retrytest.NewTransport(t, nil, step.Nth(1), events.Events(pingEvent, firstEvent).Nth(2))
		got, err := download(t, rt, patient(&seen))
		require.NoError(t, err)
		assert.Equal(t, pingEvent+firstEvent, got, name)
		assert.Equal(t, []string{pingEvent, pingEvent + errorEvent, pingEvent, pingEvent + firstEvent}, seen, name)
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

// The events after a ping are the attempt's as the ping was.
func TestFailureAfterAPingFailsTheAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		first http.HandlerFunc
		after time.Duration
		err   string
	}{
		"a break":               {inPieces(0, breakOff, pingEvent), 0, ""},
		"a break in an event":   {inPieces(0, breakOff, pingEvent, "data: "), 0, ""},
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

// A body that is not known to consist of events is judged Read by Read.
func TestUndecidedAwaitsTheNextReadOfAnotherBody(t *testing.T) {
	pieces := []string{"{", "\"error\"", ":1}"}
	body := &bodies.Hooked{OnRead: func(b []byte) (int, error) {
		if len(pieces) == 0 {
			return 0, io.EOF
		}
		n := copy(b, pieces[0])
		pieces = pieces[1:]
		return n, nil
	}}
	var seen []string
	p := peeks
	p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		seen = append(seen, string(a.Peek))
		if strings.Contains(string(a.Peek), "error") {
			return retryhttp.Final
		}
		return retryhttp.Undecided
	}
	got, err := download(t, script.New(script.Respond(200, body)), p)
	require.NoError(t, err)
	assert.Equal(t, "{\"error\":1}", got)
	assert.Equal(t, []string{"{", "{\"error\""}, seen)
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

func TestPanicOfALaterQuestionClosesAPeekedBody(t *testing.T) {
	asked := 0
	p := peeks
	p.Classify = func(retryhttp.Attempt) retryhttp.Class {
		if asked++; asked > 1 {
			panic("no")
		}
		return retryhttp.Undecided
	}
	body := &piece{text: pingEvent + errorEvent, err: io.EOF}
	base := script.New(func(req *http.Request) (*http.Response, error) {
		resp := script.Response(req, 200, "Content-Type", "text/event-stream")
		resp.Body, resp.ContentLength = body, -1
		return resp, nil
	})
	assert.PanicsWithValue(t, "no", func() { _, _ = retryhttp.New(base, p).RoundTrip(get(t, t.Context())) })
	assert.EqualValues(t, 1, body.closes.Load())
}
