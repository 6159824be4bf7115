package otelretry_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/otelretry"
)

const (
	busy = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
	fine = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
)

// dial returns a connection to a server that gives an answer to each request. If the answer is
// empty, the server closes the connection.
func dial(answer string) net.Conn {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		requests := bufio.NewReader(server)
		for {
			if _, err := http.ReadRequest(requests); err != nil || answer == "" {
				return
			}
			_, _ = io.WriteString(server, answer)
		}
	}()
	return client
}

// balanced returns an http.Transport whose nth connection gives the nth answer. Further connections
// give the last one.
func balanced(answers ...string) *http.Transport {
	var n atomic.Int32
	return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return dial(answers[min(int(n.Add(1)), len(answers))-1]), nil
	}}
}

// requireDetours requires that the counter of detours of GETs to the shop has a value.
func (tel *telemetry) requireDetours(t *testing.T, want int64) {
	t.Helper()
	m := tel.metric(t, "retryhttp.client.call.detours")
	if want == 0 {
		assert.Nil(t, m.Data)
		return
	}
	assert.Equal(t, "{attempt}", m.Unit)
	assert.Equal(t, []metricdata.DataPoint[int64]{{Attributes: call(t, "GET", shop), Value: want}}, withoutTimes(m))
}

// Wrappers hide from New what they wrap.
type (
	wrappedBase      struct{ *retryhttp.Base }
	wrappedTransport struct{ *http.Transport }
)

func TestARetrysDetourIsInItsSpanAndIsCounted(t *testing.T) {
	asItIs := func(t *http.Transport) http.RoundTripper { return t }
	base := func(t *http.Transport) http.RoundTripper { return retryhttp.NewBase(t) }
	baseBelow := func(t *http.Transport) http.RoundTripper { return wrappedBase{retryhttp.NewBase(t)} }
	transportBelow := func(t *http.Transport) http.RoundTripper { return wrappedTransport{t} }
	for name, tt := range map[string]struct {
		wrap    func(*http.Transport) http.RoundTripper
		answers []string
		detours []bool
	}{
		"a failure":                {asItIs, []string{busy, fine}, []bool{false, true}},
		"no answer":                {asItIs, []string{"", fine}, []bool{false, true}},
		"a detour without answer":  {asItIs, []string{busy, "", fine}, []bool{false, true, true}},
		"a success":                {asItIs, []string{fine}, []bool{false}},
		"a Base":                   {base, []string{busy, fine}, []bool{false, true}},
		"a wrapped Base":           {baseBelow, []string{busy, fine}, []bool{false, true}},
		"a wrapped http.Transport": {transportBelow, []string{busy, fine}, []bool{false, false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := newTelemetry()
				rt := otelretry.New(tt.wrap(balanced(tt.answers...)), persistent(), tel.options()...)
				defer rt.CloseIdleConnections()
				_, err := send(t, t.Context(), rt, "GET", shop)
				require.NoError(t, err)
				assert.Equal(t, tt.detours, with("retryhttp.detour", tel.inOrder()))
				tel.requireDetours(t, took(tt.detours))
			})
		})
	}
}

// persistent retries without waiting, and without a budget.
func persistent() retryhttp.Policy {
	policy := noBudget()
	policy.Backoff = retryhttp.Constant(0)
	return policy
}

func took(detours []bool) (n int64) {
	for _, d := range detours {
		if d {
			n++
		}
	}
	return n
}

func TestAFirstAttemptsDetourIsInItsSpanAndIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		rt := otelretry.New(balanced(busy, fine), persistent(), tel.options()...)
		defer rt.CloseIdleConnections()
		for range 4 {
			_, err := send(t, t.Context(), rt, "GET", shop)
			require.NoError(t, err)
		}
		spans := tel.named("HTTP GET")
		assert.Equal(t, []int64{-1, 1, -1, 1, -1, -1}, resends(spans), "first attempts leave the broken replica")
		detours := []bool{false, true, false, true, true, true}
		assert.Equal(t, detours, with("retryhttp.detour", spans))
		tel.requireDetours(t, took(detours))
	})
}

func TestADetourWithoutASpanIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry()
		filter := otelhttp.WithFilter(func(*http.Request) bool { return false })
		rt := otelretry.New(balanced(busy, fine), persistent(), tel.options(filter)...)
		defer rt.CloseIdleConnections()
		caller := tel.inSpan(t, func(ctx context.Context) {
			_, err := send(t, ctx, rt, "GET", shop)
			require.NoError(t, err)
		})
		assert.Empty(t, caller.Attributes, "the caller's span is left alone")
		tel.requireDetours(t, 1)
	})
}
