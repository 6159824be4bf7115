package integrations_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// azureDownload reads blob, or its range, with the client's RetryReader.
func azureDownload(t *testing.T, client *azblob.Client, within azblob.HTTPRange) ([]byte, error) {
	resp, err := client.DownloadStream(t.Context(), "books", "17", &azblob.DownloadStreamOptions{Range: within})
	require.NoError(t, err)
	body := resp.NewRetryReader(t.Context(), nil)
	defer body.Close()
	return io.ReadAll(body)
}

// azureServer heeds X-Ms-Range, which takes precedence over Range.
func azureServer(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if asked := r.Header.Get("X-Ms-Range"); asked != "" {
			r.Header.Set("Range", asked)
		}
		answer(w, r)
	}
}

// The RetryReader asks again at every error of a body, up to three times for each Read, in a
// header of Azure's own. The Transport does not know that header, and leaves the answers to the
// RetryReader: the two do not multiply.
func TestAzureDownloadsAreResumedByOneLayer(t *testing.T) {
	nothing := []int{100, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for name, tt := range map[string]struct {
		policy retryhttp.Policy
		within azblob.HTTPRange
		cuts   []int
		fails  bool
		parts  []string
	}{
		"the client": {
			cuts:  []int{100, 200},
			parts: []string{"client ", from("client", 100), from("client", 300)},
		},
		"the Transport": {
			policy: resuming, cuts: []int{100, 200},
			parts: []string{"client ", to("Transport", 100), to("Transport", 300)},
		},
		"the client, after the Transport": {
			policy: resuming, cuts: []int{100, 200, 300},
			parts: []string{"client ", to("Transport", 100), to("Transport", 300), from("client", 600)},
		},
		"the client, in a range": {
			policy: resuming, cuts: []int{100, 200}, within: azblob.HTTPRange{Offset: 1000, Count: 1000},
			parts: []string{"client bytes=1000-1999", "client bytes=1100-1999", "client bytes=1300-1999"},
		},
		"neither, in the end": {
			policy: resuming, cuts: nothing, fails: true,
			parts: append([]string{"client ", to("Transport", 100), to("Transport", 100)},
				slices.Repeat([]string{from("client", 100)}, 3)...),
		},
		"not the client, in the end": {
			cuts: nothing, fails: true,
			parts: append([]string{"client "}, slices.Repeat([]string{from("client", 100)}, 3)...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := failing(azureServer(breakingOff(tt.cuts...)))
			defer server.Close()

			got, err := azureDownload(t, azureClient(t, server.URL, tt.policy), tt.within)
			require.Equal(t, tt.parts, parts(server))
			if tt.fails {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.Equal(t, blob[:100], got)
				return
			}
			require.NoError(t, err)
			if tt.within.Count > 0 {
				require.Equal(t, blob[1000:2000], got)
			} else {
				require.Equal(t, blob, got)
			}
		})
	}
}

// A shared key signs Range and If-Match, above the Transport, so the server refuses a resumption.
// The RetryReader asks by itself. Without it, the caller gets the error of the break.
func TestAzureSharedKeyRefusesResumptions(t *testing.T) {
	key := []byte("secret")
	for _, retries := range []bool{true, false} {
		answer := azureServer(breakingOff(100))
		server := failing(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "SharedKey books:"+sharedKeySignature(key, "books", r) {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			answer(w, r)
		})
		defer server.Close()
		credential, err := azblob.NewSharedKeyCredential("books", base64.StdEncoding.EncodeToString(key))
		require.NoError(t, err)
		client, err := azblob.NewClientWithSharedKeyCredential(server.URL, credential, azureOptions(threeAttempts(resuming)))
		require.NoError(t, err)

		if retries {
			got, err := azureDownload(t, client, azblob.HTTPRange{})
			require.NoError(t, err)
			require.Equal(t, blob, got)
			require.Equal(t, []string{"client ", to("Transport", 100), from("client", 100)}, parts(server))
			continue
		}
		resp, err := client.DownloadStream(t.Context(), "books", "17", nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorContains(t, err, "403")
		require.Equal(t, blob[:100], got)
		require.Equal(t, []string{"client ", to("Transport", 100)}, parts(server))
	}
}

// sharedKeySignature signs a GET as Azure's storage does.
func sharedKeySignature(key []byte, account string, r *http.Request) string {
	h := r.Header
	lines := []string{r.Method}
	for _, name := range []string{
		"Content-Encoding", "Content-Language", "Content-Length", "Content-Md5", "Content-Type", "Date",
		"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
	} {
		lines = append(lines, h.Get(name))
	}
	var own []string
	for name := range h {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			own = append(own, name+":"+h.Get(name))
		}
	}
	slices.Sort(own)
	lines = append(append(lines, own...), "/"+account+r.URL.Path)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strings.Join(lines, "\n")))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
