package integrations_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// Dial is given an http.Client. The handshake is a GET, and is retried until the
// server switches protocols; what comes after is no request any more, and a
// connection that breaks is for the program to dial again.
func Example_websocket() {
	server := failing(echo, 503)
	defer server.Close()

	conn, _, err := websocket.Dial(context.Background(), server.URL, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{})},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.CloseNow()
	answer, err := say(context.Background(), conn, "hello")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer)
	// Output: hello
}

// echo is a WebSocket server that sends back what it receives.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		kind, message, err := conn.Read(context.Background())
		if err != nil {
			return // the client has closed, which was answered
		}
		if err := conn.Write(context.Background(), kind, message); err != nil {
			return
		}
	}
}

func say(ctx context.Context, conn *websocket.Conn, message string) (string, error) {
	if err := conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		return "", err
	}
	_, answer, err := conn.Read(ctx)
	return string(answer), err
}

// Dial makes Client.Timeout the deadline of its context, which it cancels when it returns. Neither
// the deadline nor the AttemptTimeout may end the connection.
func TestWebSocketOutlivesTheTimeoutsOfItsHandshake(t *testing.T) {
	const timeout = time.Second
	for name, policy := range map[string]retryhttp.Policy{
		"of the client":  {},
		"of the attempt": {AttemptTimeout: timeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, stop := failingInMemory(echo, 503)
				defer stop()
				policy.Backoff = retryhttp.Constant(0)

				conn, resp, err := websocket.Dial(t.Context(), "ws://host.example/", &websocket.DialOptions{
					HTTPClient: &http.Client{Transport: retryhttp.New(base, policy), Timeout: timeout},
				})
				require.NoError(t, err)
				defer conn.CloseNow()
				assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)

				time.Sleep(time.Hour)
				answer, err := say(t.Context(), conn, "still there?")
				require.NoError(t, err)
				assert.Equal(t, "still there?", answer)
				assert.NoError(t, conn.Close(websocket.StatusNormalClosure, ""))
			})
		})
	}
}

func TestWebSocketDialReturnsTheLastResponse(t *testing.T) {
	server := failing(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "down", http.StatusServiceUnavailable)
	})
	defer server.Close()
	policy := retryhttp.Policy{Backoff: retryhttp.Constant(0), AttemptTimeout: time.Minute}
	_, resp, err := websocket.Dial(t.Context(), server.URL, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: retryhttp.New(nil, policy)},
	})
	require.Error(t, err)
	require.NotNil(t, resp)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, retryhttp.StopAttempts, retryhttp.OutcomeOf(resp).Stop)
	assert.Len(t, server.got(), 4)
}
