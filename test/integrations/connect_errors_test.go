package integrations_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/retryhttp/retryhttp"
)

func TestConnectErrorHoldsTheOutcome(t *testing.T) {
	stop := make(chan struct{})
	server := failing(func(_ http.ResponseWriter, r *http.Request) { <-stop })
	defer server.Close()
	defer close(stop)
	policy := retryhttp.Policy{AttemptTimeout: 50 * time.Millisecond}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := sayTo(server, policy, noSideEffects).CallUnary(ctx, connect.NewRequest(wrapperspb.String("hello")))
	failure, ok := errors.AsType[*retryhttp.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 4, failure.Attempts)
	assert.Equal(t, connect.CodeDeadlineExceeded, connect.CodeOf(err), "an attempt that is too late counts as such")
	for _, r := range server.got() {
		assert.Equal(t, server.got()[0].Header.Get("Connect-Timeout-Ms"), r.Header.Get("Connect-Timeout-Ms"), "made once")
	}
}

// connect reads the code from the text of HTTP/2's error. Interceptors repeat what is unavailable,
// and a POST may then be carried out twice.
func TestConnectCodeOfAPanicIsInternalIfItWasSentOnce(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	base := server.Client().Transport
	for name, tt := range map[string]struct {
		rt      http.RoundTripper
		options []connect.ClientOption
	}{
		"without the library": {rt: base},
		"a POST":              {rt: retryhttp.New(base, retryhttp.Policy{})},
		"one attempt":         {retryhttp.New(base, retryhttp.Policy{MaxAttempts: 1}), []connect.ClientOption{noSideEffects}},
		"no token":            {retryhttp.New(base, retryhttp.Policy{Budget: &retryhttp.TokenBucket{Burst: -1}}), []connect.ClientOption{noSideEffects}},
	} {
		t.Run(name, func(t *testing.T) {
			client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](
				&http.Client{Transport: tt.rt}, server.URL+sayProcedure, tt.options...)
			_, err := client.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("pay")))
			assert.Equal(t, connect.CodeInternal, connect.CodeOf(err), "%v", err)
		})
	}
}

// The client's errors then have a code, and nothing of the earlier attempts.
func TestConnectTellsOnlyOnDoneOfABrokenConnectionAndTheContextsEnd(t *testing.T) {
	breaks := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, tt := range map[string]struct {
		answer   http.HandlerFunc
		end      func(context.Context) context.Context
		wait     time.Duration
		code     connect.Code
		attempts int
	}{
		"the connection breaks": {breaks, cancelWith(nil), 0, connect.CodeUnavailable, 4},
		"the deadline passes":   {hangs, deadlineWith(nil), 0, connect.CodeDeadlineExceeded, 1},
		"a cancel in the wait":  {serviceUnavailable, cancelWith(nil), time.Hour, connect.CodeCanceled, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, stop := failingInMemory(tt.answer)
				defer stop()
				done := make(chan retryhttp.Outcome, 1) // connect may return before the Transport does
				policy := retryhttp.Policy{
					Backoff: retryhttp.Constant(tt.wait),
					OnDone:  func(_ retryhttp.Attempt, o retryhttp.Outcome) { done <- o },
				}
				client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](
					&http.Client{Transport: retryhttp.New(base, policy)}, "http://host.example"+sayProcedure, noSideEffects)
				_, err := client.CallUnary(tt.end(t.Context()), connect.NewRequest(wrapperspb.String("hello")))
				assert.Equal(t, tt.code, connect.CodeOf(err))
				_, found := errors.AsType[*retryhttp.Error](err)
				assert.False(t, found, "%v", err)
				assert.Equal(t, tt.attempts, (<-done).Attempts)
			})
		})
	}
}
