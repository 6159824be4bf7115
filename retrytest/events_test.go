package retrytest_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/retrytest"
)

var threeEvents = retrytest.Status(200, "Content-Type", "text/event-stream").
	Events(": wait\n\n", "data: 1\n\n", "data: 2\n\n")

// reads returns what each Read of body brings until its end.
func reads(t *testing.T, body io.ReadCloser) (all []string, end error) {
	t.Helper()
	for {
		part := make([]byte, 100)
		n, err := body.Read(part)
		if n > 0 {
			all = append(all, string(part[:n]))
		}
		if err != nil {
			require.NoError(t, body.Close())
			return all, err
		}
	}
}

func TestTransportSendsEventByEvent(t *testing.T) {
	for name, c := range map[string]struct {
		step retrytest.Step
		want []string
		end  error
	}{
		"whole":   {threeEvents, []string{": wait\n\n", "data: 1\n\n", "data: 2\n\n"}, io.EOF},
		"unsized": {threeEvents.Unsized(), []string{": wait\n\n", "data: 1\n\n", "data: 2\n\n"}, io.EOF},
		"cut":     {threeEvents.Cut(12), []string{": wait\n\n", "data"}, io.ErrUnexpectedEOF},
		"a body":  {threeEvents.Body("x"), []string{"x"}, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := get(t, retrytest.NewTransport(t, nil, c.step.Always()))
			require.NoError(t, err)
			got, err := reads(t, resp.Body)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.end, err)
		})
	}
}

// The end of the answer comes later than its events.
func TestHandlerFlushesEachEvent(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := retrytest.NewHandler(t, nil, threeEvents.Always())
				_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
					h.ServeHTTP(slowFlusher{w}, r)
				}, http2)
				defer stop()
				resp, err := get(t, base)
				require.NoError(t, err)
				got, err := reads(t, resp.Body)
				assert.Equal(t, []string{": wait\n\n", "data: 1\n\n", "data: 2\n\n"}, got)
				assert.Equal(t, io.EOF, err)
			})
		})
	}
}

// slowFlusher waits after each Flush, so that the client reads meanwhile.
type slowFlusher struct{ http.ResponseWriter }

func (s slowFlusher) Flush() {
	_ = http.NewResponseController(s.ResponseWriter).Flush()
	time.Sleep(time.Second)
}

func TestEventWithoutBytesIsAMistake(t *testing.T) {
	assert.PanicsWithError(t, "retrytest: rule 1: Events: an event has no bytes", func() {
		retrytest.NewTransport(nil, nil, retrytest.Status(200).Events("a", "").Always())
	})
	assert.Equal(t, "200, events: 3", threeEvents.String())
}
