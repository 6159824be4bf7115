package retryhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/replay"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClassifyStatus(t *testing.T) {
	for code := 100; code <= 999; code++ {
		want := retryhttp.Final
		switch {
		case code == 429:
			want = retryhttp.Unprocessed
		case code == 408 || code >= 500 && code <= 599:
			want = retryhttp.Retryable
		}
		got := retryhttp.Classify(retryhttp.Attempt{Response: &http.Response{StatusCode: code}})
		require.Equal(t, want, got, "status %d", code)
	}
	assert.Equal(t, retryhttp.Final, retryhttp.Classify(retryhttp.Attempt{}), "nothing at all")
}

func TestClassifyErrors(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want retryhttp.Class
	}{
		{"marked permanent", retryhttp.Permanent(errBroken), retryhttp.Final},
		{"marked permanent, wrapped", fmt.Errorf("breaker: %w", retryhttp.Permanent(errBroken)), retryhttp.Final},
		{"marked permanent although a dial error", retryhttp.Permanent(httperr.DialRefused), retryhttp.Final},
		{"certificate of an unknown authority", httperr.Untrusted(x509.UnknownAuthorityError{}), retryhttp.Final},
		{"unknown authority", x509.UnknownAuthorityError{}, retryhttp.Final},
		{"wrong host name", httperr.WrongHost, retryhttp.Final},
		{"expired certificate", x509.CertificateInvalidError{Reason: x509.Expired}, retryhttp.Final},
		{"no system roots", x509.SystemRootsError{}, retryhttp.Final},
		{"weak signature", x509.InsecureAlgorithmError(x509.MD5WithRSA), retryhttp.Final},
		{"unhandled extension", x509.UnhandledCriticalExtension{}, retryhttp.Final},
		{"constraint violation", x509.ConstraintViolationError{}, retryhttp.Final},
		{"rejected ECH", &tls.ECHRejectionError{}, retryhttp.Final},
		{"TLS alert over QUIC", fmt.Errorf("crypto: %w", tls.AlertError(42)), retryhttp.Final},
		{"TLS alert over TCP", httperr.TLSAlert, retryhttp.Final},
		{"TLS alert through a proxy", &net.OpError{Op: "proxyconnect", Err: httperr.TLSAlert}, retryhttp.Final},
		{"TLS alert of another module", &net.OpError{Op: "remote error", Err: errBroken}, retryhttp.Final},
		{
			"TLS alert of a proxy, about its connection",
			&net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "remote error", Err: alert(20)}}, retryhttp.Unprocessed,
		},
		{"HTTP/2 without TLS that is not enabled", errors.New("http2: unencrypted HTTP/2 not enabled"), retryhttp.Final},
		{"canceled below", errors.New("net/http: request canceled"), retryhttp.Final},
		{"canceled below, wrapped", fmt.Errorf("base: %w", errors.New("net/http: request canceled")), retryhttp.Final},
		{
			"canceled below before there was a connection",
			errors.New("net/http: request canceled while waiting for connection"), retryhttp.Final,
		},
		{
			"a Timeout of a client below",
			errors.New("net/http: request canceled (Client.Timeout exceeded while awaiting headers)"), retryhttp.Retryable,
		},
		{"not TLS at all", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, retryhttp.Final},
		{"HTTP on an HTTPS port", http.ErrSchemeMismatch, retryhttp.Final},
		{"no such host", httperr.Dial(&net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}), retryhttp.Final},
		{"an address that is none", httperr.Dial(&net.AddrError{Err: "invalid port", Addr: "h:99999"}), retryhttp.Final},
		{"an invalid escape in the URL", &url.Error{Op: "parse", Err: url.EscapeError("%zz")}, retryhttp.Final},
		{"a body that can't be read", fmt.Errorf("write: %w", &replay.ReadError{Err: io.ErrUnexpectedEOF}), retryhttp.Final},

		{"the rest of an earlier answer", httperr.HTTP1(errors.New(`malformed HTTP response "<html></html>"`)), retryhttp.Retryable},
		{"a rest with a space", httperr.HTTP1(errors.New(`malformed HTTP status code "html>"`)), retryhttp.Retryable},
		{"a length that is no number", httperr.HTTP1(errors.New(`bad Content-Length "x"`)), retryhttp.Final},

		{"connection refused", httperr.DialRefused, retryhttp.Unprocessed},
		{
			"connection refused, wrapped",
			fmt.Errorf("base: %w", httperr.Dial(os.NewSyscallError("connect", syscall.ECONNREFUSED))), retryhttp.Unprocessed,
		},
		{"two hosts refused", errors.Join(httperr.DialRefused, httperr.Dial(syscall.EHOSTUNREACH)), retryhttp.Unprocessed},
		{"no route", httperr.Dial(syscall.EHOSTUNREACH), retryhttp.Unprocessed},
		{"dial timeout", httperr.Dial(os.ErrDeadlineExceeded), retryhttp.Unprocessed},
		{
			"name server fails", httperr.Dial(&net.DNSError{Err: "server misbehaving", Name: "h", IsTemporary: true}),
			retryhttp.Unprocessed,
		},
		{"name server times out", &net.DNSError{Err: "i/o timeout", Name: "h", IsTimeout: true}, retryhttp.Unprocessed},
		{
			"proxy refuses the connection", &net.OpError{Op: "proxyconnect", Net: "tcp", Err: httperr.DialRefused},
			retryhttp.Unprocessed,
		},
		{"SOCKS proxy refuses", httperr.SOCKSRefused, retryhttp.Unprocessed},
		{"stream refused, wrapped", fmt.Errorf("base: %w", resetStream(7)), retryhttp.Unprocessed},

		{"stream refused, and then another", hidingMore{hiding{resetStream(7)}}, retryhttp.Retryable},
		{
			"stream refused after a redirect, hidden", hiding{&url.Error{Op: "Post", URL: "http://h/", Err: resetStream(7)}},
			retryhttp.Retryable,
		},
		{"stream canceled, wrapped", fmt.Errorf("base: %w", resetStream(8)), retryhttp.Retryable},
		{"refused after a client's redirect", &url.Error{Op: "Post", URL: "http://h", Err: httperr.DialRefused}, retryhttp.Retryable},
		{"one host refused, the other broke", errors.Join(httperr.DialRefused, io.EOF), retryhttp.Retryable},
		{"one broke, the other host refused", errors.Join(io.EOF, httperr.DialRefused), retryhttp.Retryable},
		{"two errors wrapped", fmt.Errorf("%w, then %w", io.EOF, httperr.DialRefused), retryhttp.Retryable},
		{"a read that failed for a dial further down", &net.OpError{Op: "read", Err: httperr.DialRefused}, retryhttp.Retryable},
		{
			"a write that failed for a name further down",
			&net.OpError{Op: "write", Err: &net.DNSError{Err: "server misbehaving"}}, retryhttp.Retryable,
		},
		{
			"a corrupted TLS record", &net.OpError{Op: "local error", Err: errors.New("tls: bad record MAC")},
			retryhttp.Retryable,
		},
		{"reset while reading", &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, retryhttp.Retryable},
		{"broken pipe", &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}, retryhttp.Retryable},
		{"end of file", io.EOF, retryhttp.Retryable},
		{"unexpected end of file", io.ErrUnexpectedEOF, retryhttp.Retryable},
		{"a deadline that is not the caller's", context.DeadlineExceeded, retryhttp.Retryable},
		{"a cancel that is not the caller's", context.Canceled, retryhttp.Retryable},
		{"an error of unknown kind", errBroken, retryhttp.Retryable},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, retryhttp.Classify(retryhttp.Attempt{Request: get(t, t.Context()), Err: tc.err}))
			assert.Equal(t, tc.want, retryhttp.Classify(retryhttp.Attempt{Err: tc.err}), "without a request")
		})
	}
}

