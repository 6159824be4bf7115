package http2_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/retryhttp/retryhttp"
)

func TestUnencryptedHTTP2ThatIsNotEnabledIsFinal(t *testing.T) {
	req, err := http.NewRequest("GET", "http://127.0.0.1:1/", nil)
	require.NoError(t, err)
	//lint:ignore SA1019 many programs have it as their base all the same
	_, err = retryhttp.New(&http2.Transport{}, retryhttp.Policy{}).RoundTrip(req) //nolint:bodyclose // there is none
	failed, ok := errors.AsType[*retryhttp.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 1, failed.Attempts, "%v", err)
	assert.Equal(t, retryhttp.StopFinal, failed.Stop)
}
