package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cloud.google.com/go/storage"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/retryhttp/retryhttp"
)

// The storage client takes an http.Client. WithErrorFunc leaves all retries to it;
// RetryNever does not: chunks of an upload would still be resent, and uploads would
// lose their idempotency token. With an http.Client of your own, the client adds no
// credentials: give New a base that does, made by NewTransport of
// google.golang.org/api/transport/http.
func Example_gcs() {
	server := failing(bucket, http.StatusServiceUnavailable)
	defer server.Close()

	ctx := context.Background()
	transport := retryhttp.New(nil, retryhttp.Policy{Idempotent: takesEffectOnce})
	client, err := storage.NewClient(ctx,
		option.WithHTTPClient(&http.Client{Transport: transport}),
		option.WithoutAuthentication(),                 // as the server here needs none
		option.WithEndpoint(server.URL+"/storage/v1/"), // leave it out for Google's
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	client.SetRetry(
		storage.WithPolicy(storage.RetryAlways),
		storage.WithErrorFunc(func(error) bool { return false }),
	)

	object := client.Bucket("books").Object("17").If(storage.Conditions{DoesNotExist: true})
	w := object.NewWriter(ctx)
	if _, err := io.WriteString(w, "all of it"); err != nil {
		fmt.Println(err)
		return
	}
	if err := w.Close(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("stored", w.Attrs().Name)
	// Output: stored 17
}

// takesEffectOnce reports whether a request may be repeated, knowing also those that
// take effect once: a chunk at its place in an upload; a PATCH of a metageneration,
// which it ends; and what writes an object over a generation, which it ends. The
// other way round neither does.
func takesEffectOnce(req *http.Request) bool {
	query := req.URL.Query()
	switch {
	case query.Has("upload_id") && req.Header.Get("Content-Range") != "":
		return true
	case req.Method == http.MethodPatch:
		return query.Has("ifMetagenerationMatch")
	}
	return query.Has("ifGenerationMatch") || retryhttp.Idempotent(req)
}

// bucket stores nothing, and says that it has: a chunk, if there are to be more, and
// else the object.
func bucket(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("uploadType") == "resumable" && r.Header.Get("Content-Range") == "" {
		w.Header().Set("Location", "http://"+r.Host+r.URL.RequestURI()+"&upload_id=1")
		return
	}
	if strings.HasSuffix(r.Header.Get("Content-Range"), "/*") {
		w.Header().Set("X-Http-Status-Code-Override", "308")
		return
	}
	io.WriteString(w, `{"name": "17"}`)
}

func gcsObject(t *testing.T, url string, own ...storage.RetryOption) *storage.ObjectHandle {
	policy := threeAttempts()
	policy.Idempotent = takesEffectOnce
	client, err := storage.NewClient(t.Context(),
		option.WithHTTPClient(&http.Client{Transport: retryhttp.New(nil, policy)}),
		option.WithoutAuthentication(),
		option.WithEndpoint(url+"/storage/v1/"),
	)
	require.NoError(t, err)
	client.SetRetry(own...)
	return client.Bucket("books").Object("17")
}

// ownOff switches the client's own retries off.
func ownOff() []storage.RetryOption {
	return []storage.RetryOption{
		storage.WithPolicy(storage.RetryAlways), storage.WithErrorFunc(func(error) bool { return false }),
	}
}

func TestGCSLeavesRetriesToTheTransport(t *testing.T) {
	server := failing(bucket, 503, 503, 503, 503)
	defer server.Close()
	object := gcsObject(t, server.URL, ownOff()...)

	_, err := object.NewReader(t.Context())
	var answer *googleapi.Error
	require.ErrorAs(t, err, &answer)
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	requireRepeats(t, server, 3)

	server.Close()
	_, err = object.NewReader(t.Context())
	var failure *retryhttp.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 3, failure.Attempts)
}

func TestGCSRepeatsUploadsThatHaveAPrecondition(t *testing.T) {
	for _, attempts := range []int{1, 3} {
		server := failing(bucket, 503, 503)
		defer server.Close()
		object := gcsObject(t, server.URL, ownOff()...)
		if attempts > 1 {
			object = object.If(storage.Conditions{DoesNotExist: true})
		}

		w := object.NewWriter(t.Context())
		_, err := io.WriteString(w, "all of it")
		require.NoError(t, err)
		require.Equal(t, attempts > 1, w.Close() == nil)
		got := requireRepeats(t, server, attempts)
		require.Contains(t, string(got.Body), "all of it")
		require.NotEmpty(t, got.Header.Get("X-Goog-Gcs-Idempotency-Token"))
	}
}

// The first chunk, which is the second request, meets three failures.
func TestGCSRetryNeverStillResendsChunks(t *testing.T) {
	upload := func(own ...storage.RetryOption) (*server, error) {
		var s *server
		s = failing(func(w http.ResponseWriter, r *http.Request) {
			if n := len(s.got()); n >= 2 && n <= 4 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			bucket(w, r)
		})
		defer s.Close()
		w := gcsObject(t, s.URL, own...).NewWriter(t.Context())
		w.ChunkSize = googleapi.MinUploadChunkSize
		_, err := w.Write(make([]byte, googleapi.MinUploadChunkSize+1))
		return s, errors.Join(err, w.Close())
	}

	off, err := upload(ownOff()...)
	var answer *googleapi.Error
	require.ErrorAs(t, err, &answer)
	require.Len(t, off.got(), 4) // the first opened the upload

	never, err := upload(storage.WithPolicy(storage.RetryNever))
	require.NoError(t, err)
	require.Contains(t, never.got()[4].Header.Get("X-Goog-Api-Client"), "gccl-attempt-count/2")
	require.Equal(t, off.got()[1].Body, never.got()[4].Body)
}

func TestGCSKnowsWhatTakesEffectOnce(t *testing.T) {
	for _, c := range []struct {
		method, uri string
		once        bool
	}{
		{"POST", "/upload/storage/v1/b/x/o?uploadType=multipart", false},
		{"POST", "/upload/storage/v1/b/x/o?uploadType=multipart&ifGenerationMatch=0", true},
		{"POST", "/upload/storage/v1/b/x/o?uploadType=multipart&ifMetagenerationMatch=1", false},
		{"POST", "/storage/v1/b/x/o/17/rewriteTo/b/y/o/z?ifMetagenerationMatch=1", false},
		{"POST", "/storage/v1/b/x/o/17/rewriteTo/b/y/o/z?ifGenerationMatch=5", true},
		{"PATCH", "/storage/v1/b/x/o/17?ifGenerationMatch=5", false},
		{"PATCH", "/storage/v1/b/x/o/17?ifMetagenerationMatch=5", true},
		{"GET", "/storage/v1/b/x/o/17", true},
	} {
		require.Equal(t, c.once, takesEffectOnce(httptest.NewRequest(c.method, c.uri, nil)), "%v", c)
	}
}