func resetStream(code uint32) error { return httperr.HTTP2{StreamID: 1, Code: code} }

// hiding has another error's As, like the error chains of some packages.
type hiding struct{ err error }

func (e hiding) Error() string      { return "gateway: " + e.err.Error() }
func (e hiding) As(target any) bool { return errors.As(e.err, target) }

// hidingMore also unwraps.
type hidingMore struct{ hiding }

func (e hidingMore) Unwrap() error { return io.ErrUnexpectedEOF }

// A base with a second endpoint joins the errors of both.
func TestClassifyJoinOfDialErrorAndBrokenConnection(t *testing.T) {
	reads := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	for name, err := range map[string]error{
		"join dial first": errors.Join(httperr.DialRefused, reads),
		"join read first": errors.Join(reads, httperr.DialRefused),
		"join eof, dial":  errors.Join(io.EOF, httperr.DialRefused),
		"%w %w":           fmt.Errorf("primary: %w; fallback: %w", httperr.DialRefused, io.ErrUnexpectedEOF),
		"read wraps dial": &net.OpError{Op: "read", Net: "tunnel", Err: httperr.DialRefused},
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

// alert has the form of the type that crypto/tls does not export.
type alert uint8

func (a alert) Error() string { return tls.AlertError(a).Error() }

// The peer reports some failures of the connection as alerts, too. All other alerts refuse this side.
func TestClassifyTLSAlerts(t *testing.T) {
	aboutTheConnection := map[tls.AlertError]bool{10: true, 20: true, 21: true, 22: true, 50: true, 80: true, 90: true}
	for code := range tls.AlertError(255) {
		want := retryhttp.Final
		if aboutTheConnection[code] {
			want = retryhttp.Retryable
		}
		for name, err := range map[string]error{
			"QUIC": fmt.Errorf("crypto: %w", code), "TCP": httperr.HTTP1(&net.OpError{Op: "remote error", Err: alert(code)}),
		} {
			assert.Equal(t, want, retryhttp.Classify(retryhttp.Attempt{Err: err}), "%v over %s", code, name)
		}
	}
}

func TestPermanent(t *testing.T) {
	assert.NoError(t, retryhttp.Permanent(nil))
	err := retryhttp.Permanent(errBroken)
	assert.ErrorIs(t, err, errBroken)
	assert.EqualError(t, err, errBroken.Error())
}

func TestClassHasAName(t *testing.T) {
	names := []string{
		retryhttp.Final.String(), retryhttp.Retryable.String(), retryhttp.Unprocessed.String(), retryhttp.Class(7).String(),
	}
	assert.Equal(t, []string{"final", "retryable", "unprocessed", "Class(7)"}, names)
}

func TestClassifySeesTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []retryhttp.Attempt
		step := func(s script.Step) script.Step {
			return func(req *http.Request) (*http.Response, error) { time.Sleep(time.Second); return s(req) }
		}
		base := script.New(step(script.Fail(errBroken)), step(script.Status(503)), step(script.Status(200)))
		resp, err := retryhttp.New(base, retryhttp.Policy{Classify: func(a retryhttp.Attempt) retryhttp.Class {
			seen = append(seen, a)
			return retryhttp.Classify(a)
		}}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Len(t, seen, 3)
		for i, a := range seen {
			assert.Equal(t, i+1, a.Number)
			assert.Equal(t, time.Second, a.Elapsed)
			assert.Zero(t, a.Wait)
			assert.Same(t, base.Requests()[i], a.Request)
		}
		assert.Equal(t, errBroken, seen[0].Err)
		assert.Nil(t, seen[0].Response)
		assert.Equal(t, 503, seen[1].Response.StatusCode)
		assert.NoError(t, seen[1].Err)
	})
}

