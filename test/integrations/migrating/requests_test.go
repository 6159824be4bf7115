package migrating_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cenkalti/backoff/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

func TestAttemptsOfAPOSTWithoutAKey(t *testing.T) {
	forEach(t, map[string]int{
		"go-retryablehttp": 4, "rehttp": 4, "heimdall": 4, "resty": 1, "failsafehttp": 4, "backoff": 4,
		"retryhttp": 1,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want int) {
		base := answering(http.StatusServiceUnavailable)
		req, err := http.NewRequest(http.MethodPost, "http://example.com/", strings.NewReader("hello"))
		require.NoError(t, err)
		resp, _ := build(base).Do(req)
		if resp != nil {
			resp.Body.Close()
		}
		assert.Equal(t, want, base.count())
	})
}

func TestAttemptsOfAPUTWhoseLongBodyCanBeReadOnlyOnce(t *testing.T) {
	forEach(t, map[string]int{
		"go-retryablehttp": 4, "rehttp": 4, "heimdall": 4, "resty": 1, "failsafehttp": 4,
		"retryhttp": 1,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want int) {
		base := answering(http.StatusServiceUnavailable)
		body := io.LimitReader(zeros{}, 65<<10)
		req, err := http.NewRequest(http.MethodPut, "http://example.com/", body)
		require.NoError(t, err)
		resp, _ := build(base).Do(req)
		if resp != nil {
			resp.Body.Close()
		}
		assert.Equal(t, want, base.count())
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestAttemptsOfTenRequestsInAnOutage(t *testing.T) {
	for name, of := range map[string]struct {
		build func(http.RoundTripper) doer
		want  int
	}{
		"go-retryablehttp": {peers["go-retryablehttp"], 40},
		"retryhttp": {func(base http.RoundTripper) doer {
			return &http.Client{Transport: retryhttp.New(base, retryhttp.Policy{})}
		}, 16}, // with the tokens of the burst, and one probe
		"retryhttp, Unlimited": {peers["retryhttp"], 40},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := answering(http.StatusServiceUnavailable)
				client := of.build(base)
				for range 10 {
					_, _ = get(t, t.Context(), client)
				}
				assert.Equal(t, of.want, base.count())
			})
		})
	}
}

// The target of a redirect fails once.
func TestWhatIsSentAgainAfterARedirect(t *testing.T) {
	const both, target = 4, 3
	forEach(t, map[string]int{
		"go-retryablehttp": both, "rehttp": target, "heimdall": both, "resty": both, "failsafehttp": target, "backoff": both,
		"retryhttp": target,
	}, func(t *testing.T, build func(http.RoundTripper) doer, want int) {
		base := &stub{answer: func(n int, req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/" {
				return response(req, http.StatusFound, "Location", "/target"), nil
			}
			if n == 2 {
				return response(req, http.StatusServiceUnavailable), nil
			}
			return response(req, http.StatusOK), nil
		}}
		resp, err := get(t, t.Context(), build(base))
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, want, base.count())
	})
}

func TestABodyThatIsCutIsNotRequestedAgain(t *testing.T) {
	cut := func(n int, req *http.Request) (*http.Response, error) {
		resp := response(req, http.StatusOK)
		if n == 1 {
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("hel"), brokenReader{}))
		}
		return resp, nil
	}
	read := func(client *http.Client) error {
		resp, err := client.Get("http://example.com/")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		theirs, ours := &stub{answer: cut}, &stub{answer: cut}
		_, err := backoff.Retry(t.Context(), func() (any, error) { return nil, read(&http.Client{Transport: theirs}) })
		require.NoError(t, err)
		assert.Equal(t, 2, theirs.count())

		require.ErrorIs(t, read(&http.Client{Transport: retryhttp.New(ours, retryhttp.Policy{})}), io.ErrUnexpectedEOF)
		assert.Equal(t, 1, ours.count())
	})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
