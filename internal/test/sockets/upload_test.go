package sockets_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
)

// uploadServer answers the first attempts with 503 before it has read anything.
// Then it answers with the SHA-256 of the body.
type uploadServer struct {
	refusals int32
	attempts atomic.Int32
}

func (s *uploadServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.attempts.Add(1) <= s.refusals {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h := sha256.New()
	if _, err := io.Copy(h, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, hex.EncodeToString(h.Sum(nil)))
}

var upload = sync.OnceValues(func() (content []byte, sum string) {
	content = make([]byte, 16<<20)
	seed := [32]byte{1}
	_, _ = rand.NewChaCha8(seed).Read(content)
	h := sha256.Sum256(content)
	return content, hex.EncodeToString(h[:])
})

// uploadKinds makes bodies of the upload's content in every way there is.
func uploadKinds(t *testing.T) map[string]func() io.Reader {
	t.Helper()
	content, _ := upload()
	path := filepath.Join(t.TempDir(), "upload")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return map[string]func() io.Reader{
		"bytes.Reader": func() io.Reader { return bytes.NewReader(content) },
		"reader at":    func() io.Reader { return bodies.ReaderAt(bytes.NewReader(content)) },
		"seeker":       func() io.Reader { return bodies.Seeker(bytes.NewReader(content)) },
		"stream":       func() io.Reader { return io.MultiReader(bytes.NewReader(content)) },
		"file": func() io.Reader {
			f, err := os.Open(path)
			require.NoError(t, err)
			return f
		},
	}
}

func TestUploadSurvivesAnEarly503(t *testing.T) {
	t.Parallel()
	content, sum := upload()
	type listener = func(*testing.T, http.HandlerFunc) (url string, base *http.Transport)
	protocols := map[string]listener{
		"HTTP/1": func(t *testing.T, h http.HandlerFunc) (string, *http.Transport) {
			return loopback.Serve(t, h), &http.Transport{}
		},
		"HTTP/2": func(t *testing.T, h http.HandlerFunc) (string, *http.Transport) { return loopback.ServeTLS(t, true, h) },
	}
	for protocol, start := range protocols {
		for _, chunked := range []bool{false, true} {
			for kind, body := range uploadKinds(t) {
				t.Run(fmt.Sprintf("%s, chunked %t, %s", protocol, chunked, kind), func(t *testing.T) {
					t.Parallel() // closing a server that has not read everything takes it a while
					handler := &uploadServer{refusals: 2}
					url, base := start(t, handler.ServeHTTP)
					defer base.CloseIdleConnections()
					req, err := http.NewRequest("PUT", url, body())
					require.NoError(t, err)
					req.ContentLength = int64(len(content))
					if chunked {
						req.ContentLength = -1
					}
					rt := retryhttp.New(base, retryhttp.Policy{
						Backoff:     retryhttp.Constant(time.Millisecond),
						RecordBytes: int64(len(content)),
					})
					resp, err := rt.RoundTrip(req)
					require.NoError(t, err)
					got, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					assert.Equal(t, 200, resp.StatusCode)
					assert.Equal(t, sum, string(got))
					assert.Equal(t, protocol == "HTTP/2", resp.ProtoMajor == 2)
				})
			}
		}
	}
}

func TestUploadOfAStreamPastTheLimitMeetsAnEarly503(t *testing.T) {
	t.Parallel()
	// The first attempt may or may not have sent more than the limit when the
	// answer comes. In either case only the whole body arrives.
	content, sum := upload()
	for range 10 {
		handler := &uploadServer{refusals: 1}
		url := loopback.Serve(t, handler.ServeHTTP)
		req, err := http.NewRequest("PUT", url, io.MultiReader(bytes.NewReader(content)))
		require.NoError(t, err)
		resp, err := retryhttp.New(nil, retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)}).RoundTrip(req)
		if err != nil {
			assert.Equal(t, retryhttp.StopBody, errorOf(t, err).Stop, "%v", err)
			continue
		}
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		if resp.StatusCode == 200 {
			assert.Equal(t, sum, string(got))
		} else {
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
		}
	}
}

