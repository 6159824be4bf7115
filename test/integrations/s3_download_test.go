package integrations_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// verified refuses a request whose signature does not match.
func verified(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		got := request{Method: r.Method, URI: r.URL.RequestURI(), Header: r.Header}
		if want, err := signedAnew("http://"+r.Host, got); err != nil || want != signature(r.Header.Get("Authorization")) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		answer(w, r)
	}
}

// download reads blob, or a range of it if within is not "".
type download func(t *testing.T, url string, policy retryhttp.Policy, within string) ([]byte, error)

// downloads are by clients that sign above the Transport, and resume nothing themselves.
var downloads = map[string]download{
	"aws-sdk-go-v2": func(t *testing.T, url string, policy retryhttp.Policy, within string) ([]byte, error) {
		input := *s3Get
		if within != "" {
			input.Range = &within
		}
		object, err := newS3(s3Config(url), nil, policy).GetObject(t.Context(), &input)
		require.NoError(t, err)
		defer object.Body.Close()
		return io.ReadAll(object.Body)
	},
	"minio-go": func(t *testing.T, url string, policy retryhttp.Policy, within string) ([]byte, error) {
		var options minio.GetObjectOptions
		if within != "" {
			options.Set("Range", within)
		}
		object, err := minioClient(t, url, policy).GetObject(t.Context(), "books", "17", options)
		require.NoError(t, err)
		defer object.Close()
		return io.ReadAll(object)
	},
}

// A signature covers host, the headers that begin with x-amz-, and all other headers that it
// lists. A resumption adds other headers.
func TestS3DownloadsAreResumedUnderTheFirstSignature(t *testing.T) {
	for name, get := range downloads {
		t.Run(name, func(t *testing.T) {
			server := failing(verified(s3Object(breakingOff(100, 200))))
			defer server.Close()
			got, err := get(t, server.URL, threeAttempts(resuming), "")
			require.NoError(t, err)
			require.Equal(t, blob, got)
			require.Equal(t, []string{"client ", to("Transport", 100), to("Transport", 300)}, parts(server))
		})
		t.Run(name+" without Resume", func(t *testing.T) {
			server := failing(verified(s3Object(breakingOff(100))))
			defer server.Close()
			_, err := get(t, server.URL, threeAttempts(retryhttp.Policy{}), "")
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Len(t, server.got(), 1)
		})
	}
}

func s3Object(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// minio asks for it. A file that has just changed is not resumed.
		w.Header().Set("Last-Modified", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		answer(w, r)
	}
}

// The signature covers a Range that the client has set. So the server refuses the resumption, and
// the caller gets the error with which the body broke off.
func TestS3RefusesToResumeARangeThatIsSignedAbove(t *testing.T) {
	for name, get := range downloads {
		t.Run(name, func(t *testing.T) {
			server := failing(verified(s3Object(breakingOff(100))))
			defer server.Close()
			got, err := get(t, server.URL, threeAttempts(resuming), "bytes=1000-1999")
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Equal(t, blob[1000:1100], got)
			require.Equal(t, []string{"client bytes=1000-1999", "Transport bytes=1100-1999"}, parts(server))
		})
	}
}

// signedBelow signs each attempt, and so signs the headers that a resumption adds.
type signedBelow struct{ base http.RoundTripper }

func (s signedBelow) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	keys := aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey}
	err := v4.NewSigner().SignHTTP(req.Context(), keys, req, "UNSIGNED-PAYLOAD", "s3", region, time.Now())
	if err != nil {
		return nil, err
	}
	return s.base.RoundTrip(req)
}

func TestS3ResumesARangeThatIsSignedBelow(t *testing.T) {
	server := failing(verified(breakingOff(100, 200)))
	defer server.Close()
	client := &http.Client{Transport: retryhttp.New(signedBelow{http.DefaultTransport}, threeAttempts(resuming))}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/books/17", nil)
	require.NoError(t, err)
	req.Header.Set("Range", "bytes=1000-1999")

	resp, err := client.Do(req)
	require.NoError(t, err)
	require.Equal(t, string(blob[1000:2000]), bodyOf(t, resp))
	require.Equal(t,
		[]string{"client bytes=1000-1999", "Transport bytes=1100-1999", "Transport bytes=1300-1999"}, parts(server))
	for _, r := range server.got() {
		require.Contains(t, r.Header.Get("Authorization"), ";range;")
	}
}

// Nothing else ends a Read of a body that nobody sends any more.
func TestS3DownloadThatStallsIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := breakingOff()
		first := true
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				w = &stalling{breaking{w, 100}, r}
			}
			whole(w, r)
		}))
		defer stop()
		start := time.Now()
		object, err := newS3(s3Config("http://host.example"), base, threeAttempts(resuming)).GetObject(t.Context(), s3Get)
		require.NoError(t, err)
		defer object.Body.Close()
		got, err := io.ReadAll(object.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(blob, got))
		require.Equal(t, resuming.StallTimeout, time.Since(start))
	})
}

// stalling sends nothing more, and waits for its client to go. breaking ends the connection at
// this point.
type stalling struct {
	breaking
	r *http.Request
}

func (w *stalling) Write(p []byte) (n int, err error) {
	defer func() {
		if gone := recover(); gone != nil {
			<-w.r.Context().Done()
			panic(gone)
		}
	}()
	return w.breaking.Write(p)
}
