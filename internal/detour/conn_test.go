package detour

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAddressIsThatOfAnHTTPTransport(t *testing.T) {
	for address, want := range map[string]string{
		"http://host": "host:80", "https://host/path": "host:443", "http://host:8080": "host:8080", "https://host:80": "host:80",
		"http://[::1]": "[::1]:80", "https://[::1]:8443": "[::1]:8443", "http://user@host": "host:80",
		"ftp://host": "", "http://": "", "http:opaque": "", "http://bücher.example": "",
	} {
		u, err := url.Parse(address)
		assert.NoError(t, err)
		assert.Equal(t, want, addressOf(u), address)
	}
}

// A ClientConn has a lock of its own, which net/http holds while it closes a connection. The end of a response must not
// wait for that, so it does not wait for a host that asks a ClientConn either.
func TestEndOfARequestWaitsForNoLockOfItsHost(t *testing.T) {
	h := newHost(new(http.Transport), origin{}, "")
	c := &conn{host: h}
	c.requests.Store(2)
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		c.over()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it waits")
	}
	assert.EqualValues(t, 1, c.requests.Load())
}
