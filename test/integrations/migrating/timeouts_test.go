package migrating_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
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

func limited(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: base, Timeout: timeout}
}

// ofAttempts build clients whose timeout is for each attempt.
var ofAttempts = map[string]func(http.RoundTripper) doer{
	"go-retryablehttp, HTTPClient.Timeout": func(base http.RoundTripper) doer {
		client := newRetryable(base)
		client.HTTPClient.Timeout = timeout
		return viaRetryable{client}
	},
	"rehttp, PerAttemptTimeout": func(base http.RoundTripper) doer {
		client := peers["rehttp"](base).(*http.Client)
		client.Transport.(*rehttp.Transport).PerAttemptTimeout = timeout
		return client
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
	attemptTimeout: retrying(retryhttp.Policy{AttemptTimeout: timeout}),
}

const attemptTimeout = "retryhttp, AttemptTimeout"

func TestWhereATimeoutIsForEachAttempt(t *testing.T) {
	for name, build := range ofAttempts {
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

func TestWhereTheTimeoutOfAnAttemptEndsTheBody(t *testing.T) {
	for name, build := range ofAttempts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, "begin")
					_ = http.NewResponseController(w).Flush()
					select {
					case <-time.After(2 * timeout):
						_, _ = io.WriteString(w, " end")
					case <-r.Context().Done():
					}
				}))
				defer stop()
				resp, err := get(t, t.Context(), build(base))
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				if name == attemptTimeout {
					require.NoError(t, err)
					assert.Equal(t, "begin end", string(body))
					return
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, "begin", string(body))
			})
		})
	}
}

func TestWhereATimeoutIsForAllAttempts(t *testing.T) {
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

func TestRestysTimeoutIsForAllAttemptsBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := stalling()
		start := time.Now()
		_, err := get(t, t.Context(), viaResty{restyOver(retryhttp.New(base, retryhttp.Policy{})).SetTimeout(timeout)})
		require.Error(t, err)
		assert.Equal(t, timeout, time.Since(start))
		assert.Equal(t, 1, base.count())
	})
}
