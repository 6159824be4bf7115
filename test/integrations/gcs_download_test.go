package integrations_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func gcsDownload(ctx context.Context, t *testing.T, url string, policy retryhttp.Policy) ([]byte, error) {
	r, err := gcsObject(t, nil, url, policy).NewReader(ctx)
	require.NoError(t, err)
	defer r.Close()
	return io.ReadAll(r)
}

// The client's reader asks again at every error of a body. With Resume it sees no error until the
// Transport has given up.
func TestGCSDownloadsAreResumedByOneLayer(t *testing.T) {
	for name, tt := range map[string]struct {
		policy retryhttp.Policy
		cuts   []int
		parts  []string
	}{
		"the client": {
			retryhttp.Policy{}, []int{100, 200, 300},
			[]string{"client ", from("client", 100), from("client", 300), from("client", 600)},
		},
		"the Transport": {
			resuming, []int{100, 200},
			[]string{"client ", to("Transport", 100), to("Transport", 300)},
		},
		"the client, after the Transport": {
			resuming, []int{100, 200, 300},
			[]string{"client ", to("Transport", 100), to("Transport", 300), from("client", 600)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := failing(breakingOff(tt.cuts...))
			defer server.Close()

			got, err := gcsDownload(t.Context(), t, server.URL, threeAttempts(tt.policy))
			require.NoError(t, err)
			require.Equal(t, blob, got)
			require.Equal(t, tt.parts, parts(server))
		})
	}
}

// The client's reader counts nothing. It asks for as long as answers begin, with Resume or
// without.
func TestGCSDownloadEndsWithItsContext(t *testing.T) {
	for name, policy := range map[string]retryhttp.Policy{"with Resume": resuming, "without": {}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var server *server
			empty := breakingOff(make([]int, 1<<10)...)
			server = failing(func(w http.ResponseWriter, r *http.Request) {
				if len(server.got()) == 40 {
					cancel()
				}
				empty(w, r)
			})
			defer server.Close()

			_, err := gcsDownload(ctx, t, server.URL, threeAttempts(policy))
			require.ErrorIs(t, err, context.Canceled)
			require.Len(t, server.got(), 40)
		})
	}
}
