package redact_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/redact"
)

func TestURLHasSchemeHostAndPath(t *testing.T) {
	for raw, want := range map[string]string{
		"https://user:secret@host.example:8443/a%2Fb?token=secret#secret": "https://host.example:8443/a%2Fb",
		"http://host.example": "http://host.example",
		"/path?secret":        "/path",
	} {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		assert.Equal(t, want, redact.URL(u))
	}
	assert.Empty(t, redact.URL(nil))
	byHand := &url.URL{Scheme: "http", Host: "user:secret@host.example", Path: "/"}
	assert.Equal(t, "http://host.example/", redact.URL(byHand))
}

func TestErrorKeepsTheTextWithoutSecrets(t *testing.T) {
	const full = "http://user:secret@host.example/path?token=secret#secret"
	refused := errors.New("connection refused")
	invalid := &url.Error{Op: "parse", URL: "http://host.example/%zz?secret", Err: url.EscapeError("%zz")}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{refused, "connection refused"},
		{&url.Error{Op: "Get", URL: full, Err: refused}, `Get "http://host.example/path": connection refused`},
		{
			errors.Join(refused, fmt.Errorf("token: %w", &url.Error{Op: "Post", URL: full, Err: refused})),
			"connection refused\n" + `token: Post "http://host.example/path": connection refused`,
		},
		{invalid, "invalid URL"},
		{errors.New("see " + full + " for more"), "see http://host.example/path for more"},
		{errors.New("lookup user:secret@host.example on 127.0.0.1:53"), "lookup host.example on 127.0.0.1:53"},
		{
			&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "user:se: cret@a b"}},
			"dial tcp: lookup a b: no such host",
		},
		{
			&net.OpError{Op: "dial", Net: "tcp", Err: &net.AddrError{Err: "too many colons", Addr: "user:secret@[::1]:1"}},
			"dial tcp: address [::1]:1: too many colons",
		},
		{
			fmt.Errorf("tls: %w", x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"h"}}, Host: "u:secret@b"}),
			"tls: x509: certificate is valid for h, not b",
		},
		{
			&net.OpError{Op: "socks connect", Net: "tcp", Addr: hostAddr("user:secret@h:80"), Err: refused},
			"socks connect tcp h:80: connection refused",
		},
		{errors.New("dial tcp: address user:secret@[::1]:1: too many colons"), "dial tcp: address [::1]:1: too many colons"},
		{errors.New("lookup user:sec ret@a b: no such host"), "lookup a b: no such host"},
		{errors.New("x509: certificate is valid for h, not u:sec@ret@b"), "x509: certificate is valid for h, not b"},
		{errors.New("lookup a: mail to a@b"), "lookup a: mail to a@b"},

		{errors.New(`net/http: invalid header field name "a b"`), `net/http: invalid header field name "a b"`},
		{errors.New(`net/http: invalid header field name "X-A:"`), `net/http: invalid header field name "X-A:"`},
		{errors.New(`net/http: invalid header field name "A: secret"`), `net/http: invalid header field name "A:"...`},
		{errors.New(`net/http: invalid header field name "A=secret"`), `net/http: invalid header field name "A="...`},
		{errors.New(`net/http: invalid trailer field name "A: secret"`), `net/http: invalid trailer field name "A:"...`},
		{errors.New(`invalid HTTP header name "A: secret"`), `invalid HTTP header name ...`},
		{errors.New(`invalid HTTP trailer name "A: secret"`), `invalid HTTP trailer name ...`},
		{errors.New(`PROTOCOL_ERROR; invalid header field name "a secret"`), `PROTOCOL_ERROR; invalid header field name ...`},
		{errors.New(`bad Content-Length "+3"`), `bad Content-Length "+3"`},
		{errors.New(`bad Content-Length "1, 1"`), `bad Content-Length "1, 1"`},
		{errors.New(`bad Content-Length "secret"`), `bad Content-Length ...`},
		{errors.New(`bad Content-Length "1\"secret"`), `bad Content-Length ...`},
		{errors.New(`net/http: invalid header field name "A:\"secret"`), `net/http: invalid header field name "A:"...`},
		{errors.New(`net/http: invalid header field name "A\"B: secret"`), `net/http: invalid header field name "A\"B:"...`},
		{errors.New(`bad Content-Length "` + strings.Repeat("1", 33) + `"`), `bad Content-Length ...`},
		{errors.New(`net/http: malformed HTTP response "a \"secret\" line"`), "net/http: malformed HTTP response ..."},
		{errors.New(`too many transfer encodings: ["secret" "secret"]`), "too many transfer encodings: ..."},
	} {
		assert.Equal(t, tc.want, redact.Error(tc.err))
	}
}

