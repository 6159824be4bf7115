package closing_test

import (
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
