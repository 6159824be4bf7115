package retrytest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/retrytest"
)

// named is a handler that answers with its name and what it was sent.
func named(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s%s", name, r.Proto, r.Method, r.Host, body)
	})
}

func overHTTP2(base *http.Transport) *http.Transport {
	base.Protocols = new(http.Protocols)
	base.Protocols.SetUnencryptedHTTP2(true)
	return base
}

func say(t *testing.T, rt http.RoundTripper, method, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://service.example/", strings.NewReader(body))
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return fmt.Sprintf("%d %s", resp.StatusCode, got)
}

func TestServeHasTheHandlerAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.Equal(t, "200 a HTTP/1.1 PUT service.example, hello", say(t, retrytest.Serve(t, named("a")), "PUT", ", hello"))
		assert.Equal(t, "200 a HTTP/2.0 PUT service.example, hello", say(t, overHTTP2(retrytest.Serve(t, named("a"))), "PUT", ", hello"))
	})
}

func TestServeWithoutAHandlerEndsTheTest(t *testing.T) {
	tb := &failingTB{}
	tb.run(func() { retrytest.Serve(tb) })
	assert.Equal(t, "retrytest: Serve needs a handler", tb.fatal)
	assert.Contains(t, tb.blamed, t.Name())
}

// Each connection has one replica, and the next connection has the next one.
func TestReplicasOfServeTakeTurnsByConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, base := range map[string]*http.Transport{
			"HTTP/1.1": retrytest.Serve(t, named("a"), named("b")),
			"HTTP/2.0": overHTTP2(retrytest.Serve(t, named("a"), named("b"))),
		} {
			var got []string
			for range 3 {
				for range 2 {
					got = append(got, say(t, base, "GET", ""))
					synctest.Wait() // only a connection whose request is over for net/http is used again, or is idle
				}
				base.CloseIdleConnections()
				synctest.Wait()
			}
			a, b := "200 a "+name+" GET service.example", "200 b "+name+" GET service.example"
			assert.Equal(t, []string{a, a, b, b, a, a}, got)
		}
	})
}

func TestRetryFindsAReplicaOfServeThatIsWell(t *testing.T) {
	broken := func(t *testing.T) http.Handler { return retrytest.NewHandler(t, nil, retrytest.Status(503).Always()) }
	hanging := func(t *testing.T) http.Handler { return retrytest.NewHandler(t, nil, retrytest.Hang().Always()) }
	for name, bad := range map[string]func(*testing.T) http.Handler{"broken": broken, "hanging": hanging} {
		synctest.Test(t, func(t *testing.T) {
			for _, base := range []*http.Transport{
				retrytest.Serve(t, bad(t), named("b")), overHTTP2(retrytest.Serve(t, bad(t), named("b"))),
			} {
				client := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: 500 * time.Millisecond})
				for range 10 {
					assert.Contains(t, say(t, client, "GET", ""), "200 b", name)
				}
			}
		})
	}
}

func TestServeSendsWhatIsFlushedEventByEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := range 3 {
				time.Sleep(time.Second)
				fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
			}
		})
		start := time.Now()
		resp, err := (&http.Client{Transport: retrytest.Serve(t, handler)}).Get("http://service.example/")
		require.NoError(t, err)
		defer resp.Body.Close()
		var at []time.Duration
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if lines.Text() != "" {
				at = append(at, time.Since(start))
			}
		}
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, at)
	})
}

func TestServeEndsWithTheRequestsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ended := make(chan struct{})
		base := retrytest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(ended)
		}))
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service.example/", nil)
		require.NoError(t, err)
		_, err = base.RoundTrip(req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		<-ended
	})
}

// A test may leave connections open, also the connections of retries. A bubble whose goroutines have not ended would
// panic.
func TestServeEndsWithTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failsOnce := func() http.Handler { return retrytest.NewHandler(t, named("a"), retrytest.Status(503).Nth(1)) }
		for _, base := range []*http.Transport{
			retrytest.Serve(t, failsOnce()), overHTTP2(retrytest.Serve(t, failsOnce())),
		} {
			resp, err := (&http.Client{Transport: retryhttp.New(base, retryhttp.Policy{})}).Get("http://service.example/")
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
		}
	})
}
