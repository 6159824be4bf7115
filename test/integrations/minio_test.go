package integrations_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
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

func Example_minio() {
	server := failing(storeObject, http.StatusServiceUnavailable)
	defer server.Close()

	client, err := newMinio(strings.TrimPrefix(server.URL, "http://"), minioPolicy)
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

// newMinio gives minio-go a RoundTripper that wraps minio's own, which leaves objects that are
// stored with gzip as they are. MaxRetries counts attempts, so 1 switches its retries off. Without
// a Region it would ask for the Region first.
func newMinio(endpoint string, policy retryhttp.Policy) (*minio.Client, error) {
	base, err := minio.DefaultTransport(false) // true for https, as is Secure
	if err != nil {
		return nil, err
	}
	return minio.New(endpoint, &minio.Options{
		Transport:  retryhttp.New(base, policy),
		MaxRetries: 1,
		Region:     "eu-central-1",
		Creds:      credentials.NewStaticV4("AKID", "SECRET", ""),
	})
}

// minio-go signs above the Transport. So MaxElapsed ends the retries before the signature ends,
// after 15 minutes. minio-go also hides a body's Seek and ReadAt. So RecordBytes must be the size
// of a part, or large parts are sent once. Each upload then holds up to four of them.
var minioPolicy = retryhttp.Policy{
	MaxElapsed:  10 * time.Minute,
	RecordBytes: 17 << 20, // a part of 16 MiB, which is minio's default, and its signatures
}

func storeObject(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"17"`)
	w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
}

func minioClient(t *testing.T, url string, policy retryhttp.Policy) *minio.Client {
	client, err := newMinio(strings.TrimPrefix(url, "http://"), policy)
	require.NoError(t, err)
	return client
}

func TestMinioLeavesRetriesToTheTransport(t *testing.T) {
	server := failing(storeObject, 503, 503, 503, 503)
	defer server.Close()

	client := minioClient(t, server.URL, threeAttempts(minioPolicy))
	object, err := client.GetObject(t.Context(), "books", "17", minio.GetObjectOptions{})
	require.NoError(t, err) // no request was sent yet
	defer object.Close()
	_, err = io.ReadAll(object)
	require.Equal(t, http.StatusServiceUnavailable, minio.ToErrorResponse(err).StatusCode)
	requireSigned(t, server.URL, requireRepeats(t, server, 3))
}

// If a connection breaks, minio replaces the Transport's error with its own. OnDone is called all
// the same.
func TestMinioHidesTheErrorOfABrokenConnection(t *testing.T) {
	server := failing(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	defer server.Close()
	policy := threeAttempts(minioPolicy)
	var outcome retryhttp.Outcome
	policy.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) { outcome = o }

	_, err := minioClient(t, server.URL, policy).StatObject(t.Context(), "books", "17", minio.StatObjectOptions{})
	var failure *retryhttp.Error
	require.Error(t, err)
	require.NotErrorAs(t, err, &failure)
	require.Equal(t, 3, outcome.Attempts)
	require.Equal(t, retryhttp.StopAttempts, outcome.Stop)
}

// The Transport does not begin a wait that would outlast the signature.
func TestMinioEndsItsRetriesBeforeTheSignatureEnds(t *testing.T) {
	server := failing(serviceUnavailable)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	policy := minioPolicy
	policy.Backoff = retryhttp.Constant(15 * time.Minute)
	policy.OnRetry = func(retryhttp.Attempt) { cancel() }
	var outcome retryhttp.Outcome
	policy.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) { outcome = o }

	_, err := minioClient(t, server.URL, policy).StatObject(ctx, "books", "17", minio.StatObjectOptions{})
	require.Error(t, err)
	require.Equal(t, retryhttp.StopDeadline, outcome.Stop)
}

func TestMinioLeavesStoredGzipAsItIs(t *testing.T) {
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, err := io.WriteString(w, "all of it")
	require.NoError(t, errors.Join(err, w.Close()))
	server := failing(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		storeObject(w, r)
		w.Write(compressed.Bytes())
	})
	defer server.Close()

	object, err := minioClient(t, server.URL, minioPolicy).GetObject(t.Context(), "books", "17", minio.GetObjectOptions{})
	require.NoError(t, err)
	defer object.Close()
	got, err := io.ReadAll(object)
	require.NoError(t, err)
	require.Equal(t, compressed.Bytes(), got)
}

// minio's own retries would have seen it.
func TestMinioErrorWithinA200IsNotRetried(t *testing.T) {
	server := failing(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `<Error><Code>InternalError</Code></Error>`)
	})
	defer server.Close()

	from, to := minio.CopySrcOptions{Bucket: "books", Object: "17"}, minio.CopyDestOptions{Bucket: "books", Object: "18"}
	_, err := minioClient(t, server.URL, threeAttempts(minioPolicy)).CopyObject(t.Context(), to, from)
	require.Equal(t, minio.InternalError, minio.ToErrorResponse(err).Code)
	requireRepeats(t, server, 1)
}