type hostAddr string

func (hostAddr) Network() string  { return "tcp" }
func (a hostAddr) String() string { return string(a) }

// FuzzErrorHidesASecretAtAnyPlaceOfAURL plants a secret in the userinfo, the query, the fragment or a
// host that holds userinfo. No error that quotes the URL or its host may show it.
func FuzzErrorHidesASecretAtAnyPlaceOfAURL(f *testing.F) {
	for _, seed := range [][4]string{
		{"", "", "host.example", "/path"}, {"user:", "", "[::1]:1", ""}, {"user: ", " x", "a b", "/a b"}, {"@", "@", "@", "/@"},
		{"://", "://", "h://h", "//"}, {"?", "#", "h?q#f", "/?#"}, {`"`, "`", `h"`, "/'"}, {": ", ": ", "a: b", "/: "},
		{"lookup ", "address ", ", not ", "/lookup @"}, {"\xff\x00", "\n", "\r\n", "/\t"}, {"%", "%zz", "%40", "/%2"},
		{"[", "]", "[]", "/[]"}, {"parse ", "Content-Length ", "invalid port ", "/debug="},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, before, after, host, path string) {
		const secret = "S3CR3T"
		if strings.Contains(strings.Join([]string{before, after, host, path}, secret[:1]), secret) {
			return // the secret is no longer unique
		}
		planted := before + secret + after
		byHand := planted + "@" + host
		for name, u := range map[string]*url.URL{
			"user":     {Scheme: "http", Host: host, Path: path, User: url.User(planted)},
			"password": {Scheme: "http", Host: host, Path: path, User: url.UserPassword(host, planted)},
			"query":    {Scheme: "http", Host: host, Path: path, RawQuery: planted},
			"fragment": {Scheme: "http", Host: host, Path: path, Fragment: planted},
			"host":     {Scheme: "http", Host: byHand, Path: path},
		} {
			assert.NotContains(t, redact.URL(u), secret, name)
			quoting := &url.Error{Op: "Get", URL: u.String(), Err: errors.New("refused")}
			errs := []error{quoting, &url.Error{Op: "Get", URL: "http://h/", Err: quoting}, fmt.Errorf("the base: %w", quoting)}
			if _, err := url.Parse(u.String()); err != nil {
				errs = append(errs, err)
			}
			for _, err := range errs {
				assert.NotContains(t, redact.Error(err), secret, "%s: %v", name, err)
			}
		}
		for _, err := range []error{
			&net.DNSError{Err: "no such host", Name: byHand, Server: "127.0.0.1:53"},
			&net.AddrError{Err: "missing port in address", Addr: "[" + byHand + "]:1"},
			x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"h"}}, Host: byHand},
			&net.OpError{Op: "socks connect", Net: "tcp", Addr: hostAddr(byHand), Err: errors.New("refused")},
		} {
			for _, err := range []error{
				err, &net.OpError{Op: "dial", Net: "tcp", Err: err}, errors.Join(errors.New("first"), err), fmt.Errorf("the base: %w", err),
			} {
				assert.NotContains(t, redact.Error(err), secret, "%v", err)
			}
		}
		escaped := url.QueryEscape(planted)
		for _, text := range []string{"http://u:" + escaped + "@h/", "http://h/?a=" + escaped, "http://h/#" + escaped} {
			assert.NotContains(t, redact.Error(errors.New("see "+text+" for more")), secret)
		}
		if !strings.Contains(byHand, ": ") {
			assert.NotContains(t, redact.Error(errors.New("dial tcp: lookup "+byHand+": no such host")), secret)
		}
	})
}
