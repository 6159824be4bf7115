//go:build !race

package retryhttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// A Base passes the request on while nothing fails. The http.Transport needs no connection, so only
// the path of a request is measured.
func TestCostOfABaseIsNoAllocation(t *testing.T) {
	transport := &http.Transport{}
	transport.RegisterProtocol("http", &stub{statuses: []int{200}})
	base := retryhttp.NewBase(transport)
	for name, rt := range map[string]http.RoundTripper{
		"Base": base, "New of an http.Transport": retryhttp.New(transport, retryhttp.Policy{}), "New of a Base": retryhttp.New(base, retryhttp.Policy{}),
	} {
		for _, kind := range requestKinds {
			t.Run(name+", "+kind.name, func(t *testing.T) {
				ours := testing.AllocsPerRun(1000, roundTripper(rt, kind.make()))
				assert.Zero(t, ours-testing.AllocsPerRun(1000, roundTripper(transport, kind.make())))
			})
		}
	}
}
