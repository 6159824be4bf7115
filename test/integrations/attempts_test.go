package integrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// threeAttempts returns policy with a number of attempts that is none that a client
// makes by itself, and without waits between them.
func threeAttempts(policy retryhttp.Policy) retryhttp.Policy {
	policy.MaxAttempts, policy.Backoff = 3, retryhttp.Constant(0)
	return policy
}

// requireRepeats demands that s got one request n times: the same method, URL,
// header and body. It returns it.
func requireRepeats(t *testing.T, s *server, n int) request {
	t.Helper()
	got := s.got()
	require.Len(t, got, n)
	for _, r := range got {
		require.Equal(t, got[0], r)
	}
	return got[0]
}
