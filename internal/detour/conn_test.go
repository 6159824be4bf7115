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
func TestRequestIsOverOnceItsConnectionIsFree(t *testing.T) {
	var over int
	release := func() { over++ }
	c := new(conn)
	c.release.Store(&release)
	c.free()
	c.free()
	assert.Equal(t, 1, over)
}
