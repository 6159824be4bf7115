package otelretry_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
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
	"github.com/retryhttp/retryhttp/otelretry"
)

// forBoth runs a test with and without telemetry: nothing else must be different.
func forBoth(t *testing.T, test func(t *testing.T, build func(http.RoundTripper, retryhttp.Policy) http.RoundTripper)) {
	t.Run("retryhttp", func(t *testing.T) {
		test(t, func(base http.RoundTripper, p retryhttp.Policy) http.RoundTripper { return retryhttp.New(base, p) })
	})
	t.Run("otelretry", func(t *testing.T) {
		test(t, func(base http.RoundTripper, p retryhttp.Policy) http.RoundTripper {
			return otelretry.New(base, p, newTelemetry().options()...)
		})
	})
}

type builder = func(http.RoundTripper, retryhttp.Policy) http.RoundTripper

// playing is a base that plays statuses over and over.
func playing(statuses ...int) roundTripperFunc {
	n := 0
	return func(req *http.Request) (*http.Response, error) {
		n++
		return &http.Response{StatusCode: statuses[(n-1)%len(statuses)], Body: http.NoBody, Request: req}, nil
	}
}

// trailing sets its request's trailer when it is read to its end.
type trailing struct {
	io.Reader
	req *http.Request
}

func (b *trailing) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.req.Trailer.Set("Checksum", "abc")
	}
	return n, err
}

func (b *trailing) Close() error { return nil }

func TestTrailersAreSentWithEachAttempt(t *testing.T) {
	for name, announced := range map[string]http.Header{"announced": {"Checksum": nil}, "not announced": {}} {
		t.Run(name, func(t *testing.T) { testTrailers(t, announced) })
	}
}

func testTrailers(t *testing.T, announced http.Header) {
	forBoth(t, func(t *testing.T, build builder) {
		var got []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			assert.NoError(t, err)
			got = append(got, r.Trailer.Get("Checksum"))
			if len(got) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer server.Close()
		req, err := http.NewRequest(http.MethodPut, server.URL, nil)
		require.NoError(t, err)
		req.Trailer = announced.Clone()
		req.ContentLength = -1
		req.Body = &trailing{strings.NewReader("upload"), req}
		resp, err := build(nil, atOnce).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, []string{"abc", "abc"}, got)
	})
}

// A proxy passes on that one side is done, while the other side still sends.
func TestAConnectionCanBeClosedByHalves(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
		all, _ := io.ReadAll(in)
		_, _ = conn.Write(all)
	}))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)
	forBoth(t, func(t *testing.T, build builder) {
		proxy := httptest.NewServer(&httputil.ReverseProxy{
			Transport: build(nil, atOnce),
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		})
		defer proxy.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, proxy.URL, nil)
		require.NoError(t, err)
		req.Header.Set("Connection", "upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.WriteString(resp.Body.(io.Writer), "hello")
		require.NoError(t, err)
		require.NoError(t, resp.Body.(interface{ CloseWrite() error }).CloseWrite())
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(got))
	})
}

// half is a connection that cannot be closed by halves.
type half struct{ io.ReadWriteCloser }

func TestAConnectionThatCannotBeClosedByHalvesDoesNotSayThatItCan(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: half{ours}, Request: req}, nil
		})
		resp, err := build(base, atOnce).RoundTrip(asked(t))
		require.NoError(t, err)
		defer resp.Body.Close()
		_, writes := resp.Body.(io.Writer)
		assert.True(t, writes)
		_, closes := resp.Body.(interface{ CloseWrite() error })
		assert.False(t, closes)
	})
}

// Each page is requested with the context of the previous page.
func TestAChainOfRequestsKeepsNoResponseAlive(t *testing.T) {
	for name, statuses := range map[string][]int{"at once": {200}, "retried": {503, 200}, "redirected": {302}} {
		t.Run(name, func(t *testing.T) {
			forBoth(t, func(t *testing.T, build builder) {
				rt := build(playing(statuses...), noBudget())
				ctx := context.Background()
				var pages []weak.Pointer[http.Response]
				for range 50 {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host.example/", nil)
					require.NoError(t, err)
					resp, err := rt.RoundTrip(req)
					require.NoError(t, err)
					ctx = resp.Request.Context()
					pages = append(pages, weak.Make(resp))
				}
				runtime.GC()
				alive := 0
				for _, page := range pages {
					if page.Value() != nil {
						alive++
					}
				}
				assert.LessOrEqual(t, alive, 2)
				runtime.KeepAlive(ctx)
			})
		})
	}
}

func noBudget() retryhttp.Policy {
	policy := atOnce
	policy.Budget = retryhttp.Unlimited{}
	return policy
}

