package integrations_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// withErrorsIn200 reads short bodies as part of the attempt, so that classifyS3 sees an
// error in a 200. An AttemptTimeout would have to cover the copy, which S3 makes after the
// header.
func withErrorsIn200(policy retryhttp.Policy) retryhttp.Policy {
	policy.BufferBytes = 1 << 20 // enough for the results of a thousand deletions
	policy.Classify = classifyS3
	policy.Idempotent = takesEffectOnceInS3
	return policy
}

var passing = regexp.MustCompile(`<Error>(?s:.*)<Code>(InternalError|SlowDown|ServiceUnavailable)</Code>`)

// classifyS3 leaves GETs alone: the body is an object, and may hold anything.
func classifyS3(a retryhttp.Attempt) retryhttp.Class {
	if a.Request.Method != http.MethodGet && passing.Match(a.Body) {
		return retryhttp.Retryable
	}
	return retryhttp.Classify(a)
}

// takesEffectOnceInS3 knows two POSTs that may be repeated: the deletion of many objects, and the
// end of a multipart upload. A second request does not find the upload any more.
func takesEffectOnceInS3(req *http.Request) bool {
	query := req.URL.Query()
	return query.Has("delete") || query.Has("uploadId") || retryhttp.Idempotent(req)
}

const (
	slowDown  = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code></Error>`
	someFail  = `<DeleteResult><Error><Key>17</Key><Code>InternalError</Code></Error></DeleteResult>`
	allRemain = `<DeleteResult><Error><Key>17</Key><Code>AccessDenied</Code></Error></DeleteResult>`
)

// answering answers 200 each time, with the next of bodies, and then repeats the last one.
func answering(bodies ...string) *server {
	next := make(chan string, len(bodies))
	for _, body := range bodies[:len(bodies)-1] {
		next <- body
	}
	return failing(func(w http.ResponseWriter, _ *http.Request) {
		body := bodies[len(bodies)-1]
		select {
		case body = <-next:
		default:
		}
		_, _ = io.WriteString(w, body)
	})
}

// s3Calls may be answered with a 200 that holds an error. done is a good answer.
var s3Calls = map[string]struct {
	call func(t *testing.T, url string, policy retryhttp.Policy) error
	done string
}{
	"CopyObject": {func(t *testing.T, url string, policy retryhttp.Policy) error {
		_, err := newS3(s3Config(url), nil, policy).CopyObject(t.Context(),
			&s3.CopyObjectInput{Bucket: s3Get.Bucket, Key: s3Get.Key, CopySource: aws.String("books/16")})
		return err
	}, "<CopyObjectResult></CopyObjectResult>"},
	"CompleteMultipartUpload": {func(t *testing.T, url string, policy retryhttp.Policy) error {
		_, err := newS3(s3Config(url), nil, policy).CompleteMultipartUpload(t.Context(),
			&s3.CompleteMultipartUploadInput{Bucket: s3Get.Bucket, Key: s3Get.Key, UploadId: aws.String("1")})
		return err
	}, "<CompleteMultipartUploadResult><Bucket>books</Bucket></CompleteMultipartUploadResult>"},
	"minio CopyObject": {func(t *testing.T, url string, policy retryhttp.Policy) error {
		from, to := minio.CopySrcOptions{Bucket: "books", Object: "17"}, minio.CopyDestOptions{Bucket: "books", Object: "18"}
		_, err := minioClient(t, url, policy).CopyObject(t.Context(), to, from)
		return err
	}, "<CopyObjectResult></CopyObjectResult>"},
	"minio CompleteMultipartUpload": {func(t *testing.T, url string, policy retryhttp.Policy) error {
		core := minio.Core{Client: minioClient(t, url, policy)}
		_, err := core.CompleteMultipartUpload(t.Context(), "books", "17", "1", nil, minio.PutObjectOptions{})
		return err
	}, "<CompleteMultipartUploadResult><Bucket>books</Bucket></CompleteMultipartUploadResult>"},
	"minio RemoveObjects": {func(t *testing.T, url string, policy retryhttp.Policy) error {
		objects := make(chan minio.ObjectInfo, 1)
		objects <- minio.ObjectInfo{Key: "17"}
		close(objects)
		client := minioClient(t, url, policy)
		failed := <-client.RemoveObjects(t.Context(), "books", objects, minio.RemoveObjectsOptions{})
		return failed.Err
	}, "<DeleteResult></DeleteResult>"},
}

func TestS3ErrorsWithin200AreRetried(t *testing.T) {
	for name, c := range s3Calls {
		t.Run(name, func(t *testing.T) {
			server := answering(slowDown, slowDown, c.done)
			defer server.Close()
			require.NoError(t, c.call(t, server.URL, threeAttempts(withErrorsIn200(s3Policy))))
			requireSigned(t, server.URL, requireRepeats(t, server, 3))
		})
		t.Run(name+", until the attempts are made", func(t *testing.T) {
			server := answering(slowDown)
			defer server.Close()
			require.ErrorContains(t, c.call(t, server.URL, threeAttempts(withErrorsIn200(s3Policy))), "SlowDown")
			requireRepeats(t, server, 3)
		})
		t.Run(name+", and not others", func(t *testing.T) {
			server := answering(strings.ReplaceAll(slowDown, "SlowDown", "AccessDenied"))
			defer server.Close()
			require.Error(t, c.call(t, server.URL, threeAttempts(withErrorsIn200(s3Policy))))
			requireRepeats(t, server, 1)
		})
	}
}

// All objects are deleted again, because some were not deleted.
func TestMinioRemovesAgainWhatWasNotRemoved(t *testing.T) {
	remove := s3Calls["minio RemoveObjects"]
	server := answering(someFail, remove.done)
	defer server.Close()
	require.NoError(t, remove.call(t, server.URL, threeAttempts(withErrorsIn200(minioPolicy))))
	requireRepeats(t, server, 2)

	server = answering(allRemain)
	defer server.Close()
	require.Error(t, remove.call(t, server.URL, threeAttempts(withErrorsIn200(minioPolicy))))
	requireRepeats(t, server, 1)
}

// An object may look like an error.
func TestS3ObjectThatLooksLikeAnErrorIsNotRetried(t *testing.T) {
	server := answering(slowDown)
	defer server.Close()
	object, err := newS3(s3Config(server.URL), nil, threeAttempts(withErrorsIn200(s3Policy))).GetObject(t.Context(), s3Get)
	require.NoError(t, err)
	defer object.Body.Close()
	got, err := io.ReadAll(object.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal([]byte(slowDown), got))
	requireRepeats(t, server, 1)
}

func TestS3KnowsWhatTakesEffectOnce(t *testing.T) {
	for uri, once := range map[string]bool{
		"/books/17?uploads":                        false, // leaves two uploads
		"/books/17?uploadId=1":                     true,
		"/books?delete":                            true,
		"/books/17?select&select-type=2":           false,
		"/books/17?restore":                        false,
		"/books/17":                                false, // a form with an object
		"/books/17?renameObject&x-id=RenameObject": false,
	} {
		req, err := http.NewRequest(http.MethodPost, "http://host.example"+uri, nil)
		require.NoError(t, err)
		require.Equal(t, once, takesEffectOnceInS3(req), uri)
	}
}
