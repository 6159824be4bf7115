package integrations_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
)

// Over http the SDK sends the body as it is, and signs its hash. Over https it uses an encoding
// that ends in a checksum, and signs only the header.
func TestS3RepeatsSmallBodiesUnderOneSignature(t *testing.T) {
	for _, start := range []func(http.Handler) *httptest.Server{httptest.NewServer, httptest.NewTLSServer} {
		records := failing(func(http.ResponseWriter, *http.Request) {}, 503, 503)
		defer records.Close()
		server := start(records.Config.Handler)
		defer server.Close()

		client := newS3(s3Config(server.URL), server.Client().Transport, threeAttempts(s3Policy))
		require.NoError(t, s3Put(t, client, strings.NewReader("all of it"), hidden))
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

// The SDK hides the body, and 1 MiB is more than the Transport keeps. So the body arrives once,
// and whole. With inPlace every attempt reads the file anew, from its first position.
func TestS3RepeatsLargeFilesInPlaceOnly(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for name, tt := range map[string]struct {
		options  []func(*s3.Options)
		attempts int
	}{
		"as the SDK hides them": {[]func(*s3.Options){hidden}, 1},
		"in place":              {nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			records := failing(func(http.ResponseWriter, *http.Request) {}, 503, 503)
			defer records.Close()
			server := httptest.NewTLSServer(records.Config.Handler)
			defer server.Close()
			client := newS3(s3Config(server.URL), server.Client().Transport, threeAttempts(s3Policy))

			err := s3Put(t, client, fileFrom(t, content, 5), tt.options...)
			got := requireRepeats(t, records, tt.attempts)
			require.Equal(t, tt.attempts == 3, err == nil)
			require.True(t, bytes.Contains(got.Body, content[5:]))
			requireSigned(t, server.URL, got)
		})
	}
}

// hidden undoes what newS3 does for bodies.
func hidden(o *s3.Options) {
	o.APIOptions = nil
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
}

// fileFrom is a file with the content, whose position is offset.
func fileFrom(t *testing.T, content []byte, offset int64) *os.File {
	path := filepath.Join(t.TempDir(), "17")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	_, err = file.Seek(offset, io.SeekStart)
	require.NoError(t, err)
	return file
}

// The first attempt still reads the file while the second does.
func TestS3RepeatsAFileWhoseFirstAttemptWasAnsweredEarly(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	var bodies [][]byte
	server := httptest.NewServer(answeringEarly(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			bodies = append(bodies, body)
		}
	}))
	defer server.Close()
	policy := threeAttempts(s3Policy)
	policy.MaxAttempts = 2
	require.NoError(t, s3Put(t, newS3(s3Config(server.URL), nil, policy), fileFrom(t, content, 5)))
	require.Len(t, bodies, 1)
	require.True(t, bytes.Equal(content[5:], bodies[0]))
}