func TestUploadThatStallsIsFreedByCancel(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		url, base := loopback.ServeTLS(t, http2, func(w http.ResponseWriter, r *http.Request) {
			// Otherwise net/http answers the broken upload with 200, and the client may still return that.
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
		})
		r, w := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		req, err := http.NewRequestWithContext(ctx, "PUT", url, r)
		require.NoError(t, err)
		_, err = retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		for err = error(nil); err == nil; { // the Read in flight may still take some
			_, err = w.Write([]byte("x"))
		}
		assert.ErrorIs(t, err, io.ErrClosedPipe)
		cancel()
	}
}

// GetBody rewinds one reader, as in connect-go. The server answers before it has
// read the request, so net/http still sends it.
func TestUploadOfAGetBodyThatRewindsOneReaderIsWhole(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 1<<14)
	for range 20 {
		var got string
		first := true
		url := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				_ = http.NewResponseController(w).EnableFullDuplex()
				w.WriteHeader(503)
				_ = http.NewResponseController(w).Flush()
				_, _ = io.Copy(io.Discard, r.Body)
				return
			}
			all, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			got = string(all)
		})
		base := &http.Transport{}
		shared := strings.NewReader(content)
		req, err := http.NewRequest("PUT", url, io.NopCloser(shared))
		require.NoError(t, err)
		req.ContentLength = int64(len(content))
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := shared.Seek(0, io.SeekStart)
			return io.NopCloser(shared), err
		}
		resp, err := retryhttp.New(base, noWait).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		base.CloseIdleConnections()
		require.Equal(t, 200, resp.StatusCode)
		require.True(t, content == got)
	}
}

// The server ends its failed answer only after it has read the request. The upload
// pauses while OnRetry reads that answer.
func TestUploadPausesWhileOnRetryReads(t *testing.T) {
	t.Parallel()
	first := true
	url := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !first {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		first = false
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(503)
		_, _ = io.WriteString(w, "busy")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	})
	content := make([]byte, 32<<20)
	req, err := http.NewRequest("PUT", url, bytes.NewReader(content))
	require.NoError(t, err)
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	p := noWait
	p.OnRetry = func(a retryhttp.Attempt) { _, _ = io.ReadAll(a.Response.Body) }
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	resp, err := retryhttp.New(base, p).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 200, resp.StatusCode)
}

func TestUploadWhoseOnRetryReadsTheFailedBody(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		for _, kind := range []string{"bytes.Reader with GetBody", "reader at", "stream", "seeker"} {
			t.Run(fmt.Sprint(kind, " h2=", h2), func(t *testing.T) {
				const size = 200 << 10
				var n atomic.Int32
				inHook, read := make(chan struct{}), make(chan struct{})
				url, base := loopback.ServeTLS(t, h2, func(w http.ResponseWriter, r *http.Request) {
					if n.Add(1) > 1 {
						io.Copy(io.Discard, r.Body)
						return
					}
					http.NewResponseController(w).EnableFullDuplex()
					w.WriteHeader(503)
					w.(http.Flusher).Flush()
					<-inHook // the body comes when it is being waited for
					w.Write(bytes.Repeat([]byte("e"), size))
					w.(http.Flusher).Flush()
					<-read
				})
				var got []byte
				var rerr error
				content := bytes.Repeat([]byte("x"), 16<<20)
				req := bodies.Kinds(t)[kind](content)
				req.URL, req.Host = get(t, url).URL, ""
				p := retryhttp.Policy{RecordBytes: 64 << 20, Backoff: retryhttp.Constant(0)}
				p.OnRetry = func(a retryhttp.Attempt) {
					close(inHook)
					defer close(read)
					if a.Response == nil {
						rerr = a.Err
						return
					}
					got = make([]byte, size) // not to the end, which is when the handler returns
					_, rerr = io.ReadFull(a.Response.Body, got)
				}
				resp, err := retryhttp.New(base, p).RoundTrip(req)
				if err == nil {
					resp.Body.Close()
				}
				assert.NoError(t, err)
				assert.NoError(t, rerr)
				assert.Len(t, got, size)
			})
		}
	}
}
