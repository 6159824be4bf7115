package integrations_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// minio-go takes a RoundTripper. Have the Transport wrap minio's own: it leaves
// objects that are stored with gzip as they are. MaxRetries counts attempts, so 1
// switches its retries off. It signs above the Transport, so MaxElapsed ends the
// retries before the signature does, after 15 minutes; and it hides a body's Seek
// and ReadAt, so MaxBodyBytes must be the size of a part, or large ones are sent
// once: each upload then holds up to four of them. Without a Region it would ask
// for that first.
func Example_minio() {
	server := failing(storeObject, http.StatusServiceUnavailable)
	defer server.Close()

	base, err := minio.DefaultTransport(false) // true for https, as is Secure
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := minio.New(strings.TrimPrefix(server.URL, "http://"), &minio.Options{
		Transport: retryhttp.New(base, retryhttp.Policy{
			MaxElapsed:   10 * time.Minute,
			MaxBodyBytes: 17 << 20, // a part of 16 MiB, which is minio's default, and its signatures
		}),
		MaxRetries: 1,
		Region:     "eu-central-1",
		Creds:      credentials.NewStaticV4("AKID", "SECRET", ""),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	info, err := client.FPutObject(context.Background(), "books", "17", "minio_test.go", minio.PutObjectOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("stored as", info.ETag)
	// Output: stored as 17
}

func storeObject(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"17"`)
	w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
}

func minioClient(t *testing.T, url string, policy retryhttp.Policy) *minio.Client {
	client, err := minio.New(strings.TrimPrefix(url, "http://"), &minio.Options{
		Transport:  retryhttp.New(nil, policy),
		MaxRetries: 1,
		Region:     region,
		Creds:      credentials.NewStaticV4(accessKey, secretKey, ""),
	})
	require.NoError(t, err)
	return client
}

func TestMinioLeavesRetriesToTheTransport(t *testing.T) {
	server := failing(storeObject, 503, 503, 503, 503)
	defer server.Close()

	object, err := minioClient(t, server.URL, threeAttempts()).GetObject(t.Context(), "books", "17", minio.GetObjectOptions{})
	require.NoError(t, err) // it has not asked yet
	defer object.Close()
	_, err = io.ReadAll(object)
	require.Equal(t, http.StatusServiceUnavailable, minio.ToErrorResponse(err).StatusCode)
	requireSigned(t, server.URL, requireRepeats(t, server, 3))
}

// The body that is sent over http holds a signature for each 64 KiB of it, made
// from that of the header. Both are valid again, for they are the same bytes.
func TestMinioRepeatsUploadsThatAreKept(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for attempts, kept := range map[int]int64{1: 0, 3: 2 << 20} {
		server := failing(storeObject, 503, 503)
		defer server.Close()
		policy := threeAttempts()
		policy.MaxBodyBytes = kept

		_, err := minioClient(t, server.URL, policy).
			PutObject(t.Context(), "books", "17", bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{})
		require.Equal(t, attempts == 3, err == nil)
		got := requireRepeats(t, server, attempts)
		require.Equal(t, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", got.Header.Get("X-Amz-Content-Sha256"))
		require.Greater(t, len(got.Body), len(content))
		requireSigned(t, server.URL, got)
	}
}

// Where a connection breaks, minio puts an error of its own in the place of the
// Transport's. OnDone is told all the same.
func TestMinioHidesTheErrorOfABrokenConnection(t *testing.T) {
	server := failing(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	defer server.Close()
	policy := threeAttempts()
	var outcome retryhttp.Outcome
	policy.OnDone = func(_ *http.Request, o retryhttp.Outcome) { outcome = o }

	_, err := minioClient(t, server.URL, policy).StatObject(t.Context(), "books", "17", minio.StatObjectOptions{})
	var failure *retryhttp.Error
	require.Error(t, err)
	require.NotErrorAs(t, err, &failure)
	require.Equal(t, 3, outcome.Attempts)
	require.Equal(t, retryhttp.StopAttempts, outcome.Stop)
}
