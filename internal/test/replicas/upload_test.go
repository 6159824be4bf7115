package replicas_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
)

// Types of frames, and a flag (RFC 9113, section 6).
const (
	data      = 0
	headers   = 1
	rstStream = 3
	settings  = 4
	endStream = 1
)

// serveFrames is an HTTP/2 server, without TLS, that answers frames of streams with frames. An answer that is nil
// is none.
func serveFrames(conn net.Conn, answer func(kind, flags byte, length int64) (kindOf, flagsOf byte, payload []byte)) {
	defer conn.Close()
	frames := make(chan []byte, 64) // a pipe has no buffer, and the client writes, too
	defer close(frames)
	go func() {
		for frame := range frames {
			_, _ = conn.Write(frame)
		}
	}()
	frames <- []byte{0, 0, 0, settings, 0, 0, 0, 0, 0}
	frames <- []byte{0, 0, 0, settings, 1, 0, 0, 0, 0} // acknowledges the client's
	_, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	for err == nil {
		var head [9]byte
		if _, err = io.ReadFull(conn, head[:]); err != nil {
			return
		}
		length := int64(binary.BigEndian.Uint32(head[:]) >> 8)
		if kind, flags, payload := answer(head[3], head[4], length); payload != nil {
			frame := append([]byte{0, 0, byte(len(payload)), kind, flags}, head[5:]...)
			frames <- append(frame, payload...)
			if kind == rstStream {
				time.Sleep(50 * time.Millisecond) // it comes while the client writes its header
			}
		}
		_, err = io.CopyN(io.Discard, conn, length)
	}
}

// framesAfterA500 returns an http.Transport whose first connection, the pool's, answers 500 to all. The others are served
// with answer.
func framesAfterA500(serving *sync.WaitGroup, answer func(kind, flags byte, length int64) (byte, byte, []byte)) *http.Transport {
	t := &http.Transport{Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	var dials atomic.Int64
	t.DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		serve := answer
		if dials.Add(1) == 1 {
			serve = func(kind, _ byte, _ int64) (byte, byte, []byte) { return answerTo(kind, 0x8e) }
		}
		serving.Go(func() { serveFrames(server, serve) })
		return client, nil
	}
	return t
}

// answerTo answers a request, once its header is there, with a status and no content. 0x88 is 200, and 0x8e is 500
// (RFC 7541, appendix A).
func answerTo(kind, status byte) (kindOf, flags byte, payload []byte) {
	if kind != headers {
		return 0, 0, nil
	}
	return headers, 4 | endStream, []byte{status}
}

// slowly is a body of n Reads.
type slowly struct{ n int }

func (s *slowly) Read(p []byte) (int, error) {
	if s.n == 0 {
		return 0, io.EOF
	}
	s.n--
	time.Sleep(10 * time.Millisecond)
	return copy(p, make([]byte, 100)), nil
}

func (s *slowly) Close() error { return nil }

// A server may answer early, and then receive the rest of the request.
func TestUploadGoesOnAfterAnEarlyResponse(t *testing.T) {
	for name, used := range map[string]bool{"the first request of a detour": false, "another, and idle connections are closed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got atomic.Int64
				var ended atomic.Bool
				var serving sync.WaitGroup
				defer serving.Wait()
				client := retryhttp.New(framesAfterA500(&serving, func(kind, flags byte, length int64) (byte, byte, []byte) {
					if kind == data {
						got.Add(length)
						ended.Store(flags&endStream != 0)
					}
					return answerTo(kind, 0x88)
				}), retryhttp.Policy{Backoff: retryhttp.Constant(0)})
				defer client.CloseIdleConnections()
				for range 5 {
					if used {
						require.Equal(t, http.StatusOK, statusOf(t, client, "http://service.example/"))
					}
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://service.example/", &slowly{20})
				require.NoError(t, err)
				req.GetBody = func() (io.ReadCloser, error) { return &slowly{20}, nil }
				resp, err := client.RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
				if used {
					client.CloseIdleConnections()
				}
				time.Sleep(time.Second)
				assert.EqualValues(t, 2000, got.Load())
				assert.True(t, ended.Load())
			})
		})
	}
}

// net/http's HTTP/2 closes the body of a stream that was reset, and may read the body for the first time after that.
func TestBodyOfAStreamThatIsResetEarlyIsClosed(t *testing.T) {
	for name, content := range map[string]io.Reader{"it is there": strings.NewReader("content"), "it never comes": pending{}} {
		t.Run(name, func(t *testing.T) {
			var serving sync.WaitGroup
			defer serving.Wait()
			client := retryhttp.New(framesAfterA500(&serving, func(kind, flags byte, _ int64) (byte, byte, []byte) {
				if kind == headers && flags&endStream == 0 {
					return rstStream, 0, []byte{0, 0, 0, 2}
				}
				return answerTo(kind, 0x88)
			}), retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)})
			defer client.CloseIdleConnections()
			for range 5 {
				require.Equal(t, http.StatusOK, statusOf(t, client, "http://service.example/"))
			}
			body := &bodies.Tracked{Reader: content}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://service.example/", body)
			require.NoError(t, err)
			_, err = client.RoundTrip(req)
			require.ErrorContains(t, err, "INTERNAL_ERROR")
			assert.Eventually(t, func() bool { return body.Closes.Load() == 1 }, 10*time.Second, time.Millisecond)
		})
	}
}

// pending never returns from a Read.
type pending struct{}

func (pending) Read([]byte) (int, error) { select {} }
