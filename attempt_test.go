package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/memnet"
	"github.com/retryhttp/retryhttp/internal/script"
)

func TestAttemptTimeoutEndsAtTheHeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			for range 5 {
				time.Sleep(time.Second)
				_, _ = io.WriteString(w, "part ")
				_ = http.NewResponseController(w).Flush()
			}
		}))
		defer stop()
		resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Second / 2}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, "part part part part part ", string(body))
	})
}

func TestAttemptTimeoutIsATimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(hang))
		defer stop()
		client := &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 1})}
		_, err := client.Get("http://server/") //nolint:bodyclose // there is none
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, context.Canceled)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())
		assert.ErrorContains(t, err, "no response header within 1s")
	})
}

func TestAttemptTimeoutIsFoundInTheAttemptsContextOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "caller's")
		var attempts []retryhttp.Attempt
		var sent []context.Context
		rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
			sent = append(sent, req.Context())
			<-req.Context().Done()
			return nil, req.Context().Err()
		}), retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 2, OnRetry: func(a retryhttp.Attempt) { attempts = append(attempts, a) }})
		_, err := rt.RoundTrip(get(t, ctx))
		assert.Equal(t, 2, errorOf(t, err).Attempts)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "also where the base returns context.Canceled")
		require.Len(t, attempts, 1)
		assert.NoError(t, attempts[0].Request.Context().Err(), "the Attempt has the caller's context")
		assert.Equal(t, time.Second, attempts[0].Elapsed)
		for _, ctx := range sent {
			assert.Equal(t, "caller's", ctx.Value(key{}))
		}
	})
}

func TestAttemptContextIsReleased(t *testing.T) {
	cases := []struct {
		name    string
		release func(*http.Response, context.CancelFunc)
	}{
		{"by closing the body", func(r *http.Response, _ context.CancelFunc) { _ = r.Body.Close() }},
		{"by reading it", func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }},
		{"with the caller's context", func(_ *http.Response, cancel context.CancelFunc) { cancel() }},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				base := script.New(script.Status(200))
				resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, ctx))
				require.NoError(t, err)
				attempt := base.Requests()[0].Context()
				time.Sleep(time.Hour)
				require.NoError(t, attempt.Err(), "the timer was stopped at the header")
				tc.release(resp, cancel)
				synctest.Wait()
				assert.Error(t, attempt.Err())
			})
		})
	}
}

// Over HTTP/2 a server may end its answer, and still read the request.
func TestAttemptContextLastsUntilTheResponseIsClosedWhereThereIsAnUpload(t *testing.T) {
	base := script.New(script.Status(200))
	req := get(t, t.Context())
	req.Method, req.Body = http.MethodPut, io.NopCloser(strings.NewReader("upload"))
	resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(req)
	require.NoError(t, err)
	attempt := base.Requests()[0].Context()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	assert.NoError(t, attempt.Err())
	require.NoError(t, resp.Body.Close())
	assert.Error(t, attempt.Err())
}

func TestAttemptContextIsReleasedAfterAnError(t *testing.T) {
	base := script.New(script.Fail(errBroken))
	_, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute, MaxAttempts: 1}).RoundTrip(get(t, t.Context()))
	assert.ErrorIs(t, err, errBroken)
	assert.Error(t, base.Requests()[0].Context().Err())
}

func TestAResponseThatComesTooLateIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		body := newSlowBody(0)
		rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second) // a base that does not look at its context
			return respond(200, body)(req)
		}), retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 1})
		_, err := rt.RoundTrip(get(t, t.Context()))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, int32(1), body.closes.Load())
	})
}

// conn is a body that is a connection, as a 101's is.
type conn struct {
	io.Reader
	strings.Builder
	closed bool
}

func (c *conn) Close() error { c.closed = true; return nil }

func TestBodyOfA101StaysAConnection(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		c := &conn{Reader: strings.NewReader("from the server")}
		resp, err := retryhttp.New(script.New(respond(101, c)), retryhttp.Policy{AttemptTimeout: timeout}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		rwc, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok)
		_, err = io.WriteString(rwc, "to the server")
		require.NoError(t, err)
		assert.Equal(t, "to the server", c.String())
		read, err := io.ReadAll(rwc)
		require.NoError(t, err)
		assert.Equal(t, "from the server", string(read))
		require.NoError(t, rwc.Close())
		assert.True(t, c.closed)
	}
}

func TestOnlyAttemptTimeoutWrapsTheBody(t *testing.T) {
	body := newSlowBody(0)
	resp, err := retryhttp.New(script.New(respond(200, body)), retryhttp.Policy{}).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.Same(t, body, resp.Body)

	resp, err = retryhttp.New(script.New(respond(200, body)), retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.NotSame(t, body, resp.Body)
	_, writes := resp.Body.(io.Writer)
	assert.False(t, writes)
	require.NoError(t, resp.Body.Close())
}

func TestABaseThatBreaksTheRules(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		bubble(t, func(t *testing.T) {
			t.Log("attempt timeout", timeout)
			nothing := script.New(func(*http.Request) (*http.Response, error) { return nil, nil })
			_, err := retryhttp.New(nothing, retryhttp.Policy{AttemptTimeout: timeout}).RoundTrip(get(t, t.Context()))
			e := errorOf(t, err)
			assert.Equal(t, 4, e.Attempts, "neither a response nor an error is retried")
			assert.ErrorContains(t, err, "neither a response nor an error")

			body := newSlowBody(0)
			both := script.New(func(req *http.Request) (*http.Response, error) {
				resp, _ := respond(200, body)(req)
				return resp, errBroken
			})
			resp, err := retryhttp.New(both, retryhttp.Policy{AttemptTimeout: timeout, MaxAttempts: 1}).RoundTrip(get(t, t.Context()))
			assert.Nil(t, resp)
			assert.ErrorIs(t, err, errBroken)
			assert.Equal(t, int32(1), body.closes.Load())

			noBody := script.New(respond(503, nil), respond(200, nil))
			resp, err = retryhttp.New(noBody, retryhttp.Policy{AttemptTimeout: timeout}).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		})
	}
}

func TestCancelWinsOverAttemptTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(hang))
		defer stop()
		cause := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(get(t, ctx))
		e := errorOf(t, err)
		assert.Equal(t, retryhttp.StopCanceled, e.Stop)
		assert.ErrorIs(t, err, cause)
		assert.ErrorIs(t, err, context.Canceled)
		assert.False(t, e.Timeout())
	})
}
