package http3_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/neterr"
	"github.com/retryhttp/retryhttp/internal/test/certificate"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// tries is how often quic-go sends a request that was rejected.
const tries = 2

var post = fault.Method{Name: http.MethodPost}

// seen is how a request ended, and the class of each of its attempts.
type seen struct {
	fault.Result
	classes []retryhttp.Class
	errs    []error
}

// send makes a request with the policy, without waiting between the attempts.
func (s *stage) send(p retryhttp.Policy, m fault.Method, k fault.Kind) *seen {
	s.t.Helper()
	var w seen
	p.Backoff = retryhttp.Constant(0)
	p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		w.classes = append(w.classes, retryhttp.Classify(a))
		w.errs = append(w.errs, a.Err)
		return w.classes[len(w.classes)-1]
	}
	w.Result = fault.Send(s.t.Context(), retryhttp.New(s.base, p), s.handler.Ledger, s.url, "request", 1, m, k)
	assert.NoError(s.t, s.handler.Ledger.Check("request", w.Succeeded()))
	checkClosed(s.t, w.Result, !m.Repeatable && !p.RetryUnprocessed)
	return &w
}

func kind(t *testing.T, name string) fault.Kind {
	t.Helper()
	i := slices.IndexFunc(fault.Kinds, func(k fault.Kind) bool { return k.Name == name })
	require.GreaterOrEqual(t, i, 0)
	return fault.Kinds[i]
}

func (s *stage) reject(times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders["request"] = slices.Repeat([]http3.ErrCode{http3.ErrCodeRequestRejected}, times)
}

func TestRejectedRequestIsUnprocessed(t *testing.T) {
	for _, k := range []string{"none", "bytes.Reader", "recorded stream"} {
		t.Run(k, func(t *testing.T) {
			s := newStage(t, fault.Ample)
			defer s.close()
			s.reject(tries)
			w := s.send(retryhttp.Policy{}, post, kind(t, k))
			assert.Equal(t, []retryhttp.Class{retryhttp.Unprocessed}, w.classes, "%v", w)
			assert.Equal(t, retryhttp.StopNotIdempotent, w.Outcome.Stop)
			assert.Zero(t, s.handler.Ledger.Arrivals("request"))
		})
	}
}

func TestPostThatWasRejectedSucceedsIfUnprocessedIsRetried(t *testing.T) {
	for _, k := range []string{"none", "bytes.Reader", "recorded stream", "trailer"} {
		t.Run(k, func(t *testing.T) {
			s := newStage(t, fault.Ample)
			defer s.close()
			times := tries
			if k == "recorded stream" || k == "trailer" {
				times = 1 // without a GetBody quic-go does not try again
			}
			s.reject(times)
			w := s.send(retryhttp.Policy{RetryUnprocessed: true}, post, kind(t, k))
			assert.True(t, w.Succeeded(), "%v", w)
			assert.Equal(t, 2, w.Outcome.Attempts)
			assert.False(t, w.Outcome.Ambiguous)
			assert.Equal(t, 1, s.handler.Ledger.Arrivals("request"))
		})
	}
}

func TestRequestThatIsResetWithAnotherCodeIsNotUnprocessed(t *testing.T) {
	for _, code := range []http3.ErrCode{
		http3.ErrCodeRequestCanceled, http3.ErrCodeInternalError, http3.ErrCodeNoError, http3.ErrCodeExcessiveLoad,
	} {
		t.Run(fmt.Sprintf("%#x", uint64(code)), func(t *testing.T) {
			s := newStage(t, fault.Ample)
			defer s.close()
			s.handler.Order("request", &fault.Fault{Answer: func(x *fault.Exchange) {
				x.Receive()
				reset(x.Writer(), code)
			}})
			w := s.send(retryhttp.Policy{RetryUnprocessed: true}, post, kind(t, "recorded stream"))
			assert.Equal(t, []retryhttp.Class{retryhttp.Retryable}, w.classes, "%v", w)
			assert.Equal(t, 1, s.handler.Ledger.Arrivals("request"))
		})
	}
}

// A connection that is closed says nothing of a single request, whatever the code.
func TestConnectionClosedAsIfARequestHadBeenRejectedIsNotUnprocessed(t *testing.T) {
	s := newStage(t, fault.Ample)
	defer s.close()
	f := &fault.Fault{Answer: func(x *fault.Exchange) {
		x.Receive()
		_ = s.newest().conn.Load().CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeRequestRejected), "")
		x.Hang()
	}}
	s.handler.Order("request", slices.Repeat([]*fault.Fault{f}, tries)...)
	known := fault.Method{Name: http.MethodPost, Repeatable: true} // to the ledger alone, for quic-go sends it again
	w := s.send(retryhttp.Policy{RetryUnprocessed: true}, known, kind(t, "recorded stream"))
	assert.Equal(t, []retryhttp.Class{retryhttp.Retryable}, w.classes, "%v", w)
}

// The client's own reset says nothing about the server.
func TestRejectionByTheClientIsNotUnprocessed(t *testing.T) {
	s := newStage(t, fault.Ample)
	defer s.close()
	config := &tls.Config{RootCAs: certificate.Pool(), NextProtos: []string{http3.NextProtoH3}}
	conn, err := s.dialAfter(0)(t.Context(), s.addr, config, s.base.QUICConfig)
	require.NoError(t, err)
	str, err := s.base.NewClientConn(conn).OpenRequestStream(t.Context())
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url, nil)
	require.NoError(t, err)
	require.NoError(t, str.SendRequestHeader(req))
	str.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestRejected))
	_, err = str.ReadResponse()
	require.ErrorIs(t, err, &http3.Error{ErrorCode: http3.ErrCodeRequestRejected})
	assert.Equal(t, retryhttp.Retryable, retryhttp.Classify(retryhttp.Attempt{Err: err}))
	assert.NoError(t, conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), ""))
}

