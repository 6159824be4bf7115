package fault_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

func TestWhatIsLeftIsFound(t *testing.T) {
	const many = 1000 // far more than the goroutines of other tests that may end meanwhile
	before := fault.TakeInventory()
	done := make(chan struct{})
	for range many {
		go func() { <-done }()
	}
	assert.ErrorContains(t, before.Leaked(10*time.Millisecond), "goroutines are left")
	close(done)
	require.NoError(t, before.Leaked(atRest))

	before = fault.TakeInventory()
	for range 100 {
		file, err := os.Open(os.DevNull)
		require.NoError(t, err)
		defer file.Close()
	}
	assert.ErrorContains(t, before.Leaked(time.Second), "open files")
}
