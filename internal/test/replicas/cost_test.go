package replicas_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// compare returns what a trouble is like with detours and without.
func compare(t *testing.T, p replicas.Protocol, tr trouble) (with, without replicas.Figures) {
	t.Helper()
	with, without = meet(t, p, tr, nil, false), meet(t, p, tr, nil, true)
	t.Logf("%v, with detours: %v", p, with)
	t.Logf("%v, without: %v", p, without)
	return with, without
}

func TestReplicasThatAllFailCostFewConnections(t *testing.T) {
	for _, p := range protocols {
		with, without := compare(t, p, trouble{3, 100, 3 * time.Second, all(broken), false})
		assert.LessOrEqual(t, with.Conns, without.Conns+12, p)
		assert.InDelta(t, without.Attempts, with.Attempts, 0.01, "%v: a detour is no reason for an attempt", p)
	}
}

// After the end of an outage, as many requests succeed as without detours. The requests go on until the
// retries that wait in line have left, because they earn the tokens.
func TestReplicasThatAllFailAndRecoverLoseNoMore(t *testing.T) {
	outage := func(w *replicas.World) {
		all(broken)(w)
		time.AfterFunc(3*time.Second, func() { all(well)(w) })
	}
	for _, p := range protocols {
		with, without := compare(t, p, trouble{3, 100, 8 * time.Second, outage, false})
		assert.InDelta(t, without.Success(), with.Success(), 0.03, p)
		assert.InDelta(t, without.Attempts, with.Attempts, 0.05, p)
	}
}

// A balancer of requests chooses for each request, and an overloaded service fails any request. There
// another connection is of no use.
func TestFailuresByChanceCostFewConnections(t *testing.T) {
	for _, p := range protocols {
		for _, tr := range []trouble{
			{3, 100, 30 * time.Second, all(sometimes(0.5)), false},
			{3, 1, 50 * time.Minute, all(sometimes(0.5)), false},
		} {
			with, without := compare(t, p, tr)
			assert.LessOrEqual(t, float64(with.Conns), 0.06*float64(with.Requests)+float64(without.Conns), p)
			// Both are by chance: the standard deviation of the difference is about 0.02.
			assert.GreaterOrEqual(t, with.Success(), without.Success()-0.08, p)
		}
	}
}

func TestTooManyRequestsOpensNoConnection(t *testing.T) {
	limited := replicas.Status(http.StatusTooManyRequests)
	for _, p := range protocols {
		with, without := compare(t, p, trouble{3, 100, 5 * time.Second, busiest(1, limited), false})
		assert.LessOrEqual(t, with.Conns, without.Conns, p)
	}
}

// A server that is well may fail the first attempts of each of a thousand requests. Each success on a detour pays for 0.08 of a
// dial.
func TestRequestsThatFailTwiceCostFewConnections(t *testing.T) {
	for _, p := range protocols {
		for name, policy := range map[string]retryhttp.Policy{
			"default": {AttemptTimeout: 500 * time.Millisecond},
			"at once": {Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}},
		} {
			synctest.Test(t, func(t *testing.T) {
				conns := dialsOfFailuresByTwos(t, p, policy, true)
				assert.LessOrEqual(t, conns, 85+dialsOfFailuresByTwos(t, p, policy, false), "%v, %s", p, name)
			})
		}
	}
}

func dialsOfFailuresByTwos(t *testing.T, p replicas.Protocol, policy retryhttp.Policy, detours bool) int {
	w := replicas.New(p, 1)
	defer w.Close()
	var n atomic.Int64
	w.Replicas[0].Serve(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%3 != 0 {
			broken(w, r)
		} else {
			well(w, r)
		}
	})
	var base http.RoundTripper = w.Transport()
	if !detours {
		base = hidden{base}
	}
	client := retryhttp.New(base, policy)
	defer client.CloseIdleConnections()
	for range 1000 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL(), nil)
		require.NoError(t, err)
		resp, err := client.RoundTrip(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	return w.Dials()
}

// A replica that is well again gets its share back within a minute: all attempts take the pool again.
func TestReplicaThatRecoversGetsItsShareBack(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, func(t *testing.T) {
			w := replicas.New(p, 3)
			defer w.Close()
			var detours atomic.Int64
			client := retryhttp.New(w.Transport(), retryhttp.Policy{OnDone: func(a retryhttp.Attempt, _ retryhttp.Outcome) {
				if a.Detour {
					detours.Add(1)
				}
			}})
			defer client.CloseIdleConnections()
			w.Warm(client, 100)
			drive := func(d time.Duration) int64 {
				detours.Store(0)
				f := w.Drive(client, replicas.Load{Rate: 100, For: d, Deadline: 5 * time.Second})
				// At first, four attempts of a request may come before there is a detour.
				assert.GreaterOrEqual(t, f.Success(), 0.999, p)
				return detours.Load()
			}
			busiest(1, broken)(w)
			assert.Greater(t, drive(30*time.Second), int64(2000), p)
			all(well)(w)
			drive(time.Minute)
			assert.Zero(t, drive(10*time.Second), p)
		})
	}
}
