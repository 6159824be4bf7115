package retryhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

var dialRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// dyingServer answers one request, and at the second, which it reads to its end
// and acts on, it dies: nobody listens any more when the connection breaks.
func dyingServer(t *testing.T, act func()) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		br := bufio.NewReader(c)
		for n := range 2 {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if n == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				continue
			}
			act()
			_ = l.Close()
		}
	}()
	return l.Addr().String()
}

// The server has read a POST with a key, acted on it, and died. net/http resends it
// by itself, and what the caller sees is that this dial was refused.
func TestHiddenResendThenDialRefusedIsNotUnprocessed(t *testing.T) {
	var payments atomic.Int32
	addr := dyingServer(t, func() { payments.Add(1) })
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	var classes []retryhttp.Class
	rt := retryhttp.New(base, retryhttp.Policy{
		RetryUnprocessed: true, MaxAttempts: 2, Backoff: retryhttp.Constant(0),
		// what the package documentation tells a reverse proxy to do
		Idempotent: func(r *http.Request) bool { return r.Method == "GET" },
		Classify: func(a retryhttp.Attempt) retryhttp.Class {
			classes = append(classes, retryhttp.Classify(a))
			return classes[len(classes)-1]
		},
	})
	send := func() error {
		req, _ := http.NewRequest("POST", "http://"+addr+"/pay", bytes.NewReader([]byte("pay")))
		req.Header.Set("Idempotency-Key", "k")
		resp, err := rt.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	require.NoError(t, send())
	err := send()
	e := errorOf(t, err)
	require.EqualValues(t, 1, payments.Load(), "the payment did take effect")
	assert.NotEqual(t, retryhttp.Unprocessed, classes[1], "%v", err)
	assert.Equal(t, 1, e.Attempts, "not repeated")
}

// The same, default policy: Ambiguous must be true.
func TestHiddenResendThenDialRefusedIsAmbiguous(t *testing.T) {
	addr := dyingServer(t, func() {})
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	rt := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0), OnRetry: func(retryhttp.Attempt) {
		l2, err := net.Listen("tcp", addr) // the server is up again
		if !assert.NoError(t, err) {
			return
		}
		t.Cleanup(func() { _ = l2.Close() })
		go http.Serve(l2, http.HandlerFunc(status(409)))
	}})
	send := func() (*http.Response, error) {
		req, _ := http.NewRequest("POST", "http://"+addr+"/pay", bytes.NewReader([]byte("pay")))
		req.Header.Set("Idempotency-Key", "k")
		resp, err := rt.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return resp, err
	}
	_, err := send()
	require.NoError(t, err)
	resp, err := send()
	require.NoError(t, err)
	assert.Equal(t, 409, resp.StatusCode)
	assert.True(t, retryhttp.OutcomeOf(resp).Ambiguous, "%+v", retryhttp.OutcomeOf(resp))
}

// A body that has a GetBody, and whose Read fails with a dial error in the middle: half was sent.
func TestBodyReadThatDialsIsNotUnprocessed(t *testing.T) {
	for name, failure := range map[string]error{
		"dial": dialRefused,
		"dns":  &net.DNSError{Err: "server misbehaving", Name: "source", IsTemporary: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, acted := make(chan string, 10), make(chan struct{}, 10)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b := make([]byte, 100)
				n, _ := io.ReadAtLeast(r.Body, b, 1)
				got <- string(b[:n])
				acted <- struct{}{}
				_, _ = io.Copy(io.Discard, r.Body)
			}))
			defer srv.Close()
			srv.Config.ErrorLog = discardLog
			body := func() (io.ReadCloser, error) {
				pr, pw := io.Pipe()
				go func() {
					_, _ = io.WriteString(pw, "transfer 100; ")
					<-acted
					_ = pw.CloseWithError(fmt.Errorf("next part: %w", failure))
				}()
				return pr, nil
			}
			req, _ := http.NewRequest("POST", srv.URL, nil)
			req.Body, _ = body()
			req.GetBody = body
			req.ContentLength = -1
			_, err := retryhttp.New(&http.Transport{}, retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0)}).RoundTrip(req)
			require.Error(t, err)
			assert.Equal(t, 1, errorOf(t, err).Attempts, "%v", err)
			assert.Len(t, got, 1, "the server acted on how many uploads?")
		})
	}
}

