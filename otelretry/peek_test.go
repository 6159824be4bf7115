package otelretry_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

// streaming is a base whose first answer has a body of its own, and whose others are the poem.
func streaming(first func(*http.Request) io.Reader) roundTripperFunc {
	answered := false
	return func(req *http.Request) (*http.Response, error) {
		resp, err := serving(req)
		resp.Header.Set("Content-Type", "text/event-stream")
		if !answered {
			answered = true
			resp.Body, resp.ContentLength = io.NopCloser(first(req)), -1
		}
		return resp, err
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func silence(req *http.Request) io.Reader {
	return readerFunc(func([]byte) (int, error) {
		<-req.Context().Done()
		return 0, context.Cause(req.Context())
	})
}

// The span of an attempt has the body's error only if the body has one. A stream that was read to its
// end, or that Classify refused, was answered.
func TestAnAttemptWithoutAFirstEventIsResent(t *testing.T) {
	for name, tt := range map[string]struct {
		first  func(*http.Request) io.Reader
		status sdktrace.Status
	}{
		"a break": {
			func(*http.Request) io.Reader {
				return readerFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF })
			}, brokenOff,
		},
		"silence": {silence, sdktrace.Status{Code: codes.Error, Description: "no first byte of the response body within 1s"}},
		"an end":  {func(*http.Request) io.Reader { return strings.NewReader("") }, sdktrace.Status{}},
		"an error event": {
			func(*http.Request) io.Reader { return strings.NewReader("event: error") }, sdktrace.Status{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				policy := noBudget()
				policy.PeekBytes, policy.AttemptTimeout = 100, time.Second
				policy.Classify = func(a retryhttp.Attempt) retryhttp.Class {
					if bytes.HasPrefix(a.Peek, []byte("event: error")) {
						return retryhttp.Retryable
					}
					return retryhttp.Classify(a)
				}
				rt := otelretry.New(streaming(tt.first), policy, tel.options()...)
				tel.inSpan(t, func(ctx context.Context) {
					got, err := read(t, ctx, rt)
					require.NoError(t, err)
					assert.Equal(t, poem, got)
				})
				spans := tel.named("HTTP GET")
				assert.Equal(t, []int64{-1, 1}, resends(spans))
				assert.Equal(t, []sdktrace.Status{tt.status, {}}, statuses(spans))
				requireLinked(t, spans)
			})
		})
	}
}