func TestClassifyNoSuchHostIsNotRetried(t *testing.T) {
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return nil, &net.OpError{
			Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true},
		}
	}}
	_, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(get(t, t.Context()))
	assert.Equal(t, 1, errorOf(t, err).Attempts)
}

// A body that does not fit its ContentLength will not fit it in a retry.
func TestClassifyContentLengthThatDoesNotFit(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, tc := range []struct {
			body   string
			length int64
		}{{"more than that", 3}, {"less", 30}} {
			if http2 && tc.length == 30 {
				continue // net/http leaves that to the server
			}
			t.Run(fmt.Sprintf("%s, HTTP/2: %v", tc.body, http2), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, base, stop := memnet.ServeProtocol(func(_ http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
					}, http2)
					defer stop()
					if !http2 {
						base.DialContext = unread(t, base.DialContext)
					}
					req, err := http.NewRequest("PUT", "http://server/", strings.NewReader(tc.body))
					require.NoError(t, err)
					req.ContentLength = tc.length
					_, err = retryhttp.New(base, noWait).RoundTrip(req)
					e := errorOf(t, err)
					assert.Equal(t, 1, e.Attempts, "%v", err)
					assert.Equal(t, retryhttp.StopFinal, e.Stop)
					time.Sleep(time.Minute) // what net/http keeps for a closed stream
				})
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.ServeProtocol(status(200), false)
		defer stop()
		base.DialContext = unread(t, base.DialContext)
		req, err := http.NewRequest("PUT", "http://server/", nil)
		require.NoError(t, err)
		req.ContentLength = 5
		_, err = retryhttp.New(base, noWait).RoundTrip(req)
		assert.Equal(t, 1, errorOf(t, err).Attempts, "%v", err)
	})
}

// A server that answers HEAD with a body leaves the body on the connection, where the next request
// takes it for its answer. A retry takes another connection.
func TestGETSucceedsAfterAHEADThatWasAnsweredWithABody(t *testing.T) {
	for _, body := range []string{"<html></html>", "<!DOCTYPE html><html></html>"} {
		t.Run(body, func(t *testing.T) {
			url := "http://" + loopback.Listen(t, answerHEADWithBody(body)).Addr().String()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			client := &http.Client{Transport: retryhttp.New(base, noWait)}
			for range 5 {
				resp, err := client.Head(url)
				require.NoError(t, err)
				resp.Body.Close()
				resp, err = client.Get(url)
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				assert.NoError(t, err)
				assert.Equal(t, "ok", string(got))
				resp.Body.Close()
			}
		})
	}
}

