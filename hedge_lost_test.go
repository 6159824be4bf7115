package retryhttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
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
)

// A caller may use its reader again once its request's body is closed and the response has
// come: icholy/digest sends the request again then.
func TestHedgeThatHasLostLeavesTheCallersReaderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := strings.NewReader("content")
		req := get(t, t.Context())
		req.Method, req.Body, req.ContentLength = "QUERY", io.NopCloser(content), 7
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := content.Seek(0, io.SeekStart)
			return io.NopCloser(content), err
		}
		uploaded := func(req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
		}
		slowly := func(req *http.Request) {
			_, _ = req.Body.Read(make([]byte, 1))
			time.Sleep(100 * ms)
			_, _ = io.Copy(io.Discard, req.Body)
		}
		r := newTrack(lap{after: 60 * ms, code: 200, proto: 1, do: uploaded}, lap{code: 200, do: slowly})
		f := r.runOn(t, hedging(), req)
		assert.Equal(t, 1, f.out.Hedges)
		assert.False(t, f.out.HedgeWon)
		assert.Equal(t, 6, content.Len(), "left of the caller's reader")
	})
}

// The memory of a body is the caller's again, too, when both are closed.
func TestHedgeThatHasLostDoesNotReadTheCallersMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := []byte("content")
		read := make(chan error, 1)
		slowly := func(req *http.Request) {
			time.Sleep(100 * ms)
			_, err := io.Copy(io.Discard, req.Body)
			read <- err
		}
		req := get(t, t.Context())
		req.Method, req.Body = "QUERY", io.NopCloser(bytes.NewReader(memory))
		req.GetBody = inMemoryRequest(t, memory).GetBody
		f := newTrack(lap{after: 60 * ms, code: 200, proto: 1}, lap{code: 200, do: slowly}).runOn(t, hedging(), req)
		require.Equal(t, 1, f.out.Hedges)
		assert.Error(t, <-read)
	})
}

func inMemoryRequest(t *testing.T, content []byte) *http.Request {
	t.Helper()
	req, err := http.NewRequest("QUERY", "http://host.example/", bytes.NewReader(content))
	require.NoError(t, err)
	return req
}

// A hedge that waits for a connection would take the first attempt's, and nobody would want
// its answer.
func TestHedgeThatHasLostBeforeItHadAConnectionIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var paths []string
		network, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			paths = append(paths, r.URL.Path)
			mu.Unlock()
			time.Sleep(200 * ms)
			_, _ = io.WriteString(w, "whole") // else net/http gives the connection away before it returns
		}, false)
		defer stop()
		base.MaxConnsPerHost = 1
		p := hedging()
		p.Hedge.Share = 1
		rt := retryhttp.New(base, p)
		start := time.Now()
		for _, path := range []string{"/1", "/2"} {
			resp, err := rt.RoundTrip(getURL(t, "http://host.example"+path))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 1, retryhttp.OutcomeOf(resp).Hedges)
		}
		assert.Equal(t, 400*ms, time.Since(start))
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []string{"/1", "/2"}, paths)
		assert.Equal(t, 1, network.Dials())
	})
}

// A body that the hedge has open is closed when the first attempt has won. Its panic surfaces
// in the caller, which can recover it.
func TestPanicOfTheRequestBodysCloseDoesNotEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closesNow := func(req *http.Request) { _ = req.Body.Close() } // or there is no hedge
		leaves := func(req *http.Request) {
			body := req.Body
			_, _ = body.Read(make([]byte, 1))
			req.Body = nil // the base closes it late
			go func() {
				time.Sleep(time.Second)
				_ = body.Close()
			}()
		}
		req := get(t, t.Context())
		req.Method, req.Body = "QUERY", io.NopCloser(strings.NewReader("content"))
		req.GetBody = func() (io.ReadCloser, error) { return panickingBody{strings.NewReader("content")}, nil }
		tr := newTrack(lap{after: 60 * ms, code: 200, proto: 1, do: closesNow},
			lap{after: time.Second, code: 200, deaf: true, do: leaves})
		assert.PanicsWithValue(t, "closed", func() { tr.runOn(t, hedging(), req) })
		assert.Len(t, tr.attempts(), 2)
		time.Sleep(2 * time.Second)
	})
}

// panickingBody panics when it is closed.
type panickingBody struct{ io.Reader }

