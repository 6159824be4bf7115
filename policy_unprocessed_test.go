package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestUnprocessedIsRetriedForAnyMethodOnlyIfAsked(t *testing.T) {
	unprocessed := func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Unprocessed }
	cases := []struct {
		name     string
		method   string
		policy   retryhttp.Policy
		attempts int
	}{
		{"a GET without being asked", "GET", retryhttp.Policy{Classify: unprocessed, MaxAttempts: 3}, 3},
		{"a POST without being asked", "POST", retryhttp.Policy{Classify: unprocessed, MaxAttempts: 3}, 1},
		{"a POST when asked", "POST", retryhttp.Policy{Classify: unprocessed, MaxAttempts: 3, RetryUnprocessed: true}, 3},
		{"a POST that may have been processed", "POST", retryhttp.Policy{MaxAttempts: 3, RetryUnprocessed: true}, 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req := get(t, t.Context())
				req.Method = tc.method
				_, err := retryhttp.New(script.New(script.Fail(errBroken)), tc.policy).RoundTrip(req)
				e := errorOf(t, err)
				assert.Equal(t, tc.attempts, e.Attempts)
				assert.Equal(t, strings.HasSuffix(tc.name, "may have been processed"), e.Ambiguous)
			})
		})
	}
}

// The body has a GetBody, and its Read fails with a dial error after half of it
// was sent.
func TestUnprocessedIsNotABodyReadThatDials(t *testing.T) {
	for name, failure := range map[string]error{
		"dial": httperr.DialRefused,
		"dns":  &net.DNSError{Err: "server misbehaving", Name: "source", IsTemporary: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, acted := make(chan string, 10), make(chan struct{}, 10)
			url := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				b := make([]byte, 100)
				n, _ := io.ReadAtLeast(r.Body, b, 1)
				got <- string(b[:n])
				acted <- struct{}{}
				_, _ = io.Copy(io.Discard, r.Body)
			})
			body := func() (io.ReadCloser, error) {
				pr, pw := io.Pipe()
				go func() {
					_, _ = io.WriteString(pw, "transfer 100; ")
					<-acted
					_ = pw.CloseWithError(fmt.Errorf("next part: %w", failure))
				}()
				return pr, nil
			}
			req, _ := http.NewRequest("POST", url, nil)
			req.Body, _ = body()
			req.GetBody = body
			req.ContentLength = -1
			p := retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0)}
			_, err := retryhttp.New(&http.Transport{}, p).RoundTrip(req)
			require.Error(t, err)
			assert.Equal(t, 1, errorOf(t, err).Attempts, "%v", err)
			assert.Len(t, got, 1, "the server acted on how many uploads?")
		})
	}
}

func TestUnprocessedIsNotAFallbackBasesJoin(t *testing.T) {
	var payments atomic.Int32
	url := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		payments.Add(1)
		panic(http.ErrAbortHandler)
	})
	dead := loopback.Refusing(t)
	tr := &http.Transport{}
	base := script.Step(func(req *http.Request) (*http.Response, error) {
		var errs []error
		for _, host := range []string{dead, strings.TrimPrefix(url, "http://")} {
			r := req.Clone(req.Context())
			r.URL.Host = host
			resp, err := tr.RoundTrip(r)
			if err == nil {
				return resp, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	})
	req, _ := http.NewRequest("POST", "http://pool.example/", nil)
	_, err := retryhttp.New(base, retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0)}).RoundTrip(req)
	require.Error(t, err)
	assert.EqualValues(t, 1, payments.Load())
}

// The base is an http.Client. The POST took effect, and its 303 leads to a host
// that is down.
func TestUnprocessedIsNotARedirectedPost(t *testing.T) {
	dead := loopback.Refusing(t)
	var payments atomic.Int32
	url := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		payments.Add(1)
		http.Redirect(w, r, "http://"+dead+"/receipt", http.StatusSeeOther)
	})
	client := &http.Client{}
	base := script.Step(func(req *http.Request) (*http.Response, error) {
		return client.Do(req)
	})
	req, _ := http.NewRequest("POST", url, nil)
	_, err := retryhttp.New(base, retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0)}).RoundTrip(req)
	require.Error(t, err)
	assert.EqualValues(t, 1, payments.Load(), "%v", err)
}

// The base is an http.Client that followed a redirect, so the refused stream is
// not the POST.
func TestUnprocessedIsNotARefusedStreamAfterARedirect(t *testing.T) {
	payments := 0
	client := &http.Client{Transport: script.Step(func(r *http.Request) (*http.Response, error) {
		if r.Method == "GET" {
			return nil, httperr.HTTP2{StreamID: 3, Code: 7}
		}
		payments++
		return script.Response(r, 303, "Location", "/receipt"), nil
	})}
	req, err := http.NewRequest("POST", "http://host.example/", nil)
	require.NoError(t, err)
	p := retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0)}
	rt := retryhttp.New(script.Step(client.Do), p)
	_, err = rt.RoundTrip(req)
	assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
	assert.Equal(t, 1, payments)
}

// deafConn fails every Read with a dial error, after the server has executed the
// request. A connection through a tunnel may do so.
type deafConn struct{ net.Conn }

func (c deafConn) Read([]byte) (int, error) {
	b := make([]byte, 1)
	_, _ = io.ReadFull(c.Conn, b) // the server has answered
	return 0, httperr.DialRefused
}

func TestUnprocessedIsNotAFailedDialThatARequestWasWrittenTo(t *testing.T) {
	for _, body := range []string{"", "pay"} {
		var payments atomic.Int32
		url := loopback.Serve(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			payments.Add(1)
		})
		base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return deafConn{c}, err
		}}
		for _, timeout := range []time.Duration{0, time.Hour} {
			payments.Store(0)
			p := noWait
			p.RetryUnprocessed, p.AttemptTimeout = true, timeout
			req, err := http.NewRequest("POST", url, strings.NewReader(body))
			require.NoError(t, err)
			_, err = retryhttp.New(base, p).RoundTrip(req)
			assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
			assert.EqualValues(t, 1, payments.Load())
		}
		base.CloseIdleConnections()
	}
}

// The caller's own trace is still called.
func TestUnprocessedKeepsTheCallersTrace(t *testing.T) {
	url := loopback.Serve(t, status(200))
	wrote := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteHeaders: func() { wrote++ }})
	req, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader("x"))
	require.NoError(t, err)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	resp, err := retryhttp.New(base, retryhttp.Policy{RetryUnprocessed: true}).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 1, wrote)
	assert.Same(t, req, resp.Request)
}