// A base with a second endpoint to fall back to joins what happened at both.
func TestJoinOfDialErrorAndBrokenConnectionIsNotUnprocessed(t *testing.T) {
	reads := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	for name, err := range map[string]error{
		"join dial first": errors.Join(dialRefused, reads),
		"join read first": errors.Join(reads, dialRefused),
		"join eof, dial":  errors.Join(io.EOF, dialRefused),
		"%w %w":           fmt.Errorf("primary: %w; fallback: %w", dialRefused, io.ErrUnexpectedEOF),
		"read wraps dial": &net.OpError{Op: "read", Net: "tunnel", Err: dialRefused},
		"join of nothing": emptyJoin{},
		"write wraps dns": &net.OpError{Op: "write", Net: "tunnel", Err: &net.DNSError{Err: "i/o timeout", IsTimeout: true}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, retryhttp.Retryable, retryhttp.Classify(retryhttp.Attempt{Err: err}))
		})
	}
}

type emptyJoin struct{}

func (emptyJoin) Error() string   { return "every endpoint failed" }
func (emptyJoin) Unwrap() []error { return nil }

func TestFallbackBaseDoesNotRepeatAPayment(t *testing.T) {
	var payments atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payments.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	dead := l.Addr().String()
	l.Close()
	tr := &http.Transport{}
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		var errs []error
		for _, host := range []string{dead, strings.TrimPrefix(srv.URL, "http://")} {
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

// A base that is an http.Client: POST done, 303 to a host that is down.
func TestRedirectedPostIsNotUnprocessed(t *testing.T) {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	dead := l.Addr().String()
	l.Close()
	var payments atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payments.Add(1)
		http.Redirect(w, r, "http://"+dead+"/receipt", http.StatusSeeOther)
	}))
	defer srv.Close()
	client := &http.Client{}
	base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return client.Do(req)
	})
	req, _ := http.NewRequest("POST", srv.URL, nil)
	_, err := retryhttp.New(base, retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0)}).RoundTrip(req)
	require.Error(t, err)
	assert.EqualValues(t, 1, payments.Load(), "%v", err)
}

// An http.Client as base has followed a redirect: it is not the POST that was
// refused.
func TestARefusedStreamAfterARedirectProvesNothing(t *testing.T) {
	payments := 0
	client := &http.Client{Transport: roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		if r.Method == "GET" {
			return nil, http2Error{StreamID: 3, Code: 7}
		}
		payments++
		return &http.Response{StatusCode: 303, Header: http.Header{"Location": {"/receipt"}}, Body: http.NoBody, Request: r}, nil
	})}
	req, err := http.NewRequest("POST", "http://host.example/", nil)
	require.NoError(t, err)
	rt := retryhttp.New(roundTripperFunc(client.Do), retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0)})
	_, err = rt.RoundTrip(req)
	assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
	assert.Equal(t, 1, payments)
}

// deafConn answers every Read with the error of a dial further down, as a
// connection through a tunnel may, after the server has executed the request.
type deafConn struct{ net.Conn }

func (c deafConn) Read([]byte) (int, error) {
	b := make([]byte, 1)
	_, _ = io.ReadFull(c.Conn, b) // the server has answered
	return 0, dialRefused
}

func TestFailedDialThatARequestWasWrittenToIsNotUnprocessed(t *testing.T) {
	for _, body := range []string{"", "pay"} {
		var payments atomic.Int32
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			payments.Add(1)
		}))
		base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return deafConn{c}, err
		}}
		for _, timeout := range []time.Duration{0, time.Hour} {
			payments.Store(0)
			p := noWait
			p.RetryUnprocessed, p.AttemptTimeout = true, timeout
			req, err := http.NewRequest("POST", srv.URL, strings.NewReader(body))
			require.NoError(t, err)
			_, err = retryhttp.New(base, p).RoundTrip(req)
			assert.Equal(t, retryhttp.StopNotIdempotent, errorOf(t, err).Stop)
			assert.EqualValues(t, 1, payments.Load())
		}
		base.CloseIdleConnections()
		srv.Close()
	}
}

// The caller's own trace is called as ever.
func TestRetryUnprocessedKeepsTheCallersTrace(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(status(200)))
	defer srv.Close()
	wrote := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteHeaders: func() { wrote++ }})
	req, err := http.NewRequestWithContext(ctx, "POST", srv.URL, strings.NewReader("x"))
	require.NoError(t, err)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	resp, err := retryhttp.New(base, retryhttp.Policy{RetryUnprocessed: true}).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 1, wrote)
	assert.Same(t, req, resp.Request)
}
