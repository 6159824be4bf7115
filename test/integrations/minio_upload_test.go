package integrations_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"
)

// The body that is sent over http holds a signature for each 64 KiB, made from the signature of
// the header. Both are valid again, because they are the same bytes.
func TestMinioRepeatsUploadsThatAreKept(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for attempts, kept := range map[int]int64{1: 0, 3: minioPolicy.RecordBytes} {
		server := failing(storeObject, 503, 503)
		defer server.Close()
		policy := threeAttempts(minioPolicy)
		policy.RecordBytes = kept

		_, err := minioClient(t, server.URL, policy).
			PutObject(t.Context(), "books", "17", bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{})
		require.Equal(t, attempts == 3, err == nil)
		got := requireRepeats(t, server, attempts)
		require.Equal(t, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", got.Header.Get("X-Amz-Content-Sha256"))
		require.Greater(t, len(got.Body), len(content))
		requireSigned(t, server.URL, got)
	}
}

// An upload has two parts. The first part fails once. Both POSTs fail, or only the POST that ends
// the upload.
func TestMinioRepeatsPartsAndNotWhatBeginsAndEndsAnUpload(t *testing.T) {
	content := bytes.NewReader(make([]byte, 16<<20+1))
	for begun, want := range map[bool]map[string]int{
		false: {"POST uploads=": 1},
		true: {
			"POST uploads=": 1, "POST uploadId=1": 1, "DELETE uploadId=1": 1,
			"PUT partNumber=1&uploadId=1": 2, "PUT partNumber=2&uploadId=1": 1,
		},
	} {
		var server *server
		server = failing(func(w http.ResponseWriter, r *http.Request) {
			first := strings.HasPrefix(r.URL.RawQuery, "partNumber=1") && requestsOf(server)["PUT "+r.URL.RawQuery] == 1
			switch {
			case r.Method == http.MethodPost && begun && r.URL.Query().Has("uploads"):
				io.WriteString(w, `<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>`)
			case r.Method == http.MethodPost, first:
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				storeObject(w, r)
			}
		})
		defer server.Close()

		_, err := minioClient(t, server.URL, threeAttempts(minioPolicy)).
			PutObject(t.Context(), "books", "17", content, content.Size(), minio.PutObjectOptions{})
		require.Error(t, err)
		require.Equal(t, want, requestsOf(server))
	}
}

// requestsOf counts what s got, by method and query.
func requestsOf(s *server) map[string]int {
	counts := map[string]int{}
	for _, r := range s.got() {
		_, query, _ := strings.Cut(r.URI, "?")
		counts[r.Method+" "+query]++
	}
	return counts
}
