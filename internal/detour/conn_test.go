package detour

import (
	"net/url"
	"testing"

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

// The hook of net/http may run after the next request has its place.
func TestRequestIsOverOnceItIsAnsweredAndTheNextOneHasItsPlace(t *testing.T) {
	for _, answeredFirst := range []bool{true, false} {
		var over int
		c := new(conn)
		answered := c.occupy(func() { over++ })
		if answeredFirst {
			answered()
			assert.Zero(t, over)
		}
		c.occupy(func() { over += 10 })
		if !answeredFirst {
			assert.Zero(t, over)
			answered()
		}
		assert.Equal(t, 1, over)
		c.occupy(func() { over += 100 })
		assert.Equal(t, 1, over)
	}
}

func TestRequestsOverHTTP2AreSideBySide(t *testing.T) {
	c := new(conn)
	c.http2.Store(true)
	c.occupy(nil)()
	c.occupy(nil)
}
