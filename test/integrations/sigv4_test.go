package integrations_test

import (
	"bytes"
	"context"
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

// requireSigned requires the signature that a server at url computes from the request that it got.
// If the hash of the body is signed as well, it requires that too.
func requireSigned(t *testing.T, url string, got request) {
	t.Helper()
	want, err := signedAnew(url, got)
	require.NoError(t, err)
	require.Equal(t, want, signature(got.Header.Get("Authorization")))
	if hash := got.Header.Get("X-Amz-Content-Sha256"); len(hash) == 2*sha256.Size {
		sum := sha256.Sum256(got.Body)
		require.Equal(t, hex.EncodeToString(sum[:]), hash)
	}
}

// signedAnew signs the request that the server at url got, as a server does to verify it. It
// returns the signature.
func signedAnew(url string, got request) (string, error) {
	req, err := http.NewRequest(got.Method, url+got.URI, bytes.NewReader(got.Body))
	if err != nil {
		return "", err
	}
	req.ContentLength = 0 // signed only where it is among the headers below
	_, signed, _ := strings.Cut(got.Header.Get("Authorization"), "SignedHeaders=")
	signed, _, _ = strings.Cut(signed, ",")
	for name := range strings.SplitSeq(signed, ";") {
		switch name {
		case "host": // the host is in url
		case "content-length":
			req.ContentLength = int64(len(got.Body))
		default:
			req.Header[http.CanonicalHeaderKey(name)] = got.Header.Values(name)
		}
	}
	at, err := time.Parse("20060102T150405Z", got.Header.Get("X-Amz-Date"))
	if err != nil {
		return "", err
	}

	hash := got.Header.Get("X-Amz-Content-Sha256")
	keys := aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey}
	err = v4.NewSigner().SignHTTP(context.Background(), keys, req, hash, "s3", region, at, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = true // S3 does so
	})
	return signature(req.Header.Get("Authorization")), err
}

// signature is the part of an Authorization header that does not depend on how its writer formats
// it.
func signature(authorization string) string {
	_, s, _ := strings.Cut(authorization, "Signature=")
	return s
}
