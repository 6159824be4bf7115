package otelretry_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func TestHedgesAreTheSameWithTelemetry(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		answers []answer
		outcome retryhttp.Outcome
		err     error
	}{
		"the hedge wins": {hedgeWins, retryhttp.Outcome{Attempts: 2, Elapsed: hedgeAfter, Hedges: 1, HedgeWon: true, Stop: "final"}, nil},
		"the first wins": {firstWins, retryhttp.Outcome{Attempts: 2, Elapsed: 2 * hedgeAfter, Hedges: 1, Stop: "final"}, nil},
		"both fail":      {bothFail, retryhttp.Outcome{Attempts: 3, Elapsed: 2 * hedgeAfter, Hedges: 1, Stop: "final"}, nil},
		"a final error": {
			[]answer{{2 * hedgeAfter, 0, retryhttp.Permanent(broken)}, never},
			retryhttp.Outcome{Attempts: 2, Elapsed: 2 * hedgeAfter, Hedges: 1, Stop: "final"}, broken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			forBoth(t, func(t *testing.T, build builder) {
				synctest.Test(t, func(t *testing.T) {
					policy := hedging()
					var done []retryhttp.Outcome
					policy.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) { done = append(done, o) }
					_, err := send(t, t.Context(), build(attempts(tt.answers...), policy), "GET", shop)
					require.ErrorIs(t, err, tt.err)
					assert.Equal(t, []retryhttp.Outcome{tt.outcome}, done)
					time.Sleep(time.Second) // a hedge may be left to finish
				})
			})
		})
	}
}

func TestAPanicOfAHedgeIsTheCallers(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		synctest.Test(t, func(t *testing.T) {
			first := attempts(never)
			rt := build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				if retryhttp.AttemptOf(req.Context()).Number > 1 {
					panic("broken")
				}
				return first(req)
			}), hedging())
			assert.PanicsWithValue(t, "broken", func() { _, _ = send(t, t.Context(), rt, "GET", shop) })
		})
	})
}

// Each attempt fills a trailer of its own when its body ends.
func TestTheBodyAndTheTrailerAreSentWithBothAttempts(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		synctest.Test(t, func(t *testing.T) {
			type upload struct{ body, trailer string }
			var mu sync.Mutex
			var uploads []upload
			hedged := attempts(hedgeWins...)
			rt := build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				assert.NoError(t, req.Body.Close())
				mu.Lock()
				uploads = append(uploads, upload{string(body), req.Trailer.Get("Checksum")})
				mu.Unlock()
				return hedged(req)
			}), hedging())
			req := asked(t)
			req.Trailer = http.Header{"Checksum": nil}
			req.ContentLength = -1
			req.GetBody = func() (io.ReadCloser, error) { return &trailing{strings.NewReader("upload"), req}, nil }
			req.Body, _ = req.GetBody()
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, []upload{{"upload", "abc"}, {"upload", "abc"}}, uploads)
		})
	})
}

func TestEitherOfTwoAttemptsMayWin(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			forBoth(t, func(t *testing.T, build builder) { testManyHedges(t, http2, build) })
		})
	}
}

// testManyHedges has the server answer when it has both attempts. Either may win.
func testManyHedges(t *testing.T, http2 bool, build builder) {
	var mu sync.Mutex
	waiting := make(map[string]chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		other, second := waiting[r.URL.Path]
		if !second {
			other = make(chan struct{})
			waiting[r.URL.Path] = other
		}
		mu.Unlock()
		if second {
			close(other)
		}
		<-other
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	server.EnableHTTP2 = http2
	server.StartTLS()
	defer server.Close()
	policy := hedging()
	policy.Hedge.After = time.Millisecond
	rt := build(server.Client().Transport, policy)
	// Each answer earns the hedge of the next request.
	for i := range 50 {
		path := "/" + strings.Repeat("x", i)
		req, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, path, string(got))
		assert.Equal(t, 1, retryhttp.OutcomeOf(resp).Hedges)
	}
}

// Both have failed, and the request sleeps until its retry.
func TestTheResponsesOfBothAttemptsAreNotKeptThroughTheWait(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var bodies []weak.Pointer[largeBody]
			policy := hedging()
			policy.Backoff = retryhttp.Constant(time.Hour)
			rt := build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := attempts(bothFail...)(req)
				body := &largeBody{Reader: strings.NewReader("busy")}
				resp.Body = body
				mu.Lock()
				defer mu.Unlock()
				bodies = append(bodies, weak.Make(body))
				return resp, err
			}), policy)
			go func() {
				time.Sleep(time.Minute)
				runtime.GC()
				mu.Lock()
				defer mu.Unlock()
				assert.Len(t, bodies, 2)
				for _, body := range bodies {
					assert.True(t, body.Value() == nil, "the response is kept")
				}
			}()
			_, err := send(t, t.Context(), rt, "GET", shop)
			require.NoError(t, err)
		})
	})
}
