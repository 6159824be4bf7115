package integrations_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func TestS3LeavesRetriesToTheTransport(t *testing.T) {
	server := failing(http.NotFound, 503, 503, 503, 503)
	client := newS3(s3Config(server.URL), nil, threeAttempts(s3Policy))

	_, err := client.GetObject(t.Context(), s3Get)
	require.Equal(t, http.StatusServiceUnavailable, s3Status(t, err))
	requireSigned(t, server.URL, requireRepeats(t, server, 3))

	server.Close()
	_, err = client.GetObject(t.Context(), s3Get)
	var failure *retryhttp.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 3, failure.Attempts)
	require.Zero(t, s3Status(t, err), "it is an error of a response all the same")
}

func s3Status(t *testing.T, err error) int {
	var answer *awshttp.ResponseError
	require.ErrorAs(t, err, &answer)
	return answer.HTTPStatusCode()
}

func TestS3RetriesEndBeforeTheSignatureIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ages []time.Duration
		base, stop := failingInMemory(func(w http.ResponseWriter, r *http.Request) {
			at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
			assert.NoError(t, err)
			ages = append(ages, time.Since(at))
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		defer stop()
		policy := s3Policy
		policy.MaxAttempts = 10
		policy.Backoff = retryhttp.Constant(4 * time.Minute)
		_, err := newS3(s3Config("http://host.example"), base, policy).GetObject(t.Context(), s3Get)
		require.Equal(t, http.StatusServiceUnavailable, s3Status(t, err))
		require.Greater(t, len(ages), 1)
		require.Less(t, slices.Max(ages), 15*time.Minute)
	})
}

func TestS3DoesNotFollowRedirects(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect} {
		server := failing(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/elsewhere" {
				http.Redirect(w, r, "/elsewhere", status)
			}
		})
		defer server.Close()
		client := newS3(s3Config(server.URL), nil, threeAttempts(s3Policy))
		require.Equal(t, status, s3Status(t, s3Put(t, client, strings.NewReader("precious"))))
		require.Len(t, server.got(), 1)
	}
}

func TestS3HasTheBucketInThePathOfAServerOfYourOwn(t *testing.T) {
	client := s3.NewPresignClient(newS3(s3Config("http://minio.example:9000"), nil, s3Policy))
	req, err := client.PresignGetObject(t.Context(), s3Get)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(req.URL, "http://minio.example:9000/books/17?"), req.URL)
}

// The Transport sees a success. Only the SDK's own retries look into the body.
func TestS3ErrorWithin200IsRetriedByTheSDKAlone(t *testing.T) {
	var n atomic.Int32
	server := failing(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) <= 2 {
			io.WriteString(w, "<Error><Code>InternalError</Code></Error>")
			return
		}
		io.WriteString(w, "<CopyObjectResult></CopyObjectResult>")
	})
	defer server.Close()
	client := newS3(s3Config(server.URL), nil, threeAttempts(s3Policy))
	input := &s3.CopyObjectInput{Bucket: s3Get.Bucket, Key: s3Get.Key, CopySource: aws.String("books/16")}
	_, err := client.CopyObject(t.Context(), input)
	require.ErrorContains(t, err, "InternalError")
	require.Len(t, server.got(), 1)

	_, err = client.CopyObject(t.Context(), input, func(o *s3.Options) {
		o.HTTPClient = awshttp.NewBuildableClient()
		o.Retryer = retry.AddWithMaxBackoffDelay(retry.NewStandard(), time.Nanosecond)
	})
	require.NoError(t, err)
	require.Len(t, server.got(), 3)
}
