package integrations_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/regclient/regclient"
	"github.com/regclient/regclient/config"
	"github.com/regclient/regclient/scheme/reg"
	"github.com/regclient/regclient/types/descriptor"
	"github.com/regclient/regclient/types/ref"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func Example_regclient() {
	server := failing(breakingOff(1000), http.StatusServiceUnavailable)
	defer server.Close()

	host := strings.TrimPrefix(server.URL, "http://")
	client := newRegclient(host, retryhttp.Policy{Resume: true})
	repository, err := ref.New(host + "/books")
	if err != nil {
		fmt.Println(err)
		return
	}
	layer, err := client.BlobGet(context.Background(), repository, blobDescriptor())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer layer.Close()
	content, err := io.ReadAll(layer) // verifies the digest
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(content))
	// Output: 307200
}

// newRegclient gives regclient an http.Client. A WithRetryLimit of 1 switches its own
// retries off; 0 would mean 5. The Host is needed only for a registry without https.
func newRegclient(host string, policy retryhttp.Policy, own ...reg.Opts) *regclient.RegClient {
	return regclient.New(
		regclient.WithConfigHost(config.Host{Name: host, Hostname: host, TLS: config.TLSDisabled}),
		regclient.WithRegOpts(append([]reg.Opts{
			reg.WithHTTPClient(&http.Client{Transport: retryhttp.New(nil, policy)}),
			reg.WithRetryLimit(1),
		}, own...)...),
	)
}

func blobDescriptor() descriptor.Descriptor {
	return descriptor.Descriptor{Size: int64(len(blob)), Digest: digest.FromBytes(blob)}
}

// layerOf downloads blob, and checks its digest.
func layerOf(t *testing.T, server *server, policy retryhttp.Policy, own ...reg.Opts) ([]byte, error) {
	host := strings.TrimPrefix(server.URL, "http://")
	repository, err := ref.New(host + "/books")
	require.NoError(t, err)
	layer, err := newRegclient(host, threeAttempts(policy), own...).BlobGet(t.Context(), repository, blobDescriptor())
	if err != nil {
		return nil, err
	}
	defer layer.Close()
	return io.ReadAll(layer)
}

func TestRegclientLeavesRetriesToTheTransport(t *testing.T) {
	server := failing(http.NotFound, 503, 503, 503, 503)
	_, err := layerOf(t, server, retryhttp.Policy{})
	require.Error(t, err)
	requireRepeats(t, server, 3)

	server.Close()
	_, err = layerOf(t, server, retryhttp.Policy{})
	var failure *retryhttp.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 3, failure.Attempts)
}

// regclient asks again if a body ends with io.ErrUnexpectedEOF itself. The error of a Transport
// that has given up wraps it, so regclient does not ask again, and nothing multiplies.
func TestRegclientDownloadsAreResumedByOneLayer(t *testing.T) {
	retries := []reg.Opts{reg.WithRetryLimit(4), reg.WithDelay(time.Nanosecond, time.Nanosecond)}
	own := func(offset int) string { return fmt.Sprintf("client bytes=%d-%d", offset, len(blob)) } // one too many
	for name, tt := range map[string]struct {
		policy retryhttp.Policy
		cuts   []int
		parts  []string
		fails  bool
	}{
		"regclient": {
			cuts:  []int{100, 200},
			parts: []string{"client ", own(100), own(300)},
		},
		"the Transport": {
			policy: resuming, cuts: []int{100, 200},
			parts: []string{"client ", to("Transport", 100), to("Transport", 300)},
		},
		"neither, in the end": {
			policy: resuming, cuts: []int{100, 200, 300}, fails: true,
			parts: []string{"client ", to("Transport", 100), to("Transport", 300)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := failing(breakingOff(tt.cuts...))
			defer server.Close()

			got, err := layerOf(t, server, tt.policy, retries...)
			require.Equal(t, tt.parts, parts(server))
			if tt.fails {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				var failure *retryhttp.Error
				require.ErrorAs(t, err, &failure)
				require.Equal(t, blob[:600], got)
				return
			}
			require.NoError(t, err)
			require.Equal(t, blob, got)
		})
	}
}