// answerHEADWithBody sends the body only when the next request is there. net/http closes an idle
// connection on which bytes come.
func answerHEADWithBody(body string) func(net.Conn) {
	return func(c net.Conn) {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		rest, requests := "", bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(requests)
			if err != nil {
				return
			}
			if rest != "" {
				_, _ = io.WriteString(c, rest)
				return
			}
			if req.Method == http.MethodHead {
				rest = body + "\r\n\r\n"
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n")
				continue
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	}
}

// frame is a frame of HTTP/2 (RFC 9113, section 4.1) on a client's first stream, or on none.
func frame(kind, flags, stream byte, payload string) string {
	return string([]byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, stream}) + payload
}

// answerOverHTTP2 answers the first request of a connection with a declared length of 10 and a tag.
func answerOverHTTP2(conn net.Conn, flags byte, body string) {
	defer conn.Close()
	const (
		status = "\x88"               // 200, from the table of RFC 7541, appendix A
		length = "\x0f\x0d\x0210"     // Content-Length: 10
		tag    = "\x0f\x13\x04\"v1\"" // ETag: "v1"
	)
	settings, acknowledged := frame(4, 0, 0, ""), frame(4, 1, 0, "")
	answer := frame(1, 4, 1, status+length+tag) + frame(0, flags, 1, body)
	go func() { _, _ = io.WriteString(conn, settings) }()
	var got []byte
	for answered := false; ; {
		part := make([]byte, 1024)
		n, err := conn.Read(part)
		if err != nil {
			return
		}
		got = append(got, part[:n]...)
		// The client's headers frame ends its request: flags 5 on stream 1.
		if !answered && bytes.Contains(got, []byte{1, 5, 0, 0, 0, 1}) {
			answered = true
			go func() { _, _ = io.WriteString(conn, acknowledged+answer) }()
		}
	}
}

// declaresTen is a base whose server sends body, with the flags of its last frame, and answers no pings.
func declaresTen(t *testing.T, flags byte, body string) (base *http.Transport, stop func()) {
	t.Helper()
	n := memnet.New()
	base = &http.Transport{DialContext: n.Dial, Protocols: new(http.Protocols)}
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: time.Second}
	base.Protocols.SetUnencryptedHTTP2(true)
	go func() {
		for {
			conn, err := n.Accept()
			if err != nil {
				return
			}
			go answerOverHTTP2(conn, flags, body)
		}
	}()
	return base, func() {
		base.CloseIdleConnections()
		n.Close()
	}
}

const endOfStream = 1

// net/http counts the bytes, and says so if there are more than were declared.
func TestMoreBytesThanDeclaredAreAnErrorOverHTTP2(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"as it comes": {},
		"buffered":    {BufferBytes: 100, MaxAttempts: 1},
		"resumed":     {Resume: true},
		"peeked":      {PeekBytes: 100, MaxAttempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, stop := declaresTen(t, endOfStream, "0123456789abcde")
				defer stop()
				got, err := download(t, base, p)
				assert.ErrorContains(t, err, "more than declared Content-Length")
				assert.Equal(t, "0123456789", got)
			})
		})
	}
}

// A connection that is lost after the last byte takes nothing away.
func TestConnectionLostAfterTheLastDeclaredByteIsTheEnd(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"buffered": {BufferBytes: 100, MaxAttempts: 1},
		"resumed":  {Resume: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, stop := declaresTen(t, 0, "0123456789")
				defer stop()
				began := time.Now()
				got, err := download(t, base, p)
				require.NoError(t, err)
				assert.Equal(t, "0123456789", got)
				assert.Equal(t, 2*time.Second, time.Since(began), "the connection answers no ping")
			})
		})
	}
}

// Over HTTP/2 a stream may go on after the last byte that was declared.
func TestAttemptTimeoutAfterTheLastByteLeavesAWholeBody(t *testing.T) {
	text := strings.Repeat("x", 100)
	overBoth(t, play(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), func(t *testing.T, base http.RoundTripper, srv *server) {
		got, err := download(t, base, retryhttp.Policy{BufferBytes: 1000, AttemptTimeout: time.Second})
		require.NoError(t, err)
		assert.Equal(t, text, got)
		assert.Len(t, srv.got, 1)
	})
}
