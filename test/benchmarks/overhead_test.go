package benchmarks

import (
	"cmp"
	"flag"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	overheadOnly = flag.Bool("overhead", false, "measure what the library adds to a request, and log it")
	goroutines   = flag.Int("goroutines", 0, "the most goroutines that send first attempts at once; 0: GOMAXPROCS")
)

// TestOverhead is the part of the report that is quick enough to run after each
// change to the library.
func TestOverhead(t *testing.T) {
	r := &report{sizes: smallSize} // which only shows that the measurement runs
	if *overheadOnly {
		r.sizes = fullSize
	}
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
	most := cmp.Or(*goroutines, runtime.GOMAXPROCS(0))
	require.NoError(t, r.overhead.firstAttempts(r.sizes.FirstRounds, r.sizes.FirstTurn, most))
}

func (r *report) measureFailedTwice(t *testing.T) {
	require.NoError(t, r.overhead.failedTwice(r.sizes.RetryRounds, r.sizes.RetryTurn))
}

// Each request waits for a request of the other lane.
func TestLanesSendAtOnce(t *testing.T) {
	two, err := newLanes(2)
	require.NoError(t, err)
	defer two.stop()
	var sent atomic.Int64
	met := make(chan struct{})
	_, err = two.run(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if sent.Add(1)%2 == 0 {
			met <- struct{}{}
		} else {
			<-met
		}
		return inPlace(req)
	}), 10)
	require.NoError(t, err)
	assert.Equal(t, int64(20), sent.Load())
}

func TestLowerQuartileIsOfEachContender(t *testing.T) {
	next := map[string]float64{"slow": 1000}
	costs, err := inTurns(100, []string{"quick", "slow"}, func(name string) (cost, error) {
		next[name]++ // 1 is the round that warms up
		return cost{ns: next[name]}, nil
	})
	require.NoError(t, err)
	assert.Equal(t, []cost{{ns: 27}, {ns: 1027}}, costs)
}

func TestWhoReadsFailures(t *testing.T) {
	assert.True(t, readsFailures(peers[ours]))
	assert.True(t, readsFailures(peerNamed("rehttp")))
	assert.False(t, readsFailures(peerNamed("heimdall")))
}

func TestAConnectionInMemoryFailsTwoOfThree(t *testing.T) {
	base, stop := failTwiceOverAConnection()
	defer stop()
	var got []int
	for range 3 {
		req, err := newRequest(t.Context(), "GET", nowhere, nil)
		require.NoError(t, err)
		resp, err := base.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, discard(io.Discard, resp.Body))
		require.NoError(t, resp.Body.Close())
		got = append(got, resp.StatusCode)
	}
	assert.Equal(t, []int{503, 503, 200}, got)
}
