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
