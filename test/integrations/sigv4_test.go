package integrations_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/require"
)

const (
	accessKey = "AKID"
	secretKey = "SECRET"
	region    = "eu-central-1"
)

// requireSigned signs what the server at url got anew, as a server does that
// verifies it, and demands the same signature; and the hash of the body that came,
// if that is signed as well.
func requireSigned(t *testing.T, url string, got request) {
	t.Helper()
	req, err := http.NewRequest(got.Method, url+got.URI, bytes.NewReader(got.Body))
	require.NoError(t, err)
	req.ContentLength = 0 // signed only where it is among the headers below
	want := got.Header.Get("Authorization")
	_, signed, _ := strings.Cut(want, "SignedHeaders=")
	signed, _, _ = strings.Cut(signed, ",")
	for name := range strings.SplitSeq(signed, ";") {
		switch name {
		case "host": // that of url
		case "content-length":
			req.ContentLength = int64(len(got.Body))
		default:
			req.Header[http.CanonicalHeaderKey(name)] = got.Header.Values(name)
		}
	}
	at, err := time.Parse("20060102T150405Z", got.Header.Get("X-Amz-Date"))
	require.NoError(t, err)

	hash := got.Header.Get("X-Amz-Content-Sha256")
	keys := aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey}
	err = v4.NewSigner().SignHTTP(t.Context(), keys, req, hash, "s3", region, at, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = true // as S3 has it
	})
	require.NoError(t, err)
	require.Equal(t, signature(req.Header.Get("Authorization")), signature(want))
	if len(hash) == 2*sha256.Size {
		sum := sha256.Sum256(got.Body)
		require.Equal(t, hex.EncodeToString(sum[:]), hash)
	}
}

// signature is the part of an Authorization header that no two writers of it put
// differently.
func signature(authorization string) string {
	_, s, _ := strings.Cut(authorization, "Signature=")
	return s
}
