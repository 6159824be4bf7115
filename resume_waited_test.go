package retryhttp_test

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestBreakCountsTheWaitsBeforeItsResponse(t *testing.T) {
	for name, tc := range map[string]struct {
		answers  []script.Step
		attempts int
		waited   time.Duration
	}{
		"after one wait":  {[]script.Step{script.Status(503), cutAfter(10), script.Status(404)}, 3, 2 * time.Second},
		"after two waits": {[]script.Step{script.Status(503), script.Status(503), cutAfter(10), script.Status(404)}, 4, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := resumes
				p.Backoff = retryhttp.Constant(time.Second)
				_, err := download(t, script.New(tc.answers...), p)
				e := errorOf(t, err)
				assert.Equal(t, tc.attempts, e.Attempts)
				assert.Equal(t, tc.waited, e.Waited)
				assert.Equal(t, tc.waited, e.Elapsed)
			})
		})
	}
}

// Such a break has no *Error, and its record has the Outcome.
func TestBreakThatCannotBeResumedCountsTheWaitsBeforeItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		p := resumes
		p.Backoff = retryhttp.Constant(time.Second)
		p.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
		base := script.New(script.Status(503), cutAfter(1, "Accept-Ranges", "none"))
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		assert.ErrorIs(t, err, retryhttp.ErrNotResumable)
		assert.Contains(t, logged.String(), "attempts=2 elapsed=1s waited=1s")
	})
}
