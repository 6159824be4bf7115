package integrations_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// The SDK signs a request once, above the Transport, so all attempts carry one
// X-Amz-Date, which S3 takes for 15 minutes: MaxElapsed ends the retries before. The
// SDK's own retries, which NopRetryer switches off, would sign anew.
//
// The SDK also hides a body's Seek and ReadAt, so that only MaxBodyBytes of it could
// be sent again: inPlace is for larger ones. It needs
// RequestChecksumCalculationWhenRequired, for over https the body would otherwise be
// sent in an encoding with a checksum at the end. To have it verified all the same,
// set one of PutObjectInput's checksums.
func Example_s3() {
	server := failing(func(w http.ResponseWriter, r *http.Request) {}, http.StatusServiceUnavailable)
	defer server.Close()

	transport := retryhttp.New(nil, retryhttp.Policy{MaxElapsed: 10 * time.Minute})
	client := s3.New(s3.Options{
		HTTPClient:                 &http.Client{Transport: transport},
		Retryer:                    aws.NopRetryer{},
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		APIOptions:                 []func(*middleware.Stack) error{inPlace},
		Region:                     "eu-central-1",
		Credentials:                credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""),
		BaseEndpoint:               &server.URL, // your own server, if you have one
	})
	file, err := os.Open("s3_test.go")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	_, err = client.PutObject(context.Background(), &s3.PutObjectInput{
		Bucket: aws.String("books"), Key: aws.String("17"), Body: file,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("stored")
	// Output: stored
}

// inPlace gives a request whose body is a file, or anything else that has ReadAt
// and Seek, a GetBody: every attempt then reads from a position of its own.
func inPlace(stack *middleware.Stack) error {
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("inPlace", func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (out middleware.FinalizeOutput, metadata middleware.Metadata, err error) {
		req := in.Request.(*smithyhttp.Request)
		if body, ok := req.GetStream().(interface {
			io.ReaderAt
			io.Seeker
		}); ok {
			start, err := body.Seek(0, io.SeekCurrent)
			if err != nil {
				return out, metadata, err
			}
			size := req.ContentLength
			req.GetBody = func() (io.ReadCloser, error) {
				return io.NopCloser(io.NewSectionReader(body, start, size)), nil
			}
		}
		return next.HandleFinalize(ctx, in)
	}), middleware.After)
}

// s3Client puts checksums where the SDK's default configuration has them.
func s3Client(server *httptest.Server, options ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		HTTPClient:                 &http.Client{Transport: retryhttp.New(server.Client().Transport, threeAttempts())},
		Retryer:                    aws.NopRetryer{},
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		Region:                     region,
		Credentials:                credentials.NewStaticCredentialsProvider(accessKey, secretKey, ""),
		BaseEndpoint:               &server.URL,
		UsePathStyle:               true,
	}, options...)
}

func s3Put(t *testing.T, client *s3.Client, body io.Reader) error {
	_, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("books"), Key: aws.String("17"), Body: body})
	return err
}

func TestS3LeavesRetriesToTheTransport(t *testing.T) {
	server := failing(http.NotFound, 503, 503, 503, 503)
	client := s3Client(server.Server)
	get := &s3.GetObjectInput{Bucket: aws.String("books"), Key: aws.String("17")}

	_, err := client.GetObject(t.Context(), get)
	var answer *awshttp.ResponseError
	require.ErrorAs(t, err, &answer)
	require.Equal(t, http.StatusServiceUnavailable, answer.HTTPStatusCode())
	requireSigned(t, server.URL, requireRepeats(t, server, 3))

	server.Close()
	_, err = client.GetObject(t.Context(), get)
	var failure *retryhttp.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 3, failure.Attempts)
}

// Over http the SDK sends the body as it is, with its hash signed; over https in
// an encoding that ends in a checksum, with only the header signed.
func TestS3RepeatsSmallBodiesUnderOneSignature(t *testing.T) {
	for _, start := range []func(http.Handler) *httptest.Server{httptest.NewServer, httptest.NewTLSServer} {
		records := failing(func(http.ResponseWriter, *http.Request) {}, 503, 503)
		defer records.Close()
		server := start(records.Config.Handler)
		defer server.Close()

		require.NoError(t, s3Put(t, s3Client(server), strings.NewReader("all of it")))
		got := requireRepeats(t, records, 3)
		requireSigned(t, server.URL, got)
		if server.TLS == nil {
			require.Equal(t, "all of it", string(got.Body))
		} else {
			require.Equal(t, "9\r\nall of it\r\n0\r\nx-amz-checksum-crc32:"+crc("all of it")+"\r\n\r\n", string(got.Body))
		}
	}
}

func crc(s string) string {
	sum := crc32.ChecksumIEEE([]byte(s))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// 1 MiB is more than is kept of a body that the SDK hides: it arrives once, and
// whole. With inPlace every attempt reads it anew, from where the file stood.
func TestS3RepeatsLargeFilesInPlaceOnly(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	path := filepath.Join(t.TempDir(), "17")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	for _, attempts := range []int{1, 3} {
		records := failing(func(http.ResponseWriter, *http.Request) {}, 503, 503)
		defer records.Close()
		server := httptest.NewTLSServer(records.Config.Handler)
		defer server.Close()
		client := s3Client(server, func(o *s3.Options) {
			if attempts > 1 {
				o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
				o.APIOptions = append(o.APIOptions, inPlace)
			}
		})
		file, err := os.Open(path)
		require.NoError(t, err)
		defer file.Close()
		_, err = file.Seek(5, io.SeekStart)
		require.NoError(t, err)

		err = s3Put(t, client, file)
		got := requireRepeats(t, records, attempts)
		require.Equal(t, attempts > 1, err == nil)
		require.True(t, bytes.Contains(got.Body, content[5:]))
		requireSigned(t, server.URL, got)
	}
}
