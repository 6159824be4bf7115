package retryhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestGetBodyThatPanicsDoesNotCloseTheFirstBodyTwice(t *testing.T) {
	body := &trackedBody{Reader: strings.NewReader("x")}
	req, _ := http.NewRequest("PUT", "http://server/", body)
	req.GetBody = func() (io.ReadCloser, error) { panic(http.ErrAbortHandler) }
	assert.Panics(t, func() { retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{}).RoundTrip(req) })
	assert.Equal(t, int32(1), body.closes.Load())
}

func TestKeyHookThatPanicsClosesTheBody(t *testing.T) {
	for _, getBody := range []bool{false, true} {
		body := &trackedBody{Reader: strings.NewReader("x")}
		req, _ := http.NewRequest("POST", "http://server/", body)
		if getBody {
			req.GetBody = func() (io.ReadCloser, error) { return body, nil }
		}
		p := retryhttp.Policy{IdempotencyKey: func(*http.Request) string { panic(http.ErrAbortHandler) }}
		assert.Panics(t, func() { retryhttp.New(script.New(script.Status(503)), p).RoundTrip(req) })
		assert.Equal(t, int32(1), body.closes.Load())
	}
}

func TestEditThatPanicsClosesTheBody(t *testing.T) {
	body := &trackedBody{Reader: strings.NewReader("x")}
	ctx := retryhttp.WithPolicy(t.Context(), func(*retryhttp.Policy) { panic(http.ErrAbortHandler) })
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://server/", body)
	assert.Panics(t, func() { retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{}).RoundTrip(req) })
	assert.Equal(t, int32(1), body.closes.Load())
}

type refundPanics struct{ retryhttp.Unlimited }

func (refundPanics) Refund(*http.Request) { panic(http.ErrAbortHandler) }

func TestRefundThatPanicsClosesTheNextBody(t *testing.T) {
	next := &trackedBody{Reader: strings.NewReader("x")}
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "PUT", "http://server/", strings.NewReader("x"))
	req.GetBody = func() (io.ReadCloser, error) { return next, nil }
	p := retryhttp.Policy{Budget: refundPanics{}, OnRetry: func(retryhttp.Attempt) { cancel() }}
	assert.Panics(t, func() { retryhttp.New(script.New(script.Status(503)), p).RoundTrip(req) })
	assert.Equal(t, int32(1), next.closes.Load())
}

func TestBasePanicEndsTheAttemptsContext(t *testing.T) {
	var ctx context.Context
	base := roundTripperFunc(func(r *http.Request) (*http.Response, error) { ctx = r.Context(); panic(http.ErrAbortHandler) })
	req, _ := http.NewRequest("GET", "http://server/", nil)
	assert.Panics(t, func() { retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Hour}).RoundTrip(req) })
	assert.Error(t, ctx.Err())
}

// A server that takes the request, and then is gone.
func TestEmptyKeyIsResentByNetHTTPAndNotUnprocessed(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream=", stream), func(t *testing.T) {
			l, _ := net.Listen("tcp", "127.0.0.1:0")
			var posts, dials atomic.Int32
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				br := bufio.NewReader(c)
				r, _ := http.ReadRequest(br)
				io.Copy(io.Discard, r.Body)
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				r, err = http.ReadRequest(br)
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				posts.Add(1) // processed
			}()
			base := &http.Transport{DialContext: func(ctx context.Context, n, a string) (net.Conn, error) {
				if dials.Add(1) > 1 {
					return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
				}
				return net.Dial(n, a)
			}}
			defer l.Close()
			defer base.CloseIdleConnections()
			var classes []retryhttp.Class
			rt := retryhttp.New(base, retryhttp.Policy{RetryUnprocessed: true, Backoff: retryhttp.Constant(0), Classify: func(a retryhttp.Attempt) retryhttp.Class {
				c := retryhttp.Classify(a)
				t.Log(a.Err, c)
				classes = append(classes, c)
				return c
			}})
			req, _ := http.NewRequest("GET", "http://"+l.Addr().String(), nil)
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			var body io.Reader = strings.NewReader("x")
			if stream {
				body = io.NopCloser(body)
			}
			req, _ = http.NewRequest("POST", "http://"+l.Addr().String(), body)
			req.Header["Idempotency-Key"] = []string{""}
			assert.False(t, retryhttp.Idempotent(req))
			classes = nil
			_, err = rt.RoundTrip(req)
			assert.Error(t, err)
			assert.EqualValues(t, 1, posts.Load(), "the server has processed it")
			assert.NotContains(t, classes, retryhttp.Unprocessed)
			if stream {
				assert.EqualValues(t, 1, dials.Load(), "sent again by net/http")
			}
		})
	}
}

func TestQuotedSecretsInTexts(t *testing.T) {
	for _, raw := range []string{"http://user:o'brienSECRET@h/", "http://h/?q=it's-SECRET", "http://h/#token=SECRET", "http://h/?a=b#x'SECRET"} {
		_, perr := url.Parse(raw)
		assert.NoError(t, perr)
		inner := &url.Error{Op: "Get", URL: raw, Err: io.ErrUnexpectedEOF}
		req, _ := http.NewRequest("GET", "http://server/", nil)
		for _, e := range []error{inner, fmt.Errorf("token: %v", inner)} {
			_, err := retryhttp.New(script.New(script.Fail(e)), retryhttp.Policy{MaxAttempts: 1}).RoundTrip(req)
			assert.NotContains(t, err.Error(), "SECRET")
		}
	}
	deep := &url.Error{Op: "Get", URL: "http://h:SECRET/", Err: &url.Error{Op: "parse", URL: "http://h:SECRET/", Err: errors.New(`invalid port ":SECRET" after host`)}}
	req, _ := http.NewRequest("GET", "http://server/", nil)
	_, err := retryhttp.New(script.New(script.Fail(deep)), retryhttp.Policy{MaxAttempts: 1}).RoundTrip(req)
	assert.NotContains(t, err.Error(), "SECRET")
}

func TestFloorIsNotGrantedAnewByEviction(t *testing.T) {
	b := &retryhttp.TokenBucket{Burst: -1, Ratio: -1, MinPerSecond: 1e-6}
	granted := 0
	for range 3 {
		for i := range 4200 {
			req := &http.Request{URL: &url.URL{Host: fmt.Sprint("h", i)}}
			if b.Withdraw(req) {
				granted++
			}
		}
	}
	assert.LessOrEqual(t, granted, 4200)
}
