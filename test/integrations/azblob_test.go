package integrations_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/appendblob"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func Example_azblob() {
	server := failing(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201) }, http.StatusServiceUnavailable)
	defer server.Close()

	client, err := azblob.NewClientWithNoCredential(server.URL, azureOptions(azurePolicy))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := client.UploadBuffer(context.Background(), "books", "17", []byte("all of it"), nil); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("stored")
	// Output: stored
}

// azureOptions is for the clients of all credentials. A MaxRetries below 0 switches the
// client's own retries off; 0 would mean 3.
func azureOptions(p retryhttp.Policy) *azblob.ClientOptions {
	return &azblob.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: retryhttp.New(nil, p)},
		Retry:     policy.RetryOptions{MaxRetries: -1},
	}}
}

var azurePolicy = retryhttp.Policy{Idempotent: appendsOnce}

// appendsOnce reports whether a request may be repeated. A PUT that appends takes effect
// twice, unless it names the position.
func appendsOnce(req *http.Request) bool {
	appends := strings.HasPrefix(req.URL.Query().Get("comp"), "appendblock")
	return retryhttp.Idempotent(req) && (!appends || namesPosition(req.Header))
}

// namesPosition reads a header as the client spells it, which is not canonical.
func namesPosition(h http.Header) bool {
	for name := range h {
		if strings.EqualFold(name, "X-Ms-Blob-Condition-Appendpos") {
			return true
		}
	}
	return false
}

func azureClient(t *testing.T, url string, p retryhttp.Policy) *azblob.Client {
	client, err := azblob.NewClientWithNoCredential(url, azureOptions(threeAttempts(p)))
	require.NoError(t, err)
	return client
}

func TestAzureLeavesRetriesToTheTransport(t *testing.T) {
	server := failing(http.NotFound, 503, 503, 503, 503)
	client := azureClient(t, server.URL, azurePolicy)

	_, err := client.UploadStream(t.Context(), "books", "17", strings.NewReader("all of it"), nil)
	var answer *azcore.ResponseError
	require.ErrorAs(t, err, &answer)
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.Equal(t, "all of it", string(requireRepeats(t, server, 3).Body))
	require.Equal(t, 3, retryhttp.OutcomeOf(answer.RawResponse).Attempts)

	server.Close()
	_, err = client.DownloadStream(t.Context(), "books", "17", nil)
	var failure *retryhttp.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 3, failure.Attempts)
}

// The client's bodies have Seek, so no body is too large.
func TestAzureRepeatsLargeUploads(t *testing.T) {
	server := failing(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201) }, 503, 503)
	defer server.Close()

	_, err := azureClient(t, server.URL, azurePolicy).UploadBuffer(t.Context(), "books", "17", blob, nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(blob, requireRepeats(t, server, 3).Body))
}

func TestAzureAppendsOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		options  *appendblob.AppendBlockOptions
		attempts int
	}{
		"anywhere":      {nil, 1},
		"at a position": {&appendblob.AppendBlockOptions{AppendPositionAccessConditions: atStart()}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			server := failing(answerOK, 503, 503, 503)
			defer server.Close()
			client, err := appendblob.NewClientWithNoCredential(server.URL+"/books/17",
				(*appendblob.ClientOptions)(azureOptions(threeAttempts(azurePolicy))))
			require.NoError(t, err)

			_, err = client.AppendBlock(t.Context(), readSeekNopCloser{strings.NewReader("more")}, tt.options)
			require.Error(t, err)
			require.Equal(t, "more", string(requireRepeats(t, server, tt.attempts).Body))
		})
	}
	seal := httptest.NewRequest(http.MethodPut, "/books/17?comp=seal", nil)
	require.True(t, appendsOnce(seal))
	require.False(t, appendsOnce(httptest.NewRequest(http.MethodPost, "/books?comp=batch", nil)))
}

func atStart() *appendblob.AppendPositionAccessConditions {
	return &appendblob.AppendPositionAccessConditions{AppendPosition: new(int64)}
}

// readSeekNopCloser is a body with the methods that the client needs.
type readSeekNopCloser struct{ io.ReadSeeker }

func (readSeekNopCloser) Close() error { return nil }
