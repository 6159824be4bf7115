package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// Each test exposes a RoundTripper of example_below_test.go to what it is for.

func TestDeadlinesHeadersFollowWhatIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, caller time.Duration
		want            []string
	}{
		"neither":                  {0, 0, []string{"", "", ""}},
		"an AttemptTimeout":        {time.Second, 0, []string{"1000", "1000", "1000"}},
		"a deadline of the caller": {0, 3 * time.Second, []string{"3000", "1800", "600"}},
		"both":                     {time.Second, 3 * time.Second, []string{"1000", "1000", "600"}},
		"more than eight digits":   {48 * time.Hour, 0, []string{"99999999", "99999999", "99999999"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := script.New(script.Status(503), script.Status(503), script.Status(200))
				ctx, cancel := endingIn(t.Context(), c.caller)
				defer cancel()
				p := retryhttp.Policy{AttemptTimeout: c.timeout, Backoff: retryhttp.Constant(1200 * ms)}
				req := get(t, ctx)
				resp, err := retryhttp.New(deadlines{base}, p).RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				for i, sent := range base.Requests() {
					assert.Equal(t, c.want[i], sent.Header.Get("X-Envoy-Expected-Rq-Timeout-Ms"))
					assert.Equal(t, c.want[i], strings.TrimSuffix(sent.Header.Get("Grpc-Timeout"), "m"))
				}
				assert.Empty(t, req.Header, "the caller's request is not changed")
			})
		})
	}
}

// What the limiter refuses costs no retry, says nothing about the host, and was not sent.
func TestPacedRefusesAtOnceAndFinally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget, gate := new(countingBudget), new(retryhttp.Gate)
		base := script.New(script.Status(200))
		rt := retryhttp.New(paced{base, rate.NewLimiter(rate.Every(time.Hour), 1)}, retryhttp.Policy{
			AttemptTimeout: time.Second, Budget: budget, Gate: gate,
		})
		start := time.Now()
		for i := range 20 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://host.example/", strings.NewReader("x"))
			require.NoError(t, err)
			_, err = rt.RoundTrip(req)
			if i == 0 {
				require.NoError(t, err)
				continue
			}
			failed := errorOf(t, err)
			assert.Equal(t, retryhttp.StopFinal, failed.Stop)
			assert.ErrorContains(t, err, "would exceed context deadline")
			assert.False(t, failed.Ambiguous)
			time.Sleep(10 * ms) // long enough for a host to be down
		}
		assert.Equal(t, 190*ms, time.Since(start))
		assert.Zero(t, budget.withdrawn)
		down := gate.Status(requestTo("host.example")).Down
		assert.False(t, down)
		assert.Len(t, base.Requests(), 1)
	})
}

// The server counts what it is sent, refuses the old token before or after it has read the body,
// and is busy once.
func TestRefreshingSendsEachBodyWholeWithTheNewToken(t *testing.T) {
	const size = 40_000
	text := strings.Repeat("0123456789", size/10)
	path := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	file := func() io.Reader {
		f, err := os.Open(path)
		require.NoError(t, err)
		return f
	}
	for name, c := range map[string]struct {
		body    func() io.Reader
		length  int64 // of a body that http.NewRequest does not know
		refuses bool
	}{
		"a string":                  {func() io.Reader { return strings.NewReader(text) }, 0, false},
		"a file":                    {file, size, false},
		"a stream":                  {func() io.Reader { return io.MultiReader(strings.NewReader(text)) }, size, false},
		"a stream of any length":    {func() io.Reader { return io.MultiReader(strings.NewReader(text)) }, 0, true},
		"a stream that is too long": {func() io.Reader { return io.MultiReader(strings.NewReader(text + text)) }, 2 * size, true},
	} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, refused early: %t", name, early), func(t *testing.T) {
				var got []string
				busy := true
				serving(t, func(w http.ResponseWriter, r *http.Request) {
					refused := r.Header.Get("Authorization") != "Bearer 2"
					if refused && early {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					body, err := io.ReadAll(r.Body)
					switch {
					case refused:
						w.WriteHeader(http.StatusUnauthorized)
					case err != nil || busy:
						busy = false
						w.WriteHeader(http.StatusServiceUnavailable)
					default:
						got = append(got, string(body))
					}
				}, func(t *testing.T, base http.RoundTripper) {
					tokens := 0
					rt := retryhttp.New(newRefreshing(base, "host.example", func(context.Context) (string, error) {
						tokens++
						return fmt.Sprint(tokens), nil
					}), retryhttp.Policy{RecordBytes: size})
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://host.example/", c.body())
					require.NoError(t, err)
					if c.length > 0 {
						req.ContentLength = c.length
					}
					resp, err := rt.RoundTrip(req)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					if c.refuses {
						assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
						assert.Empty(t, got)
						return
					}
					assert.Equal(t, http.StatusOK, resp.StatusCode)
					assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts, "the 503")
					require.Len(t, got, 1)
					assert.True(t, got[0] == text, "%d bytes", len(got[0]))
					assert.Equal(t, 2, tokens)
				})
			})
		}
	}
}

func TestRefreshingFetchesOneTokenForAllThatAreRefused(t *testing.T) {
	var valid, fetched atomic.Int64
	valid.Store(1)
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Second)
		if r.Header.Get("Authorization") != fmt.Sprint("Bearer ", valid.Load()) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}, func(t *testing.T, base http.RoundTripper) {
		rt := retryhttp.New(newRefreshing(base, "host.example", func(context.Context) (string, error) {
			time.Sleep(time.Second)
			return fmt.Sprint(fetched.Add(1)), nil
		}), retryhttp.Policy{})
		for round := range 2 {
			valid.Store(int64(round) + 1)
			start := time.Now()
			var running sync.WaitGroup
			for range 50 {
				running.Go(func() {
					resp, err := rt.RoundTrip(getURL(t, "http://host.example/"))
					if assert.NoError(t, err) {
						assert.NoError(t, resp.Body.Close())
						assert.Equal(t, http.StatusOK, resp.StatusCode)
					}
				})
			}
			running.Wait()
			assert.EqualValues(t, round+1, fetched.Load())
			assert.Equal(t, time.Duration(round+2)*time.Second, time.Since(start))
		}
		resp, err := rt.RoundTrip(getURL(t, "http://other.example/"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, "another host has no token")
	})
}

// A fetch that hangs ends with its request. Requests that wait for it end with their own contexts.
func TestRefreshingWaitsNoLongerThanItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		rt := newRefreshing(script.New(script.Status(200)), "host.example", hangs)
		var running sync.WaitGroup
		for _, limit := range []time.Duration{2 * time.Second, time.Second, time.Second} {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				start := time.Now()
				_, err := rt.RoundTrip(get(t, ctx))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, limit, time.Since(start))
			})
			synctest.Wait()
		}
		running.Wait()
	})
}
