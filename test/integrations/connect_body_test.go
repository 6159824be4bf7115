package integrations_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/retryhttp/retryhttp"
)

// Each body that connect's GetBody returns is the same reader, rewound. A server
// answers before it has read the request, and the second attempt is whole.
func TestConnectBodyIsSentWholeAfterAnEarlyAnswer(t *testing.T) {
	var calls atomic.Int32
	handler := sayHandler(nil)
	server := httptest.NewServer(answeringEarly(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		handler(w, r)
	}))
	defer server.Close()

	policy := retryhttp.Policy{
		MaxAttempts: 2,
		Backoff:     retryhttp.Constant(0),
		Idempotent:  func(*http.Request) bool { return true },
	}
	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](
		&http.Client{Transport: retryhttp.New(nil, policy)},
		server.URL+sayProcedure,
		connect.WithAcceptCompression("gzip", nil, nil), // gzip takes long
	)
	large := strings.Repeat("0123456789abcdef", 1<<19)
	resp, err := client.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String(large)))
	require.NoError(t, err)
	assert.True(t, large == resp.Msg.GetValue())
	assert.EqualValues(t, 1, calls.Load())
}
