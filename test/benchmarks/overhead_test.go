package benchmarks

import (
	"flag"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	overheadOnly = flag.Bool("overhead", false, "measure what the library adds to a request, and log it")
	goroutines   = flag.Int("goroutines", runtime.GOMAXPROCS(0), "the most goroutines that send at once for -overhead")
)

// TestOverhead is the part of the report that is quick enough to run after each
// change to the library.
func TestOverhead(t *testing.T) {
	if !*overheadOnly || testing.Short() {
		t.Skip("-overhead is not set")
	}
	r := &report{sizes: fullSize}
	t.Run("first attempts", func(t *testing.T) {
		r.measureFirstAttempts(t)
		t.Log("\n" + r.overhead.firstTable())
	})
	t.Run("retries", func(t *testing.T) {
		r.measureFailedTwice(t)
		t.Log("\n" + r.overhead.retriesTables())
	})
	t.Run("sleepers", func(t *testing.T) {
		wait := withFloor("a wait and nothing else", sleepOnly)[floor]
		r.measureAsleepAmong(t, []peer{wait, peers[ours], peerNamed("rehttp")})
		t.Log("\n" + r.asleepTable())
	})
}

func (r *report) measureFirstAttempts(t *testing.T) {
	require.NoError(t, r.overhead.firstAttempts(r.sizes.FirstRounds, r.sizes.Turn, *goroutines))
}

func (r *report) measureFailedTwice(t *testing.T) {
	require.NoError(t, r.overhead.failedTwice(r.sizes.RetryRounds, r.sizes.Turn))
}
