package integrations_test

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/gregjones/httpcache"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// A cache goes above, and is given the Transport as the one to ask: what it has
// needs no attempt, and what fails comes to it when the retries have ended.
// This package is no longer maintained; any cache that is a RoundTripper is
// wired in the same way.
func Example_httpcache() {
	server := failing(cached("max-age=60"), 503)
	defer server.Close()

	client := newCaching(retryhttp.Policy{})
	for range 2 {
		resp, err := client.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, err := io.ReadAll(resp.Body) // to its end: only then is it stored
		resp.Body.Close()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s, from the cache: %t, requests: %d\n",
			body, resp.Header.Get(httpcache.XFromCache) != "", len(server.got()))
	}
	// Output:
	// hello, from the cache: false, requests: 2
	// hello, from the cache: true, requests: 2
}

func newCaching(policy retryhttp.Policy) *http.Client {
	return &http.Client{Transport: &httpcache.Transport{
		Transport:           retryhttp.New(nil, policy),
		Cache:               httpcache.NewMemoryCache(),
		MarkCachedResponses: true, // with X-From-Cache
	}}
}

func cached(control string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", control)
		io.WriteString(w, "hello")
	}
}

// OutcomeOf does not know that there was no attempt at all. The cache marks its responses, and the
// mark shows it.
func TestCachedResponseHasTheOutcomeOfAFirstAttempt(t *testing.T) {
	server := failing(cached("max-age=60"), 503)
	defer server.Close()
	client := newCaching(retryhttp.Policy{Backoff: retryhttp.Constant(0)})
	for _, attempts := range []int{2, 1} {
		resp, err := client.Get(server.URL)
		require.NoError(t, err)
		assert.Equal(t, "hello", bodyOf(t, resp))
		assert.Equal(t, attempts, retryhttp.OutcomeOf(resp).Attempts)
		assert.Equal(t, retryhttp.StopFinal, retryhttp.OutcomeOf(resp).Stop)
		assert.Equal(t, attempts == 1, resp.Header.Get(httpcache.XFromCache) != "")
	}
	assert.Len(t, server.got(), 2)
}

// Only Policy.OnDone reports the attempts that failed before the cache answered.
func TestCacheAnswersWithWhatIsStaleOnceRetriesHaveEnded(t *testing.T) {
	for name, fail := range map[string]func(*server){
		"with a 503":    func(*server) {},
		"with an error": func(s *server) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			var old atomic.Bool
			server := failing(func(w http.ResponseWriter, r *http.Request) {
				if old.Swap(true) {
					serviceUnavailable(w, r)
					return
				}
				cached("max-age=0, stale-if-error=600")(w, r)
			})
			defer server.Close()
			var attempts []int
			client := newCaching(retryhttp.Policy{
				Backoff: retryhttp.Constant(0),
				OnDone:  func(_ retryhttp.Attempt, o retryhttp.Outcome) { attempts = append(attempts, o.Attempts) },
			})
			for range 2 {
				resp, err := client.Get(server.URL)
				require.NoError(t, err)
				assert.Equal(t, "hello", bodyOf(t, resp))
				assert.Equal(t, 1, retryhttp.OutcomeOf(resp).Attempts)
				fail(server)
			}
			assert.Equal(t, []int{1, 4}, attempts)
		})
	}
}

func TestCacheReturnsTheLastFailureIfItHasNothing(t *testing.T) {
	server := failing(serviceUnavailable)
	defer server.Close()
	resp, err := newCaching(retryhttp.Policy{Backoff: retryhttp.Constant(0)}).Get(server.URL)
	require.NoError(t, err)
	assert.Equal(t, "down\n", bodyOf(t, resp))
	assert.Equal(t, 4, retryhttp.OutcomeOf(resp).Attempts)
	assert.Equal(t, retryhttp.StopAttempts, retryhttp.OutcomeOf(resp).Stop)
}
