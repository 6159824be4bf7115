package integrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// threeAttempts returns policy with three attempts, a number that no client makes by itself, and
// without waits.
func threeAttempts(policy retryhttp.Policy) retryhttp.Policy {
	policy.MaxAttempts, policy.Backoff = 3, retryhttp.Constant(0)
	return policy
}

// requireRepeats requires that s got one request n times: the same method, URL, header and body.
// It returns the request.
func requireRepeats(t *testing.T, s *server, n int) request {
	t.Helper()
	got := s.got()
	require.Len(t, got, n)
	for _, r := range got {
		require.Equal(t, got[0], r)
	}
	return got[0]
}
