package replicas_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// onABase runs do with a Base that takes detours, to a replica that serves by serve. The Base has no Transport
// above. Requests for /private go through a proxy.
func onABase(t *testing.T, of []replicas.Protocol, serve http.HandlerFunc, do func(t *testing.T, base *retryhttp.Base, url string)) {
	for _, p := range of {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(time.Second) })
				w, transport, _ := brokenPool(p)
				t.Cleanup(w.Close)
				transport.ExpectContinueTimeout = time.Second
				transport.Proxy = func(req *http.Request) (*url.URL, error) {
					if req.URL.Path != "/private" {
						return nil, nil
					}
					return &url.URL{Scheme: "http", Host: "proxy.example:3128"}, nil
				}
				base := retryhttp.NewBase(transport)
				t.Cleanup(base.CloseIdleConnections)
				_, resp, err := sendTo(t, base, getting(t, t.Context(), w.URL()))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				w.Replicas[1].Serve(serve)
				do(t, base, w.URL())
			})
		})
	}
}

// getting returns a function that makes a GET.
func getting(t *testing.T, ctx context.Context, url string) func() *http.Request {
	t.Helper()
	return func() *http.Request {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		require.NoError(t, err)
		return req
	}
}

// sendTo makes requests until one has left the pool, and returns it with its response.
func sendTo(t *testing.T, base *retryhttp.Base, request func() *http.Request) (*http.Request, *http.Response, error) {
	t.Helper()
	for range 50 {
		req := request()
		resp, err := base.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
			return req, resp, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.Fail(t, "all requests have taken the pool")
	return nil, nil, nil
}

func TestResponseOfADetourIsOfItsRequest(t *testing.T) {
	onABase(t, everyProtocol, well, func(t *testing.T, base *retryhttp.Base, url string) {
		req, resp, err := sendTo(t, base, getting(t, t.Context(), url))
		require.NoError(t, err)
		assert.Same(t, req, resp.Request)
		require.NoError(t, resp.Body.Close())
	})
}

func TestUploadThatAServerAnswersUnreadIsClosed(t *testing.T) {
	onABase(t, everyProtocol, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		func(t *testing.T, base *retryhttp.Base, url string) {
			var body *bodies.Tracked
			_, resp, err := sendTo(t, base, func() *http.Request {
				body = &bodies.Tracked{Reader: strings.NewReader("content")}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, body)
				require.NoError(t, err)
				req.Header.Set("Expect", "100-continue")
				return req
			})
			require.NoError(t, err)
			require.Equal(t, http.StatusForbidden, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
			synctest.Wait()
			assert.EqualValues(t, 1, body.Closes.Load())
		})
}

// foreign is a context that package context does not know. Each context that is made from it has a goroutine
// until one of them ends.
type foreign struct {
	context.Context
	done chan struct{}
}

func (f foreign) Done() <-chan struct{} { return f.done }

// The context of a request may last as long as the program. The bubble ends in a panic if a goroutine is left.
func TestRequestOnADetourLeavesNothingInItsContext(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"a failure": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a success": well,
	} {
		t.Run(name, func(t *testing.T) {
			onABase(t, everyProtocol, serve, func(t *testing.T, base *retryhttp.Base, url string) {
				ctx := foreign{t.Context(), make(chan struct{})}
				_, resp, err := sendTo(t, base, getting(t, ctx, url))
				if err == nil {
					finish(t, resp)
				}
			})
		})
	}
}

// A Transport learns of a Base below other RoundTrippers from a retry. Here no retry comes.
func TestAttemptThatIsNotRetriedSaysThatItTookADetour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(2, 0, 1)
		defer w.Close()
		base := retryhttp.NewBase(w.Transport())
		defer base.CloseIdleConnections()
		var last retryhttp.Attempt
		client := retryhttp.New(struct{ http.RoundTripper }{base}, retryhttp.Policy{
			OnDone: func(a retryhttp.Attempt, _ retryhttp.Outcome) { last = a },
		})
		for range 10 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL(), nil)
			require.NoError(t, err)
			resp, err := client.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, resp.StatusCode == http.StatusOK, last.Detour)
		}
		assert.True(t, last.Detour)
	})
}

// A Transport may be made for each request. It knows of the Base from the first attempt on.
func TestFirstAttemptOfANewTransportSaysThatItTookADetour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(2, 0, 1)
		defer w.Close()
		base := retryhttp.NewBase(w.Transport())
		defer base.CloseIdleConnections()
		var last retryhttp.Attempt
		p := retryhttp.Policy{OnDone: func(a retryhttp.Attempt, _ retryhttp.Outcome) { last = a }}
		for number := range 3 {
			last = retryhttp.Attempt{}
			assert.Equal(t, http.StatusOK, statusOf(t, retryhttp.New(base, p), w.URL()))
			assert.True(t, last.Detour, number)
		}
		assert.Equal(t, 1, last.Number)
	})
}

func TestResumptionLeavesTheDetourOfItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(3, 0, 1, 2)
		defer w.Close()
		content := strings.Repeat("content ", 25<<10)
		serve := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"one"`)
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
		}
		w.Replicas[1].Serve(serve)
		w.Replicas[2].Serve(serve)
		client := newDetoured(t, w.Transport(), w.URL(), retryhttp.Policy{Resume: true})
		for range 3 {
			client.send(client.request(http.MethodGet, nil))
		}
		requests := w.Replicas[1].Requests.Load()
		w.Replicas[1].Serve(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"one"`)
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			_, _ = io.WriteString(w, content[:len(content)/2])
			panic(http.ErrAbortHandler)
		})
		_, got := client.send(client.request(http.MethodGet, nil))
		assert.True(t, content == got)
		assert.Equal(t, requests+1, w.Replicas[1].Requests.Load())
	})
}