func (panickingBody) Close() error { panic("closed") }

// A key that is new again does not start with a hedge, or each of many keys would always have
// one.
func TestMoreKeysThanAHedgeKnowsKeepToTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, rounds = 4200, 2
		p := hedging()
		p.Budget = retryhttp.Unlimited{}
		rt := retryhttp.New(script.Step(lap{after: 60 * ms, code: 200, proto: 2}.run), p)
		hedges := 0
		for range rounds {
			for i := range keys {
				resp, err := rt.RoundTrip(getURL(t, fmt.Sprintf("http://host%d.example/", i)))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				hedges += retryhttp.OutcomeOf(resp).Hedges
			}
		}
		assert.LessOrEqual(t, hedges, keys+keys*rounds/20)
		time.Sleep(time.Second)
	})
}

// closableBody may be closed while it is read.
type closableBody struct{ *bodies.Hooked }

func (closableBody) ClosableWhileRead() bool { return true }

func TestSlowCloseOfTheLosersBodyDoesNotHoldUpTheWinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.BufferBytes = 1 << 10
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			resp, err := lap{after: 30 * ms, code: 200}.run(req)
			if retryhttp.AttemptOf(req.Context()).Number == 1 {
				ctx := req.Context()
				resp.Body = closableBody{&bodies.Hooked{
					OnRead:  func([]byte) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
					OnClose: func() { time.Sleep(10 * time.Second) },
				}}
			}
			return resp, err
		})
		f := newTrack().through(t, base, p, get(t, t.Context()))
		assert.True(t, f.out.HedgeWon)
		assert.LessOrEqual(t, f.at, 100*ms, "80 ms, and what a Close may take")
		f.read(t)
		time.Sleep(time.Minute)
	})
}

func TestBufferedBodyOfALoserIsClosedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var handed []*bodies.Hooked
		p := hedging()
		p.BufferBytes = 1 << 10
		p.MaxAttempts = 2
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			first := retryhttp.AttemptOf(req.Context()).Number == 1
			l := lap{after: 60 * ms, code: 503}
			if !first {
				l = lap{after: 50 * ms, code: 200}
			}
			resp, err := l.run(req)
			mu.Lock()
			defer mu.Unlock()
			handed = append(handed, resp.Body.(*bodies.Hooked))
			resp.Body = closableBody{handed[len(handed)-1]}
			return resp, err
		})
		f := newTrack().through(t, base, p, get(t, t.Context()))
		f.read(t)
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, handed, 2)
		for _, b := range handed {
			assert.EqualValues(t, 1, b.Closes.Load())
		}
	})
}

// A Logger may take long. The first attempt answers meanwhile.
func TestHedgeThatHasLostBeforeItBeganHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.Logger = slog.New(slowHandler{slog.DiscardHandler})
		r := newTrack(lap{after: 60 * ms, code: 200, proto: 1}, lap{after: ms, code: 200, do: func(req *http.Request) {
			assert.ErrorIs(t, context.Cause(req.Context()), retryhttp.ErrSuperseded)
		}})
		f := r.begin(t, p, get(t, t.Context()))
		f.read(t)
		assert.Equal(t, 60*ms, f.at)
		time.Sleep(time.Minute)
		assert.Len(t, r.attempts(), f.out.Attempts)
	})
}

// The Budget may take long as well. A hedge that is not sent is not reported.
func TestHedgeIsNotSentAfterTheFirstAttemptHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		p := hedging()
		budget := &slowBudget{takes: 20 * ms}
		p.Budget = budget
		p.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		r := newTrack(lap{after: 60 * ms, code: 200})
		f := r.runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 60*ms, f.at)
		assert.Equal(t, 1, f.out.Attempts)
		time.Sleep(time.Minute)
		assert.Len(t, r.attempts(), 1)
		assert.EqualValues(t, 1, budget.refunded.Load())
		assert.Empty(t, logged.String())
	})
}

type slowHandler struct{ slog.Handler }

func (slowHandler) Enabled(context.Context, slog.Level) bool { return true }

func (slowHandler) Handle(context.Context, slog.Record) error {
	time.Sleep(100 * time.Millisecond)
	return nil
}

