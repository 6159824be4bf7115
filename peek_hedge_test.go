package retryhttp_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

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

// The time to the first byte is the latency that a Hedge learns.
func TestHedgeLearnsTheTimeToTheFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(stream(300*ms, firstEvent))
		defer stop()
		p := peeks
		p.Hedge = &retryhttp.Hedge{Share: 0.5}
		rt := retryhttp.New(base, p)
		for range 10 {
			resp, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		after, ok := p.Hedge.Delay(get(t, t.Context()))
		assert.True(t, ok)
		assert.InDelta(t, 300*ms, after, float64(20*ms))
	})
}
