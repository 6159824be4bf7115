package migrating_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// orError returns an error in the place of a response that no retry has bettered.
type orError struct{ retrying http.RoundTripper }

func (o orError) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.retrying.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	outcome := retryhttp.OutcomeOf(resp)
	if outcome.Stop == retryhttp.StopFinal {
		return resp, nil
	}
	resp.Body.Close()
	return nil, fmt.Errorf("%s after %d attempts: %s", resp.Status, outcome.Attempts, outcome.Stop)
}

func TestResponseThatNoRetryHasBetteredAsAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/well":
		case "/gone":
			w.WriteHeader(http.StatusNotFound)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	policy := retryhttp.Policy{MaxAttempts: 3, Backoff: retryhttp.Constant(time.Millisecond)}

	client := &http.Client{Transport: orError{retryhttp.New(nil, policy)}}

	for path, status := range map[string]int{"/well": 200, "/gone": 404} {
		resp, err := client.Get(server.URL + path)
		require.NoError(t, err)
		assert.Equal(t, status, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	_, err := client.Get(server.URL + "/down")
	assert.ErrorContains(t, err, "503 Service Unavailable after 3 attempts: attempts")
}
