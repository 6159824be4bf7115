package otelretry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

func TestThePolicysOwnOnDoneIsCalled(t *testing.T) {
	tel := newTelemetry()
	policy := atOnce
	var outcomes []retryhttp.Outcome
	policy.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) {
		assert.NotEmpty(t, tel.metric(t, "retryhttp.client.call.attempts").Data, "recorded before")
		outcomes = append(outcomes, o)
	}
	url, _ := answering(t, 503, 200)
	_, err := send(t, t.Context(), otelretry.New(nil, policy, tel.options()...), "GET", url)
	require.NoError(t, err)
	require.Len(t, outcomes, 1)
	assert.Equal(t, 2, outcomes[0].Attempts)
}

// An edit may use the hooks that it finds for requests of its own.
func TestHooksRecordTheRequestsOfAnotherTransport(t *testing.T) {
	tel := newTelemetry()
	other := atOnce
	ctx := retryhttp.WithPolicy(t.Context(), func(p *retryhttp.Policy) { other.OnRetry, other.OnDone = p.OnRetry, p.OnDone })
	_, err := send(t, ctx, otelretry.New(playing(200), atOnce, tel.options()...), "GET", shop)
	require.NoError(t, err)
	_, err = send(t, t.Context(), retryhttp.New(playing(503, 200), other), "GET", shop)
	require.NoError(t, err)
	stops := withoutTimes(tel.metric(t, "retryhttp.client.call.stops"))
	require.Len(t, stops, 1)
	assert.EqualValues(t, 2, stops[0].Value)
}

func TestTheRequestIsNotChanged(t *testing.T) {
	for name, statuses := range map[string][]int{"at once": {200}, "retried": {503, 200}, "a redirect": {304}} {
		t.Run(name, func(t *testing.T) {
			url, _ := answering(t, statuses...)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			require.NoError(t, err)
			before := *req
			resp, err := otelretry.New(nil, atOnce, newTelemetry().options()...).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, before, *req)
			assert.Empty(t, req.Header)
			assert.Equal(t, req.URL, resp.Request.URL)
			assert.Equal(t, len(statuses), retryhttp.OutcomeOf(resp).Attempts)
		})
	}
}

func TestABodyIsSentWholeOnEachAttempt(t *testing.T) {
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		bodies = append(bodies, string(body))
		if len(bodies) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	for _, body := range []io.Reader{strings.NewReader("upload"), io.MultiReader(strings.NewReader("upload"))} {
		bodies = nil
		req, err := http.NewRequest(http.MethodPut, server.URL, body)
		require.NoError(t, err)
		resp, err := otelretry.New(nil, atOnce, newTelemetry().options()...).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, []string{"upload", "upload"}, bodies)
	}
}

func TestARequestWithoutAURLIsAnError(t *testing.T) {
	req := &http.Request{Method: http.MethodGet}
	_, err := otelretry.New(nil, atOnce, newTelemetry().options()...).RoundTrip(req) //nolint:bodyclose // there is none
	assert.Error(t, err)
}

type closer struct {
	http.RoundTripper
	closed int
}

func (c *closer) CloseIdleConnections() { c.closed++ }

func TestIdleConnectionsAreClosed(t *testing.T) {
	base := &closer{RoundTripper: http.DefaultTransport}
	client := &http.Client{Transport: otelretry.New(base, atOnce)}
	client.CloseIdleConnections()
	assert.Equal(t, 1, base.closed)
	(&http.Client{Transport: otelretry.New(roundTripperFunc(nil), atOnce)}).CloseIdleConnections() // one that has none
	(*otelretry.Transport)(nil).CloseIdleConnections()
}
