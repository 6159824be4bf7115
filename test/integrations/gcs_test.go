package integrations_test

import (
	"context"
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

func Example_gcs() {
	server := failing(bucket, http.StatusServiceUnavailable)
	defer server.Close()

	ctx := context.Background()
	client, err := newGCS(ctx, nil, server.URL, gcsPolicy)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

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

// newGCS gives the storage client an http.Client. WithErrorFunc leaves all retries to the
// http.Client, unless a Writer has a ChunkTransferTimeout. RetryNever would not be enough: chunks
// of an upload would still be resent, and uploads would lose their idempotency token. If you give
// the client an http.Client, the client adds no credentials. Let base add them: NewTransport(ctx,
// http.DefaultTransport, option.WithScopes(storage.ScopeReadWrite)) of
// google.golang.org/api/transport/http makes such a base.
func newGCS(ctx context.Context, base http.RoundTripper, url string, policy retryhttp.Policy) (*storage.Client, error) {
	client, err := storage.NewClient(ctx,
		option.WithHTTPClient(&http.Client{Transport: retryhttp.New(base, policy)}),
		option.WithoutAuthentication(),          // as the server here needs none; leave it out, too
		option.WithEndpoint(url+"/storage/v1/"), // leave it out for Google's
	)
	if err != nil {
		return nil, err
	}
	client.SetRetry(
		storage.WithPolicy(storage.RetryAlways),
		storage.WithErrorFunc(func(error) bool { return false }),
	)
	return client, nil
}

var gcsPolicy = retryhttp.Policy{Idempotent: takesEffectOnce}

// takesEffectOnce reports whether a request may be repeated. It also knows requests that take
// effect once: a chunk at its place in an upload; a PATCH of a metageneration, which the PATCH
// ends; and a write over a generation, which the write ends. A PATCH does not end a generation,
// and a write does not end a metageneration.
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

// bucket stores nothing. It answers as if it had stored a chunk, if more chunks are to come, and
// otherwise the object.
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

func gcsObject(
	t *testing.T, base http.RoundTripper, url string, policy retryhttp.Policy, own ...storage.RetryOption,
) *storage.ObjectHandle {
	client, err := newGCS(t.Context(), base, url, policy)
	require.NoError(t, err)
	client.SetRetry(own...) // on top of the Example's
	return client.Bucket("books").Object("17")
}

func TestGCSLeavesRetriesToTheTransport(t *testing.T) {
	server := failing(bucket, 503, 503, 503, 503)
	defer server.Close()
	object := gcsObject(t, nil, server.URL, threeAttempts(gcsPolicy))

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

func TestGCSKnowsWhatTakesEffectOnce(t *testing.T) {
	for _, c := range []struct {
		method, uri, contentRange string
		once                      bool
	}{
		{"POST", "/upload/storage/v1/b/x/o?uploadType=multipart", "", false},
		{"POST", "/upload/storage/v1/b/x/o?uploadType=multipart&ifGenerationMatch=0", "", true},
		{"POST", "/upload/storage/v1/b/x/o?uploadType=multipart&ifMetagenerationMatch=1", "", false},
		{"POST", "/upload/storage/v1/b/x/o?uploadType=resumable&upload_id=1", "bytes 0-16/17", true},
		{"POST", "/upload/storage/v1/b/x/o?uploadType=resumable&upload_id=1", "", false},
		{"POST", "/upload/storage/v1/b/x/o?uploadType=resumable", "bytes 0-16/17", false},
		{"POST", "/storage/v1/b/x/o/17/rewriteTo/b/y/o/z?ifMetagenerationMatch=1", "", false},
		{"POST", "/storage/v1/b/x/o/17/rewriteTo/b/y/o/z?ifGenerationMatch=5", "", true},
		{"PATCH", "/storage/v1/b/x/o/17?ifGenerationMatch=5", "", false},
		{"PATCH", "/storage/v1/b/x/o/17?ifMetagenerationMatch=5", "", true},
		{"GET", "/storage/v1/b/x/o/17", "", true},
	} {
		req := httptest.NewRequest(c.method, c.uri, nil)
		if c.contentRange != "" {
			req.Header.Set("Content-Range", c.contentRange)
		}
		require.Equal(t, c.once, takesEffectOnce(req), "%v", c)
	}
}
