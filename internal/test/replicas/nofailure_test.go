package replicas_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// While nothing fails, a client dials as the http.Transport alone does.
func TestServiceThatIsWellCostsNoConnection(t *testing.T) {
	for _, p := range everyProtocol {
		synctest.Test(t, func(t *testing.T) {
			var dials []int
			for _, over := range []func(*http.Transport) http.RoundTripper{
				func(t *http.Transport) http.RoundTripper { return t },
				func(t *http.Transport) http.RoundTripper { return retryhttp.NewBase(t) },
				func(t *http.Transport) http.RoundTripper { return retryhttp.New(t, retryhttp.Policy{}) },
			} {
				w := replicas.New(p, 3)
				transport := w.Transport()
				client := over(transport)
				// No request begins when another ends, so that each run dials the same.
				f := w.Drive(client, replicas.Load{Rate: 70, For: 3 * time.Second, Deadline: 5 * time.Second})
				assert.EqualValues(t, 1, f.Success(), p)
				dials = append(dials, w.Dials())
				transport.CloseIdleConnections()
				w.Close()
			}
			assert.Equal(t, []int{dials[0], dials[0], dials[0]}, dials, p)
		})
	}
}