// The handshake is not over in time although the server answers. The test uses no network, which
// would take its own time.
func TestHandshakeTimeoutIsUnprocessed(t *testing.T) {
	s := newStage(t, fault.Ample)
	defer s.close()
	s.base.Dial = s.dialAfter(1)
	w := s.send(retryhttp.Policy{}, post, kind(t, "recorded stream"))
	assert.Equal(t, []retryhttp.Class{retryhttp.Unprocessed}, w.classes, "%v", w)
	assert.Zero(t, s.handler.Ledger.Arrivals("request"))
}

func TestPostSucceedsAfterAHandshakeTimeoutIfUnprocessedIsRetried(t *testing.T) {
	s := newStage(t, fault.Ample)
	defer s.close()
	s.base.Dial = s.dialAfter(1)
	w := s.send(retryhttp.Policy{RetryUnprocessed: true}, post, kind(t, "recorded stream"))
	assert.True(t, w.Succeeded(), "%v", w)
	assert.False(t, w.Outcome.Ambiguous)
	assert.Equal(t, 1, s.handler.Ledger.Arrivals("request"))
}

// dialAfter is an http3.Transport's Dial that first runs into a number of timeouts.
func (s *stage) dialAfter(timeouts int) func(context.Context, string, *tls.Config, *quic.Config) (*quic.Conn, error) {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(s.t, err)
	q := &quic.Transport{Conn: pc}
	s.t.Cleanup(func() { assert.NoError(s.t, errors.Join(q.Close(), pc.Close())) })
	return func(ctx context.Context, addr string, t *tls.Config, c *quic.Config) (*quic.Conn, error) {
		if timeouts > 0 {
			timeouts--
			return nil, &quic.HandshakeTimeoutError{}
		}
		to, err := net.ResolveUDPAddr("udp4", addr)
		if err != nil {
			return nil, err
		}
		return q.DialEarly(ctx, to, t, c)
	}
}

// quic-go returns the same error for any connection on which nothing comes any more.
func TestHandshakeThatNobodyAnswersIsNotKnownToBeUnprocessed(t *testing.T) {
	s := newStage(t, fault.Ample)
	defer s.close()
	s.base.QUICConfig.HandshakeIdleTimeout = 50 * time.Millisecond
	s.newest().socket.mute.Store(true)
	w := s.send(retryhttp.Policy{}, post, kind(t, "recorded stream"))
	assert.ErrorAs(t, w.Err, new(*quic.IdleTimeoutError))
	assert.Equal(t, []retryhttp.Class{retryhttp.Retryable}, w.classes, "%v", w)
}

// All errors of quic-go are about a connection or a stream, and none about the bytes that came before.
func TestErrorOfAConnectionIsNoneOfItsBytes(t *testing.T) {
	for _, err := range []error{
		&http3.Error{ErrorCode: http3.ErrCodeInternalError, Remote: true},
		&quic.StreamError{}, &quic.ApplicationError{}, &quic.TransportError{},
	} {
		assert.True(t, neterr.Lost(err), "%T", err)
	}
}

func TestUntrustedCertificateIsFinal(t *testing.T) {
	s := newStage(t, fault.Ample)
	defer s.close()
	s.base.TLSClientConfig = nil
	w := s.send(retryhttp.Policy{}, fault.Methods[0], kind(t, "none"))
	assert.Equal(t, []retryhttp.Class{retryhttp.Final}, w.classes, "%v", w)
}

func TestInvalidRequestIsFinal(t *testing.T) {
	cases := map[string]func(*http.Request){
		"scheme":       func(r *http.Request) { r.URL.Scheme = "http" },
		"no host":      func(r *http.Request) { r.URL.Host = "" },
		"nil URL":      func(r *http.Request) { r.URL = nil },
		"nil header":   func(r *http.Request) { r.Header = nil },
		"method":       func(r *http.Request) { r.Method = "GE T" },
		"header name":  func(r *http.Request) { r.Header["A B"] = []string{"c"} },
		"header value": func(r *http.Request) { r.Header["A"] = []string{"b\nc"} },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, fault.Ample)
			defer s.close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url, nil)
			require.NoError(t, err)
			spoil(req)
			_, err = s.base.RoundTrip(req)
			require.Error(t, err)
			assert.Equal(t, retryhttp.Final, retryhttp.Classify(retryhttp.Attempt{Request: req, Err: err}), "%v", err)
		})
	}
}

func TestInvalidResponseIsRetryable(t *testing.T) {
	s := newStage(t, fault.Ample)
	defer s.close()
	s.handler.Order("request", &fault.Fault{Answer: func(x *fault.Exchange) {
		x.Writer().Header().Set("Connection", "close") // HTTP/3 does not know this field
		x.Head(http.StatusServiceUnavailable, 4, "busy")
	}})
	w := s.send(retryhttp.Policy{}, fault.Methods[0], kind(t, "none"))
	assert.Equal(t, []retryhttp.Class{retryhttp.Retryable, retryhttp.Final}, w.classes, "%v", w.errs)
}
