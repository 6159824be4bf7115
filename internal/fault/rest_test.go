package fault_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/fault"
)

func TestWhatIsLeftIsFound(t *testing.T) {
	before := fault.TakeInventory()
	require.NoError(t, before.Left(atRest))

	done := make(chan struct{})
	go func() { <-done }()
	assert.ErrorContains(t, before.Left(10*time.Millisecond), "goroutines are left")
	close(done)
	require.NoError(t, before.Left(atRest))

	file, err := os.Open(os.DevNull)
	require.NoError(t, err)
	assert.ErrorContains(t, before.Left(atRest), "open files")
	require.NoError(t, file.Close())
	require.NoError(t, before.Left(atRest))
}
