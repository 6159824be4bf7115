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
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// refuse is an HTTP/2 server that refuses every stream: RST_STREAM with REFUSED_STREAM.
func refuse(conn net.Conn) {
	defer conn.Close()
	frames := make(chan []byte, 8) // net.Pipe has no buffer, and the client writes too
	defer close(frames)
	go func() {
		for frame := range frames {
			_, _ = conn.Write(frame)
		}
	}()
	frames <- []byte{0, 0, 0, 4, 0, 0, 0, 0, 0} // SETTINGS
	frames <- []byte{0, 0, 0, 4, 1, 0, 0, 0, 0} // and the acknowledgment of the client's
	preface := len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	if _, err := io.CopyN(io.Discard, conn, int64(preface)); err != nil {
		return
	}
	for {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(append([]byte{0}, head[:3]...))
		if _, err := io.CopyN(io.Discard, conn, int64(length)); err != nil {
			return
		}
		if head[3] == 1 { // HEADERS
			frames <- append(append([]byte{0, 0, 4, 3, 0}, head[5:]...), 0, 0, 0, 7)
		}
	}
}

// strict is a body that cannot be read once it is closed.
type strict struct {
	io.Reader
	closed atomic.Bool
}

func (s *strict) Read(p []byte) (int, error) {
	if s.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return s.Reader.Read(p)
}

func (s *strict) Close() error {
	s.closed.Store(true)
	return nil
}

// net/http sends a request that a server has not processed again by itself, as part of one attempt. If
// a detour has not processed it, the pool sends it, with the body that nobody has read.
func TestRequestThatADetourDidNotProcessTakesThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := replicas.New(replicas.HTTP2, 1)
		defer w.Close()
		w.Replicas[0].Serve(firstFails(echo))
		transport := w.Transport()
		transport.ExpectContinueTimeout = time.Minute
		dials := 0
		var serving sync.WaitGroup
		defer serving.Wait()
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials == 1 {
				return w.Dial(ctx, network, address)
			}
			client, server := net.Pipe()
			serving.Go(func() { refuse(server) })
			return client, nil
		}
		client := retryhttp.New(transport, retryhttp.Policy{})
		defer client.CloseIdleConnections()
		body := func() (io.ReadCloser, error) { return &strict{Reader: strings.NewReader("content")}, nil }
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.URL(), http.NoBody)
		require.NoError(t, err)
		req.Body, _ = body()
		req.GetBody, req.ContentLength = body, int64(len("content"))
		req.Header.Set("Expect", "100-continue")
		resp, err := client.RoundTrip(req)
		require.NoError(t, err)
		content, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, "content", string(content))
		assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		assert.Equal(t, 2, dials)
	})
}
