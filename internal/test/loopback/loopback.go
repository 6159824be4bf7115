// Package loopback serves on sockets of the loopback network, for tests that need real
// connections: their buffers, their resets, and what net/http makes of them. Every server
// ends with its test.
package loopback

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Serve serves h over HTTP/1.
func Serve(t *testing.T, h http.HandlerFunc) (url string) {
	t.Helper()
	return Start(t, httptest.NewUnstartedServer(h))
}

// Start starts srv, and has it log nothing.
func Start(t *testing.T, srv *httptest.Server) (url string) {
	t.Helper()
	silence(srv)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

// ServeTLS serves h over TLS, with HTTP/2 if asked for. base trusts the server.
func ServeTLS(t *testing.T, http2 bool, h http.HandlerFunc) (url string, base *http.Transport) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	silence(srv)
	srv.EnableHTTP2 = http2
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL, srv.Client().Transport.(*http.Transport)
}

func silence(srv *httptest.Server) { srv.Config.ErrorLog = log.New(io.Discard, "", 0) }

// Listen hands each connection to the next of serve, and the last of serve gets all that
// follow. A connection is closed when serve returns.
func Listen(t *testing.T, serve ...func(net.Conn)) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", OwnAddress())
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				defer context.AfterFunc(t.Context(), func() { _ = c.Close() })()
				serve[min(i, len(serve)-1)](c)
			})
		}
	})
	return l
}

// ServeRaw reads each connection's request, and leaves the rest to the next of answers.
func ServeRaw(t *testing.T, answers ...func(net.Conn)) (url string) {
	t.Helper()
	serve := make([]func(net.Conn), len(answers))
	for i, answer := range answers {
		serve[i] = func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			answer(c)
		}
	}
	return "http://" + Listen(t, serve...).Addr().String()
}

// Say answers with text.
func Say(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// Reset answers with text and resets the connection.
func Reset(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).SetLinger(0)
	}
}

// ReadRequest reads a request to its end. It returns nil if there is none.
func ReadRequest(r *bufio.Reader) *http.Request {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, req.Body)
	return req
}

// Refusing returns an address that nothing listens on.
func Refusing(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", OwnAddress())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// OwnAddress returns an address of the loopback network that others hardly use, if there is
// more than one. A port of 127.0.0.1 that a test has let go may soon be another program's.
func OwnAddress() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1:0"
	}
	return fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}
