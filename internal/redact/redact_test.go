package redact_test

import (
	"errors"
	"fmt"
	"net/url"
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
		{errors.New(`net/http: malformed HTTP response "a \"secret\" line"`), "net/http: malformed HTTP response ..."},
		{errors.New(`too many transfer encodings: ["secret" "secret"]`), "too many transfer encodings: ..."},
	} {
		assert.Equal(t, tc.want, redact.Error(tc.err))
	}
}