// An edit that asks for the default gets the budget that all other requests use.
func TestThereIsOneBudget(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		attempts := 0
		rt := build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			attempts++
			return &http.Response{StatusCode: 503, Body: http.NoBody, Request: req}, nil
		}), atOnce)
		edited := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { p.Budget = nil })
		for range 3 {
			for _, ctx := range []context.Context{t.Context(), edited} {
				_, err := send(t, ctx, rt, "GET", "http://host.example/")
				require.NoError(t, err)
			}
		}
		assert.Equal(t, 6+5+1, attempts, "requests, a Burst and a probe")
	})
}

func TestOnDoneGetsTheLastAttempt(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		for _, statuses := range [][]int{{200}, {503, 200}} {
			var told []retryhttp.Attempt
			policy := atOnce
			policy.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { told = append(told, a) }
			req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
			require.NoError(t, err)
			resp, err := build(playing(statuses...), policy).RoundTrip(req)
			require.NoError(t, err)
			require.Len(t, told, 1)
			assert.Equal(t, len(statuses), told[0].Number)
			assert.Same(t, resp, told[0].Response)
			assert.Equal(t, req.URL, told[0].Request.URL)
		}
	})
}

// An edit has OnDone called beside the RoundTrip, or after it.
func TestOnDoneMayBeCalledLater(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		told := make(chan *http.Request, 2)
		policy := atOnce
		policy.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { told <- a.Request }
		var later func()
		ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) {
			onDone := p.OnDone
			p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
				later = func() { onDone(a, o) }
				go onDone(a, o)
			}
		})
		_, err := send(t, ctx, build(playing(200), policy), "GET", "http://host.example/")
		require.NoError(t, err)
		later()
		for range 2 {
			assert.Equal(t, "http://host.example/", (<-told).URL.String())
		}
	})
}

func TestContextsTellNothing(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		base := playing(503, 302)
		var told []string
		tell := func(req *http.Request) { told = append(told, fmt.Sprint(req.Context())) }
		policy := atOnce
		policy.Idempotent = func(req *http.Request) bool { tell(req); return true }
		rt := build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			tell(req)
			return base(req)
		}), policy)
		req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "secret")
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		tell(resp.Request)
		for _, text := range told {
			assert.NotContains(t, text, "secret")
		}
	})
}

// A hedge that has lost, say, still uses the context of its attempt.
func TestRequestsBesideAnAttemptMayOutliveIt(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		beside := build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
		}), atOnce)
		var wg sync.WaitGroup
		base := playing(503, 302)
		rt := build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			ctx := context.WithoutCancel(req.Context())
			wg.Go(func() {
				side, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://side.example/", nil)
				if assert.NoError(t, err) {
					_, err = beside.RoundTrip(side)
					assert.NoError(t, err)
				}
			})
			return base(req)
		}), noBudget())
		for range 50 {
			req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
			require.NoError(t, err)
			_, err = rt.RoundTrip(req)
			require.NoError(t, err)
		}
		wg.Wait()
	})
}

// largeBody is a body whose release can be observed.
type largeBody struct {
	io.Reader
	_ [1 << 10]byte
}

func (*largeBody) Close() error { return nil }

func TestAFailedResponseIsNotKeptThroughTheWait(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		synctest.Test(t, func(t *testing.T) {
			failed := make(chan weak.Pointer[largeBody], 1)
			policy := retryhttp.Policy{Backoff: retryhttp.Constant(time.Hour)}
			rt := build(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp := &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}
				if retryhttp.AttemptOf(req.Context()).Number == 1 {
					body := &largeBody{Reader: strings.NewReader("busy")}
					failed <- weak.Make(body)
					resp.StatusCode, resp.Body = 503, body
				}
				return resp, nil
			}), policy)
			go func() {
				body := <-failed
				time.Sleep(time.Minute)
				runtime.GC()
				assert.True(t, body.Value() == nil, "the response is kept")
			}()
			_, err := send(t, t.Context(), rt, "GET", "http://host.example/")
			require.NoError(t, err)
		})
	})
}

func TestABudgetThatLooksAtTheURLIsNotAskedWithoutOne(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		policy := atOnce
		policy.Budget = &retryhttp.TokenBucket{Key: func(req *http.Request) string { return req.URL.Host }}
		_, err := build(nil, policy).RoundTrip(&http.Request{Header: make(http.Header)})
		assert.ErrorContains(t, err, "nil Request.URL")
	})
}

func TestTheResponsesRequestIsTheCallers(t *testing.T) {
	forBoth(t, func(t *testing.T, build builder) {
		for _, status := range []int{200, 201, 300, 304, 305, 306, 404, 400} {
			req, err := http.NewRequest(http.MethodGet, "http://host.example/", nil)
			require.NoError(t, err)
			resp, err := build(playing(status), atOnce).RoundTrip(req)
			require.NoError(t, err)
			assert.Same(t, req, resp.Request, status)
		}
	})
}
