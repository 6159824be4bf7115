package retryhttp_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

var (
	_ func(http.RoundTripper, retryhttp.Policy) *retryhttp.Transport    = retryhttp.New
	_ func(*retryhttp.Transport, *http.Request) (*http.Response, error) = (*retryhttp.Transport).RoundTrip
	_ func(*retryhttp.Transport)                                        = (*retryhttp.Transport).CloseIdleConnections
	_ func(context.Context, func(*retryhttp.Policy)) context.Context    = retryhttp.WithPolicy
	_ func(context.Context) int                                         = retryhttp.AttemptNumber
	_ func(time.Duration) retryhttp.Backoff                             = retryhttp.Constant
	_ func(time.Duration, time.Duration) retryhttp.Backoff              = retryhttp.Linear
	_ func(time.Duration, time.Duration) retryhttp.Backoff              = retryhttp.Exponential
	_ func(time.Duration, time.Duration, float64) retryhttp.Backoff     = retryhttp.Geometric
	_ func(time.Duration, time.Duration) retryhttp.Backoff              = retryhttp.FullJitter
	_ func(time.Duration, time.Duration) retryhttp.Backoff              = retryhttp.EqualJitter
	_ func(time.Duration, time.Duration) retryhttp.Backoff              = retryhttp.DecorrelatedJitter
	_ func(retryhttp.Backoff, float64) retryhttp.Backoff                = retryhttp.Backoff.Spread
	_ func(retryhttp.Backoff, time.Duration) retryhttp.Backoff          = retryhttp.Backoff.PlusJitter
	_ func(retryhttp.Attempt) retryhttp.Class                           = retryhttp.Classify
	_ func(error) error                                                 = retryhttp.Permanent
	_ func(http.Header) (time.Duration, bool)                           = retryhttp.RetryAfter
	_ func(*http.Request) bool                                          = retryhttp.Idempotent
	_ func(*http.Request) string                                        = retryhttp.RandomKey
	_ func(*http.Response) retryhttp.Outcome                            = retryhttp.OutcomeOf
	_ retryhttp.Budget                                                  = (*retryhttp.TokenBucket)(nil)
	_ retryhttp.Budget                                                  = retryhttp.Unlimited{}
	_ func(*retryhttp.TokenBucket, *http.Request) float64               = (*retryhttp.TokenBucket).Tokens
	_ func(*retryhttp.Error) string                                     = (*retryhttp.Error).Error
	_ func(*retryhttp.Error) []error                                    = (*retryhttp.Error).Unwrap
	_ func(*retryhttp.Error) bool                                       = (*retryhttp.Error).Timeout
	_ func(int, time.Duration) time.Duration                            = retryhttp.Backoff(nil)
	_                                                                   = retryhttp.Policy{MaxAttempts: int(0), MaxElapsed: time.Duration(0), AttemptTimeout: time.Duration(0), Backoff: retryhttp.Backoff(nil), MaxRetryAfter: time.Duration(0), Classify: (func(retryhttp.Attempt) retryhttp.Class)(nil), Idempotent: (func(*http.Request) bool)(nil), IdempotencyKey: (func(*http.Request) string)(nil), RetryUnprocessed: false, MaxBodyBytes: int64(0), Budget: retryhttp.Budget(nil), OnRetry: (func(retryhttp.Attempt))(nil), OnDone: (func(retryhttp.Attempt, retryhttp.Outcome))(nil), Logger: (*slog.Logger)(nil)}
	_                                                                   = retryhttp.Attempt{int(1), (*http.Request)(nil), (*http.Response)(nil), error(nil), time.Duration(0), time.Duration(0)}
	_                                                                   = retryhttp.TokenBucket{Ratio: float64(0), Burst: int(0), Window: time.Duration(0), MinPerSecond: float64(0), Key: (func(*http.Request) string)(nil)}
	_                                                                   = retryhttp.Outcome{int(1), time.Duration(0), time.Duration(0), retryhttp.Stop(""), false}
	_                                                                   = retryhttp.Error{Outcome: retryhttp.Outcome{}, Err: error(nil)}
)

func TestAPIConstants(t *testing.T) {
	assert.Equal(t, []retryhttp.Class{0, 1, 2}, []retryhttp.Class{retryhttp.Final, retryhttp.Retryable, retryhttp.Unprocessed})
	assert.Equal(t, []string{"final", "not-idempotent", "body", "attempts", "deadline", "retry-after", "budget", "canceled", "nested"}, []string{string(retryhttp.StopFinal), string(retryhttp.StopNotIdempotent), string(retryhttp.StopBody), string(retryhttp.StopAttempts), string(retryhttp.StopDeadline), string(retryhttp.StopRetryAfter), string(retryhttp.StopBudget), string(retryhttp.StopCanceled), string(retryhttp.StopNested)})
}
