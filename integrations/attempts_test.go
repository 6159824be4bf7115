package integrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// threeAttempts is a policy whose number of attempts is none that a client has by
// itself, and that does not wait.
func threeAttempts() retryhttp.Policy {
	return retryhttp.Policy{MaxAttempts: 3, Backoff: retryhttp.Constant(0)}
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
