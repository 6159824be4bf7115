package migrating_test

import (
	"errors"
	"net/http"
	"net/http/cookiejar"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// If retries are above the http.Client, its Jar has the cookie that a failed attempt set.
func TestWhetherACookieOfAFailedAttemptIsSentWithTheNext(t *testing.T) {
	above := func(retry func(*http.Client) doer) func(http.RoundTripper, http.CookieJar) doer {
		return func(base http.RoundTripper, jar http.CookieJar) doer {
			return retry(&http.Client{Transport: base, Jar: jar})
		}
	}
	below := func(name string) func(http.RoundTripper, http.CookieJar) doer {
		return func(base http.RoundTripper, jar http.CookieJar) doer {
			client := peers[name](base).(*http.Client)
			client.Jar = jar
			return client
		}
	}
	for name, of := range map[string]struct {
		build func(http.RoundTripper, http.CookieJar) doer
		want  bool
	}{
		"go-retryablehttp": {above(func(client *http.Client) doer {
			retryable := newRetryable(nil)
			retryable.HTTPClient = client
			return viaRetryable{retryable}
		}), true},
		"rehttp":   {below("rehttp"), false},
		"heimdall": {above(func(client *http.Client) doer { return newHeimdall(client) }), true},
		"resty": {func(base http.RoundTripper, jar http.CookieJar) doer {
			return viaResty{newResty(base).SetCookieJar(jar)}
		}, true},
		"failsafehttp": {below("failsafehttp"), false},
		"backoff":      {above(viaBackoff), true},
		"retryhttp":    {below("retryhttp"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				jar, err := cookiejar.New(nil)
				require.NoError(t, err)
				sent := false
				base := &stub{answer: func(n int, req *http.Request) (*http.Response, error) {
					if n == 1 {
						return response(req, http.StatusServiceUnavailable, "Set-Cookie", "server=b"), nil
					}
					_, err := req.Cookie("server")
					sent = err == nil
					return response(req, http.StatusOK), nil
				}}
				_, err = get(t, t.Context(), of.build(base, jar))
				require.NoError(t, err)
				assert.Equal(t, 2, base.count())
				assert.Equal(t, of.want, sent)
			})
		})
	}
}

var errNoToken = errors.New("no token")

// withoutToken is a RoundTripper that signs the first attempt, and then fails.
func withoutToken(base http.RoundTripper, failure error) http.RoundTripper {
	return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if retryhttp.AttemptOf(req.Context()).Number > 1 {
			return nil, failure
		}
		return base.RoundTrip(req)
	})
}

func TestAnErrorFromBelowIsRetriedUnlessItIsPermanent(t *testing.T) {
	for name, of := range map[string]struct {
		failure error
		want    int
	}{
		"error":     {errNoToken, 4},
		"permanent": {retryhttp.Permanent(errNoToken), 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := answering(http.StatusServiceUnavailable)
				_, err := get(t, t.Context(), peers["retryhttp"](withoutToken(base, of.failure)))
				require.ErrorIs(t, err, errNoToken)
				failure, ok := errors.AsType[*retryhttp.Error](err)
				require.True(t, ok)
				assert.Equal(t, of.want, failure.Attempts)
				assert.Equal(t, 1, base.count())
			})
		})
	}
}

func TestAnErrorOfPrepareRetryEndsTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		base := answering(http.StatusServiceUnavailable)
		client := newRetryable(base)
		client.PrepareRetry = func(*http.Request) error {
			calls++
			return errNoToken
		}
		_, err := get(t, t.Context(), viaRetryable{client})
		require.ErrorIs(t, err, errNoToken)
		assert.Equal(t, 1, calls)
		assert.Equal(t, 1, base.count())
	})
}
