package integrations_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/google/go-github/v92/github"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// read gets blob through a client that uses a Transport over base.
type read func(t *testing.T, base http.RoundTripper, policy retryhttp.Policy) ([]byte, error)

var reads = map[string]read{
	"aws-sdk-go-v2": func(t *testing.T, base http.RoundTripper, policy retryhttp.Policy) ([]byte, error) {
		object, err := newS3(s3Config("http://host.example"), base, policy).GetObject(t.Context(), s3Get)
		require.NoError(t, err)
		defer object.Body.Close()
		return io.ReadAll(object.Body)
	},
	"storage": func(t *testing.T, base http.RoundTripper, policy retryhttp.Policy) ([]byte, error) {
		r, err := gcsObject(t, base, "http://host.example", policy).NewReader(t.Context())
		require.NoError(t, err)
		defer r.Close()
		return io.ReadAll(r)
	},
	"azblob": func(t *testing.T, base http.RoundTripper, policy retryhttp.Policy) ([]byte, error) {
		options := azureOptions(policy)
		options.Transport = &http.Client{Transport: retryhttp.New(base, policy)}
		client, err := azblob.NewClientWithNoCredential("http://host.example", options)
		require.NoError(t, err)
		return azureDownload(t, client, azblob.HTTPRange{})
	},
	"go-github": func(t *testing.T, base http.RoundTripper, policy retryhttp.Policy) ([]byte, error) {
		client, err := github.NewClient(github.WithTransport(retryhttp.New(base, policy)))
		require.NoError(t, err)
		req, err := client.NewRequest(t.Context(), http.MethodGet, "http://host.example/blob", nil)
		require.NoError(t, err)
		var body bytes.Buffer
		_, err = client.Do(req, &body)
		return body.Bytes(), err
	},
}

// Both attempts send the same request, with the same signature.
func TestReadWhoseFirstAttemptStallsIsAnsweredByTheHedge(t *testing.T) {
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent server
				answer := breakingOff()
				if name == "aws-sdk-go-v2" {
					answer = verified(answer)
				}
				_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if sent.record(r, nil) == 1 {
						<-r.Context().Done()
						return
					}
					answer(w, r)
				}))
				defer stop()
				var outcomes []retryhttp.Outcome
				start := time.Now()
				got, err := read(t, base, retryhttp.Policy{
					Hedge:  &retryhttp.Hedge{After: 50 * time.Millisecond},
					OnDone: func(_ retryhttp.Attempt, o retryhttp.Outcome) { outcomes = append(outcomes, o) },
				})
				require.NoError(t, err)
				require.Equal(t, blob, got)
				require.Equal(t, 50*time.Millisecond, time.Since(start))
				require.Len(t, outcomes, 1)
				require.True(t, outcomes[0].HedgeWon)
				requireRepeats(t, &sent, 2)
			})
		})
	}
}
