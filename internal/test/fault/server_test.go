package fault_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// A client that has its answer may send the next request before the server's handler has returned.
// The unread rest of the first request must not be in the way.
func TestAnAnswerBeforeTheRequestIsReadLeavesTheConnection(t *testing.T) {
	before := fault.Answers[1]
	require.Equal(t, "503 before it reads the request", before.Name)
	s := fault.NewServer(fault.NewLedger())
	s.Order("first", before)
	s.Ledger.Expect("second", fault.Want{Method: http.MethodPut, Body: []byte("hello")})
	srv := httptest.NewServer(s)
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()

	const head = "PUT /%s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	_, err = fmt.Fprintf(conn, head+"5\r\nhello\r\n0\r\n\r\n"+head, "first", "second")
	require.NoError(t, err)
	require.True(t, fault.Eventually(atRest, func() bool { return s.Ledger.Arrivals("second") == 1 }))
	_, err = io.WriteString(conn, "5\r\nhello\r\n0\r\n\r\n")
	require.NoError(t, err)

	answers := bufio.NewReader(conn)
	for _, want := range []struct {
		status int
		body   string
	}{{http.StatusServiceUnavailable, "busy"}, {http.StatusOK, strings.Repeat("received second\n", fault.AnswerSize/16)}} {
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, want.status, resp.StatusCode)
		assert.Equal(t, want.body, string(body))
	}
	assert.NoError(t, s.Ledger.Check("second", true))
}
