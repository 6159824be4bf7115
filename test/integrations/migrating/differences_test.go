package migrating_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// forEach runs test in a bubble for each peer in wanted.
func forEach[T any](
	t *testing.T, wanted map[string]T, test func(t *testing.T, build func(http.RoundTripper) doer, want T),
) {
	for name, want := range wanted {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, peers, name)
			synctest.Test(t, func(t *testing.T) { test(t, peers[name], want) })
		})
	}
}

func TestWhatComesOfAPersistent503(t *testing.T) {
	const response, failure = "response", "error"
	forEach(t, map[string]string{
		"go-retryablehttp": failure, "rehttp": response, "heimdall": response, "resty": response,
		"failsafehttp": failure, "backoff": failure,
		"retryhttp": response,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want string) {
		resp, err := get(t, t.Context(), build(answering(http.StatusServiceUnavailable)))
		if want == failure {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(body))
	})
}

func TestWhichStatusesAreRetried(t *testing.T) {
	forEach(t, map[string][]int{
		"go-retryablehttp": {429, 500, 503}, "rehttp": {500, 501, 503}, "heimdall": {500, 501, 503},
		"resty": {429, 500, 503}, "failsafehttp": {429, 500, 503}, "backoff": {500, 501, 503},
		"retryhttp": {408, 429, 500, 501, 503},
	}, func(t *testing.T, build func(http.RoundTripper) doer, want []int) {
		var retried []int
		for _, status := range []int{404, 408, 429, 500, 501, 503} {
			base := answering(status)
			_, _ = get(t, t.Context(), build(base))
			if base.count() > 1 {
				retried = append(retried, status)
			}
		}
		assert.Equal(t, want, retried)
	})
}

func TestAttemptsWhereConnectionsAreRefused(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	forEach(t, map[string]int{
		"go-retryablehttp": 4, "rehttp": 1, "heimdall": 4, "resty": 1, "failsafehttp": 4, "backoff": 4,
		"retryhttp": 4,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want int) {
		base := refusing(refused)
		_, err := get(t, t.Context(), build(base))
		require.Error(t, err)
		assert.Equal(t, want, base.count())
	})
}

func TestAttemptsWhereConnectionsBreak(t *testing.T) {
	forEach(t, map[string]int{
		"go-retryablehttp": 4, "rehttp": 1, "heimdall": 4, "resty": 1, "failsafehttp": 4, "backoff": 4,
		"retryhttp": 4,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want int) {
		network, base, stop := memnet.Serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}))
		defer stop()
		_, err := get(t, t.Context(), build(base))
		require.Error(t, err)
		assert.Equal(t, want, network.Dials())
	})
}

func TestAttemptsWhereTheCertificateIsBad(t *testing.T) {
	forEach(t, map[string]int{
		"go-retryablehttp": 1, "rehttp": 1, "heimdall": 4, "resty": 1, "failsafehttp": 4, "backoff": 4,
		"retryhttp": 1,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want int) {
		base := refusing(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})
		_, err := get(t, t.Context(), build(base))
		require.Error(t, err)
		assert.Equal(t, want, base.count())
	})
}

func TestAttemptsWhereTheHostDoesNotExist(t *testing.T) {
	unknown := &net.OpError{
		Op: "dial", Net: "tcp",
		Err: &net.DNSError{Err: "no such host", Name: "example.com", IsNotFound: true},
	}
	forEach(t, map[string]int{
		"go-retryablehttp": 4, "rehttp": 1, "heimdall": 4, "resty": 1, "failsafehttp": 4, "backoff": 4,
		"retryhttp": 1,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want int) {
		base := refusing(unknown)
		_, err := get(t, t.Context(), build(base))
		require.Error(t, err)
		assert.Equal(t, want, base.count())
	})
}

func TestTheErrorTellsOfTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := get(t, t.Context(), peers["retryhttp"](refusing(io.ErrUnexpectedEOF)))
		failure, ok := errors.AsType[*retryhttp.Error](err)
		require.True(t, ok)
		assert.Equal(t, attempts, failure.Attempts)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}

func TestConnectionsThatFourAttemptsNeed(t *testing.T) {
	forEach(t, map[string]int{
		"go-retryablehttp": 1, "rehttp": 1, "heimdall": 4, "resty": 1, "failsafehttp": 4,
		"retryhttp": 4, // the pool's, and three detours
	}, func(t *testing.T, build func(http.RoundTripper) doer, want int) {
		network, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "hello")
		}))
		defer stop()
		_, _ = get(t, t.Context(), build(base))
		assert.Equal(t, want, network.Dials())
	})
}
