package integrations_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/storage"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/googleapi"

	"github.com/retryhttp/retryhttp"
)

func TestGCSRepeatsUploadsThatHaveAPrecondition(t *testing.T) {
	for _, attempts := range []int{1, 3} {
		server := failing(bucket, 503, 503)
		defer server.Close()
		object := gcsObject(t, nil, server.URL, threeAttempts(gcsPolicy))
		if attempts > 1 {
			object = object.If(storage.Conditions{DoesNotExist: true})
		}

		w := object.NewWriter(t.Context())
		_, err := io.WriteString(w, "all of it")
		require.NoError(t, err)
		require.Equal(t, attempts > 1, w.Close() == nil)
		got := requireRepeats(t, server, attempts)
		require.Contains(t, string(got.Body), "all of it")
		require.NotEmpty(t, got.Header.Get("X-Goog-Gcs-Idempotency-Token"))
	}
}

// The server stores the object and loses the answer.
func TestGCSMeetsItsOwnEcho(t *testing.T) {
	var server *server
	server = failing(func(w http.ResponseWriter, r *http.Request) {
		if len(server.got()) == 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusPreconditionFailed)
	})
	defer server.Close()
	policy := threeAttempts(gcsPolicy)
	var outcome retryhttp.Outcome
	policy.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) { outcome = o }

	w := gcsObject(t, nil, server.URL, policy).If(storage.Conditions{DoesNotExist: true}).NewWriter(t.Context())
	_, err := io.WriteString(w, "all of it")
	require.NoError(t, err)
	var answer *googleapi.Error
	require.ErrorAs(t, w.Close(), &answer)
	require.Equal(t, http.StatusPreconditionFailed, answer.Code)
	require.True(t, outcome.Ambiguous)
	requireRepeats(t, server, 2)
}

// twoChunks are uploaded in three requests, of which the first opens the upload.
func twoChunks(w *storage.Writer) error {
	w.ChunkSize = googleapi.MinUploadChunkSize
	_, err := w.Write(make([]byte, googleapi.MinUploadChunkSize+1))
	return errors.Join(err, w.Close())
}

// The first chunk, which is the second request, meets three failures.
func TestGCSRetryNeverStillResendsChunks(t *testing.T) {
	upload := func(own ...storage.RetryOption) ([]request, error) {
		var s *server
		s = failing(func(w http.ResponseWriter, r *http.Request) {
			if n := len(s.got()); n >= 2 && n <= 4 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			bucket(w, r)
		})
		defer s.Close()
		err := twoChunks(gcsObject(t, nil, s.URL, threeAttempts(gcsPolicy), own...).NewWriter(t.Context()))
		return s.got(), err
	}

	off, err := upload()
	var answer *googleapi.Error
	require.ErrorAs(t, err, &answer)
	require.Len(t, off, 4)
	require.NotEmpty(t, off[0].Header.Get("X-Goog-Gcs-Idempotency-Token"))

	never, err := upload(storage.WithPolicy(storage.RetryNever))
	require.NoError(t, err)
	require.Empty(t, never[0].Header.Get("X-Goog-Gcs-Idempotency-Token"))
	require.Contains(t, never[4].Header.Get("X-Goog-Api-Client"), "gccl-attempt-count/2")
	require.Equal(t, off[1].Body, never[4].Body)

	_, err = upload(storage.WithMaxAttempts(1), storage.WithErrorFunc(storage.ShouldRetry))
	require.NoError(t, err)
}

// Under a ChunkTransferTimeout, the client mistakes the error of an AttemptTimeout for its own
// timeout. It resends the chunk without asking its error function.
func TestGCSChunkTransferTimeoutResendsWhatMetAttemptTimeout(t *testing.T) {
	for own, sent := range map[time.Duration]int32{0: 3, time.Hour: 5} {
		synctest.Test(t, func(t *testing.T) {
			var chunks atomic.Int32
			base, stop := failingInMemory(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if r.Header.Get("Content-Range") != "" && chunks.Add(1) <= 3 {
					<-r.Context().Done() // it never answers
					return
				}
				bucket(w, r)
			})
			defer stop()
			policy := threeAttempts(gcsPolicy)
			policy.AttemptTimeout = time.Second

			w := gcsObject(t, base, "http://host.example", policy).NewWriter(t.Context())
			w.ChunkTransferTimeout = own
			err := twoChunks(w)
			require.Equal(t, own == 0, errors.Is(err, context.DeadlineExceeded), "%v", err)
			require.Equal(t, sent, chunks.Load())
		})
	}
}
