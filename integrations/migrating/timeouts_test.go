package migrating_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

const timeout = 5 * time.Second

// stalling is a stub whose first answer does not come.
func stalling() *stub {
	return &stub{answer: func(n int, req *http.Request) (*http.Response, error) {
		if n == 1 {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		return response(req, http.StatusOK), nil
	}}
}

func TestWhereATimeoutIsForEachAttempt(t *testing.T) {
	limited := func(base http.RoundTripper) *http.Client {
		return &http.Client{Transport: base, Timeout: timeout}
	}
	for name, build := range map[string]func(http.RoundTripper) doer{
		"go-retryablehttp, HTTPClient.Timeout": func(base http.RoundTripper) doer {
			client := newRetryable(base)
			client.HTTPClient.Timeout = timeout
			return viaRetryable{client}
		},
		"heimdall, the client's Timeout": func(base http.RoundTripper) doer {
			return newHeimdall(limited(base))
		},
		"resty, SetTimeout": func(base http.RoundTripper) doer {
			return viaResty{newResty(base).SetTimeout(timeout)}
		},
		"backoff, the client's Timeout": func(base http.RoundTripper) doer {
			return viaBackoff(limited(base))
		},
		"retryhttp, AttemptTimeout": retrying(retryhttp.Policy{AttemptTimeout: timeout}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := stalling()
				_, err := get(t, t.Context(), build(base))
				require.NoError(t, err)
				assert.Equal(t, 2, base.count())
			})
		})
	}
}

func TestWhereATimeoutIsForAllAttempts(t *testing.T) {
	limited := func(transport http.RoundTripper) doer {
		return &http.Client{Transport: transport, Timeout: timeout}
	}
	transportOf := func(name string, base http.RoundTripper) http.RoundTripper {
		return peers[name](base).(*http.Client).Transport
	}
	for _, name := range []string{"rehttp", "failsafehttp", "retryhttp"} {
		t.Run(name+", the client's Timeout", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := stalling()
				start := time.Now()
				_, err := get(t, t.Context(), limited(transportOf(name, base)))
				require.Error(t, err)
				assert.Equal(t, timeout, time.Since(start))
				assert.Equal(t, 1, base.count())
			})
		})
	}
}

func TestRestysTimeoutIsForAllAttemptsBeneath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := stalling()
		start := time.Now()
		_, err := get(t, t.Context(), viaResty{restyOver(retryhttp.New(base, retryhttp.Policy{})).SetTimeout(timeout)})
		require.Error(t, err)
		assert.Equal(t, timeout, time.Since(start))
		assert.Equal(t, 1, base.count())
	})
}
