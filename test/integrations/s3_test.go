package integrations_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/retryhttp/retryhttp"
)

// The SDK signs a request once, above the Transport, so all attempts carry one
// X-Amz-Date, which S3 takes for 15 minutes: MaxElapsed ends the retries before. The
// SDK's own retries, which NopRetryer switches off, would sign anew.
//
// The SDK also hides a body's Seek and ReadAt, so that only RecordBytes of it could
// be sent again: inPlace is for larger ones. It needs
// RequestChecksumCalculationWhenRequired, for over https the body would otherwise be
// sent in an encoding with a checksum at the end. To have it verified all the same,
// set the value of a checksum, such as PutObjectInput.ChecksumSHA256; ChecksumAlgorithm
// brings that encoding back.
//
// An http.Client follows redirects that the SDK's own does not: a PUT that met a 301
// would go on as a GET, and seem to have stored something.
func Example_s3() {
	server := failing(func(w http.ResponseWriter, r *http.Request) {}, http.StatusServiceUnavailable)
	defer server.Close()

	client := newS3(s3Config(server.URL), nil, s3Policy)
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

var s3Policy = retryhttp.Policy{MaxElapsed: 10 * time.Minute}

// newS3 replaces config.HTTPClient. If AWS_CA_BUNDLE is set, config.HTTPClient knows it. Use its
// GetTransport as base.
func newS3(config aws.Config, base http.RoundTripper, policy retryhttp.Policy) *s3.Client {
	return s3.NewFromConfig(config, func(o *s3.Options) {
		o.HTTPClient = &http.Client{
			Transport:     retryhttp.New(base, policy),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		o.Retryer = aws.NopRetryer{}
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.APIOptions = append(o.APIOptions, inPlace)
		o.UsePathStyle = true // only for a server of your own, at config.BaseEndpoint
	})
}

// inPlace gives a GetBody to a request whose body is a file, or anything else that has ReadAt and
// Seek. Every attempt then reads from a position of its own.
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

// s3Config is like the result of config.LoadDefaultConfig.
func s3Config(url string) aws.Config {
	return aws.Config{
		Region:                     region,
		Credentials:                credentials.NewStaticCredentialsProvider(accessKey, secretKey, ""),
		BaseEndpoint:               &url,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
	}
}

var s3Get = &s3.GetObjectInput{Bucket: aws.String("books"), Key: aws.String("17")}

func s3Put(t *testing.T, client *s3.Client, body io.Reader, options ...func(*s3.Options)) error {
	input := &s3.PutObjectInput{Bucket: s3Get.Bucket, Key: s3Get.Key, Body: body}
	_, err := client.PutObject(t.Context(), input, options...)
	return err
}
