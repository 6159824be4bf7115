package closing_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/closing"
)

type closer func()

func (c closer) Close() error {
	c()
	return nil
}

func TestSoonSeesWhatIsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, start := 0, time.Now()
		closing.Soon(closer(func() { time.Sleep(9 * time.Millisecond); closed++ }))
		assert.Equal(t, 1, closed)
		assert.Equal(t, 9*time.Millisecond, time.Since(start))
	})
}

func TestSoonDoesNotWaitForWhatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, start := false, time.Now()
		closing.Soon(closer(func() { time.Sleep(time.Minute); closed = true }))
		assert.Equal(t, 10*time.Millisecond, time.Since(start))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.True(t, closed)
	})
}

// A base may return a response without a body, or none.
func TestResponseClosesTheBodyThatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		body := struct {
			io.Reader
			closer
		}{closer: func() { closed++ }}
		closing.Response(&http.Response{Body: body})
		assert.Equal(t, 1, closed)
		closing.Response(&http.Response{Body: http.NoBody})
		closing.Response(&http.Response{})
		closing.Response(nil)
	})
}

func TestSoonPanicsInTheCallerThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.PanicsWithValue(t, "no", func() { closing.Soon(closer(func() { panic("no") })) })
	})
}

func TestSoonDropsThePanicThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing.Soon(closer(func() { time.Sleep(time.Minute); panic("no") }))
		time.Sleep(2 * time.Minute)
	})
}
