package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

func TestBreakerCountsWhatIsTooLateAndNotTheCallersCancel(t *testing.T) {
	for name, tt := range map[string]struct {
		end    func(context.Context) context.Context
		within time.Duration // AttemptTimeout
		counts bool
	}{
		"AttemptTimeout":               {within: time.Second, counts: true},
		"the caller's deadline":        {end: deadlineWith(nil), counts: true},
		"a deadline with a cause":      {end: deadlineWith(errors.New("too slow")), counts: true},
		"the caller's cancel":          {end: cancelWith(nil)},
		"a cancel with a cause":        {end: cancelWith(errors.New("a sibling failed"))},
		"a cancel, and AttemptTimeout": {end: cancelWith(nil), within: time.Hour},
	} {
		for _, major := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, HTTP/%d", name, major), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := trippingAfter(1, time.Hour)
					b.base = silent(t, major)
					ctx := t.Context()
					if tt.end != nil {
						ctx = tt.end(ctx)
					}
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host.example/", nil)
					require.NoError(t, err)
					_, err = through(b, retryhttp.Policy{AttemptTimeout: tt.within}).Do(req)
					require.Error(t, err)
					assert.Equal(t, tt.counts, b.circuit.State() == gobreaker.StateOpen)
				})
			})
		}
	}
}

func deadlineWith(cause error) func(context.Context) context.Context {
	return func(ctx context.Context) context.Context {
		ctx, cancel := context.WithTimeoutCause(ctx, time.Second, cause)
		context.AfterFunc(ctx, cancel)
		return ctx
	}
}

func cancelWith(cause error) func(context.Context) context.Context {
	return func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(time.Second, func() { cancel(cause) })
		return ctx
	}
}

// silent is a server that does not answer.
func silent(t *testing.T, major int) http.RoundTripper {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(major == 1)
	protocols.SetUnencryptedHTTP2(major == 2)
	network := memnet.New()
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, major, r.ProtoMajor)
		<-r.Context().Done()
	})}
	go server.Serve(network)
	base := &http.Transport{Protocols: protocols, DialContext: network.Dial}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
	})
	return base
}