// A hedge that has lost reads no more of its response than its connection is worth.
func TestHedgeThatHasLostDoesNotReadALongBody(t *testing.T) {
	for name, c := range map[string]struct {
		header time.Duration // after which the hedge's comes; the first attempt wins after 10 ms
		most   int
	}{
		"it is being buffered":        {5 * ms, 6},
		"its header comes afterwards": {20 * ms, 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				p.BufferBytes = 1 << 20
				var read atomic.Int64
				body := &counting{read: &read, each: 16 << 10}
				if c.header < 10*ms {
					body.each, body.pause = 1, ms
				}
				started := func(req *http.Request) { body.ctx = req.Context() }
				r := newTrack(lap{after: 60 * ms, code: 200, proto: 1}, lap{after: c.header, code: 200, body: body, do: started})
				f := r.runOn(t, p, get(t, t.Context()))
				require.False(t, f.out.HedgeWon)
				assert.Positive(t, read.Load())
				assert.LessOrEqual(t, int(read.Load()), c.most)
			})
		})
	}
}

// A body is read for the sake of its connection, while that may be of use.
func TestHowMuchIsReadOfAHedgesResponseThatNobodyGets(t *testing.T) {
	for name, c := range map[string]struct {
		first, hedge lap
		closed       time.Duration // the hedge's response body, which brings a byte every 35 ms
		whole        bool
	}{
		"it has lost": {
			lap{after: 60 * ms, code: 200, proto: 1}, lap{after: 20 * ms, code: 200}, 250 * ms, true,
		},
		"it comes late, and takes longer than 250 ms after the race": {
			lap{after: 60 * ms, code: 200, proto: 1}, lap{after: 140 * ms, code: 200, deaf: true}, 470 * ms, false,
		},
		"it comes later than that": {
			lap{after: 60 * ms, code: 200, proto: 1}, lap{after: 300 * ms, code: 200, deaf: true}, 350 * ms, false,
		},
		"it has failed while the first attempt is under way": {
			lap{after: 2 * time.Second, code: 200}, lap{after: 10 * ms, code: 503}, 240 * ms, true,
		},
		"a retry has taken its place": {failedAt60, lap{after: 2 * time.Second, code: 200, deaf: true}, 2050 * ms, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var closed atomic.Int64
				body := &dripping{"hedge", 30 * ms}
				if !c.whole {
					body.text, body.pause = "hedge, which takes long", 35*ms
				}
				start := time.Now()
				c.hedge.body = body
				c.hedge.closing = func() { closed.Store(int64(time.Since(start))) }
				r := newTrack(c.first, c.hedge, lap{after: ms, code: 200})
				f := r.begin(t, hedging(), get(t, t.Context()))
				f.read(t)
				assert.Equal(t, 200, f.status)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				assert.Equal(t, c.closed, time.Duration(closed.Load()))
				assert.Equal(t, c.whole, body.text == "")
				r.requireClosed(t)
			})
		})
	}
}

// Its connection is worth that.
func TestHedgeThatHasLostWhileItIsBufferedReadsAShortBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := hedging()
		p.BufferBytes = 1 << 10
		body := &late{pause: 50 * ms, text: "hedge"}
		hedge := lap{after: 5 * ms, code: 200, body: body, do: func(req *http.Request) { body.attempt = req.Context() }}
		r := newTrack(lap{after: 60 * ms, code: 200, proto: 1}, hedge)
		f := r.runOn(t, p, get(t, t.Context()))
		assert.Equal(t, 60*ms, f.at)
		assert.False(t, f.out.HedgeWon)
		synctest.Wait()
		assert.Empty(t, body.text)
		r.requireClosed(t)
	})
}

// counting is a body of 1 MiB, which its context ends sooner.
type counting struct {
	ctx   context.Context
	read  *atomic.Int64
	each  int
	pause time.Duration
}

func (c *counting) Read(p []byte) (int, error) {
	time.Sleep(c.pause)
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	if c.read.Load() >= 1<<20 {
		return 0, io.EOF
	}
	n := min(len(p), c.each)
	c.read.Add(int64(n))
	return n, nil
}

// So its connection can be reused.
func TestResponseOfAFirstAttemptThatFailedIsReadWhenTheHedgeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := strings.NewReader("sorry")
		r := newTrack(lap{after: 60 * ms, code: 503, body: body}, lap{after: 50 * ms, code: 200})
		assert.True(t, r.runOn(t, hedging(), get(t, t.Context())).out.HedgeWon)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, body.Len())
		r.requireClosed(t)
	})
}
