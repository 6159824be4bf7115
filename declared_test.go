package retryhttp_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// frame is a frame of HTTP/2 (RFC 9113, section 4.1) on a client's first stream, or on none.
func frame(kind, flags, stream byte, payload string) string {
	return string([]byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, stream}) + payload
}

// answerOverHTTP2 answers the first request of a connection with a declared length of 10 and a tag.
func answerOverHTTP2(conn net.Conn, flags byte, body string) {
	defer conn.Close()
	const (
		status = "\x88"               // 200, from the table of RFC 7541, appendix A
		length = "\x0f\x0d\x0210"     // Content-Length: 10
		tag    = "\x0f\x13\x04\"v1\"" // ETag: "v1"
	)
	settings, acknowledged := frame(4, 0, 0, ""), frame(4, 1, 0, "")
	answer := frame(1, 4, 1, status+length+tag) + frame(0, flags, 1, body)
	go func() { _, _ = io.WriteString(conn, settings) }()
	var got []byte
	for answered := false; ; {
		part := make([]byte, 1024)
		n, err := conn.Read(part)
		if err != nil {
			return
		}
		got = append(got, part[:n]...)
		// The client's headers frame ends its request: flags 5 on stream 1.
		if !answered && bytes.Contains(got, []byte{1, 5, 0, 0, 0, 1}) {
			answered = true
			go func() { _, _ = io.WriteString(conn, acknowledged+answer) }()
		}
	}
}

// declaresTen is a base whose server sends body, with the flags of its last frame, and answers no pings.
func declaresTen(t *testing.T, flags byte, body string) (base *http.Transport, stop func()) {
	t.Helper()
	n := memnet.New()
	base = &http.Transport{DialContext: n.Dial, Protocols: new(http.Protocols)}
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: time.Second}
	base.Protocols.SetUnencryptedHTTP2(true)
	go func() {
		for {
			conn, err := n.Accept()
			if err != nil {
				return
			}
			go answerOverHTTP2(conn, flags, body)
		}
	}()
	return base, func() {
		base.CloseIdleConnections()
		n.Close()
	}
}

const endOfStream = 1

// net/http counts the bytes, and says so if there are more than were declared.
func TestMoreBytesThanDeclaredAreAnErrorOverHTTP2(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"as it comes": {},
		"buffered":    {BufferBytes: 100, MaxAttempts: 1},
		"resumed":     {Resume: true},
		"peeked":      {PeekBytes: 100, MaxAttempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, stop := declaresTen(t, endOfStream, "0123456789abcde")
				defer stop()
				got, err := download(t, base, p)
				assert.ErrorContains(t, err, "more than declared Content-Length")
				assert.Equal(t, "0123456789", got)
			})
		})
	}
}

// A connection that is lost after the last byte takes nothing away.
func TestConnectionLostAfterTheLastDeclaredByteIsTheEnd(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"buffered": {BufferBytes: 100, MaxAttempts: 1},
		"resumed":  {Resume: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, stop := declaresTen(t, 0, "0123456789")
				defer stop()
				began := time.Now()
				got, err := download(t, base, p)
				require.NoError(t, err)
				assert.Equal(t, "0123456789", got)
				assert.Equal(t, 2*time.Second, time.Since(began), "the connection answers no ping")
			})
		})
	}
}

// Over HTTP/2 a stream may go on after the last byte that was declared.
func TestAttemptTimeoutAfterTheLastByteLeavesAWholeBody(t *testing.T) {
	text := strings.Repeat("x", 100)
	overBoth(t, play(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), func(t *testing.T, base http.RoundTripper, srv *server) {
		got, err := download(t, base, retryhttp.Policy{BufferBytes: 1000, AttemptTimeout: time.Second})
		require.NoError(t, err)
		assert.Equal(t, text, got)
		assert.Len(t, srv.got, 1)
	})
}
