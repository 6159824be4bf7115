package retryhttp_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
)

// A server that answers HEAD with a body leaves the body on the connection, where the next request
// takes it for its answer. A retry takes another connection.
func TestGETSucceedsAfterAHEADThatWasAnsweredWithABody(t *testing.T) {
	for _, body := range []string{"<html></html>", "<!DOCTYPE html><html></html>"} {
		t.Run(body, func(t *testing.T) {
			url := "http://" + loopback.Listen(t, answerHEADWithBody(body)).Addr().String()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			client := &http.Client{Transport: retryhttp.New(base, noWait)}
			for range 5 {
				resp, err := client.Head(url)
				require.NoError(t, err)
				resp.Body.Close()
				resp, err = client.Get(url)
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				assert.NoError(t, err)
				assert.Equal(t, "ok", string(got))
				resp.Body.Close()
			}
		})
	}
}

// answerHEADWithBody sends the body only when the next request is there. net/http closes an idle
// connection on which bytes come.
func answerHEADWithBody(body string) func(net.Conn) {
	return func(c net.Conn) {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		rest, requests := "", bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(requests)
			if err != nil {
				return
			}
			if rest != "" {
				_, _ = io.WriteString(c, rest)
				return
			}
			if req.Method == http.MethodHead {
				rest = body + "\r\n\r\n"
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n")
				continue
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	}
}
