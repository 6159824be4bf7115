package retryhttp_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// Each test exposes a recipe of example_mesh_test.go to what it is for.

// A POST without a key is sent as well, with RetryUnprocessed: without an address, nothing was sent.
func TestNameThatIsGoneForAMinuteIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		method, url string
		lookup      net.DNSError
		found       bool
	}{
		"a GET":                    {"GET", "http://db.prod.svc.cluster.local:80/", net.DNSError{IsNotFound: true}, true},
		"a POST":                   {"POST", "http://db.prod.svc.cluster.local/", net.DNSError{IsNotFound: true}, true},
		"a name of another domain": {"GET", "http://host.example/", net.DNSError{IsNotFound: true}, false},
		"another failure of DNS":   {"GET", "http://host.example/", net.DNSError{IsTemporary: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				base := script.Step(func(req *http.Request) (*http.Response, error) {
					if time.Since(start) < time.Minute {
						return nil, &net.OpError{Op: "dial", Err: &c.lookup}
					}
					return script.Response(req, 200), nil
				})
				policy := names
				policy.RetryUnprocessed = true
				policy.Budget = unused(names)
				req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, strings.NewReader(""))
				require.NoError(t, err)
				resp, err := retryhttp.New(base, policy).RoundTrip(req)
				if !c.found {
					assert.Equal(t, 1, errorOf(t, err).Attempts)
					assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
					return
				}
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.False(t, retryhttp.OutcomeOf(resp).Ambiguous)
				assert.Less(t, time.Since(start), names.MaxElapsed)
			})
		})
	}
}

// Envoy's number makes only what the mesh has retried final.
func TestAnswerThatAMeshHasNotRetriedIsRetried(t *testing.T) {
	for count, attempts := range map[string]int{"": 4, "1": 4, "2": 1, "3": 1, "many": 4} {
		base := script.New(script.Status(503, "X-Envoy-Attempt-Count", count))
		policy := noWait
		policy.Classify = meshHasRetried
		resp, err := retryhttp.New(base, policy).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Len(t, base.Requests(), attempts, "count %q", count)
	}
}
