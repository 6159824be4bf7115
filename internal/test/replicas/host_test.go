package replicas_test

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// choosing returns a World whose balancer chooses the replicas in this order, and then the last one.
// The first replica is broken.
func choosing(of int, order ...int) *replicas.World {
	return choosingOver(replicas.HTTP2, of, order...)
}

func choosingOver(p replicas.Protocol, of int, order ...int) *replicas.World {
	w := replicas.New(p, of)
	w.Choose = func(n int) int { return order[min(n, len(order))-1] }
	w.Replicas[0].Serve(broken)
	return w
}

func statusOf(t *testing.T, client http.RoundTripper, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := client.RoundTrip(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func TestEachHostHasTroubleOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(2, 0, 1, 0, 1)
		defer w.Close()
		client := retryhttp.New(w.Transport(), retryhttp.Policy{})
		defer client.CloseIdleConnections()
		assert.Equal(t, http.StatusOK, statusOf(t, client, "http://one.example/"))
		assert.Equal(t, http.StatusOK, statusOf(t, client, "http://other.example/"))
	})
}

// If all dials that a host has at first reach the broken replica, time pays for more.
func TestDetoursOutliveAnUnluckyBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(2, 0, 0, 0, 0, 1)
		defer w.Close()
		client := retryhttp.New(w.Transport(), retryhttp.Policy{})
		defer client.CloseIdleConnections()
		f := w.Drive(client, replicas.Load{Rate: 1, For: time.Minute, Deadline: 5 * time.Second})
		assert.Greater(t, f.Success(), 0.7, f)
	})
}

// A client that has left a broken replica leaves the next one, too.
func TestReplicaOfADetourBreaks(t *testing.T) {
	for _, p := range protocols {
		for _, c := range []struct {
			attempts int
			served   time.Duration // before it breaks; dials are saved meanwhile
			least    float64
		}{{1, time.Minute, 0.85}, {4, time.Minute, 0.95}, {1, 15 * time.Second, 0.6}, {4, 15 * time.Second, 0.9}} {
			synctest.Test(t, func(t *testing.T) {
				w := choosingOver(p, 3, 0, 1, 2)
				defer w.Close()
				client := retryhttp.New(w.Transport(), retryhttp.Policy{MaxAttempts: c.attempts})
				defer client.CloseIdleConnections()
				w.Drive(client, replicas.Load{Rate: 1, For: c.served, Deadline: 5 * time.Second})
				require.Positive(t, w.Replicas[1].Requests.Load())
				w.Replicas[1].Serve(broken)
				f := w.Drive(client, replicas.Load{Rate: 1, For: time.Minute, Deadline: 5 * time.Second})
				assert.GreaterOrEqual(t, f.Success(), c.least, "%v, %v", p, c)
			})
		}
	}
}

// Latencies have a long tail. The only detour that serves well is not given up for a slow answer: a dial in its place may
// well meet a broken replica.
func TestOnlyDetourOutlivesASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(2, 0, 1, 0)
		defer w.Close()
		client := retryhttp.New(w.Transport(), retryhttp.Policy{})
		defer client.CloseIdleConnections()
		load := replicas.Load{Rate: 1, For: 5 * time.Second, Deadline: 5 * time.Second}
		require.EqualValues(t, 1, w.Drive(client, load).Success())
		require.Equal(t, 2, w.Dials(), "first attempts take the detour")
		w.Replicas[1].Serve(replicas.Well(500 * time.Millisecond))
		assert.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
		w.Replicas[1].Serve(well)
		assert.EqualValues(t, 1, w.Drive(client, load).Success())
		assert.Equal(t, 2, w.Dials())
	})
}

// A few failures say little, as some requests may fail on every replica. In the place of a detour that fails more often,
// another one is tried.
func TestDetourOutlivesTwoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(3, 0, 1, 2)
		defer w.Close()
		client := retryhttp.New(w.Transport(), retryhttp.Policy{MaxAttempts: 1})
		defer client.CloseIdleConnections()
		w.Drive(client, replicas.Load{Rate: 1, For: time.Minute, Deadline: 5 * time.Second})
		require.Equal(t, 2, w.Dials(), "first attempts take the detour")
		w.Replicas[1].Serve(broken)
		require.Equal(t, http.StatusServiceUnavailable, statusOf(t, client, w.URL()))
		require.Equal(t, http.StatusServiceUnavailable, statusOf(t, client, w.URL()))
		w.Replicas[1].Serve(well)
		require.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
		require.Equal(t, 2, w.Dials())
		w.Replicas[1].Serve(inTurns(well, broken))
		w.DialTime = 300 * time.Millisecond
		f := w.Drive(client, replicas.Load{Rate: 20, For: 5 * time.Second, Deadline: 5 * time.Second})
		assert.GreaterOrEqual(t, f.Success(), 0.9)
		assert.LessOrEqual(t, w.Dials(), 5, "three dials at most are under way")
	})
}

// Many requests may fail at once with the only detour.
func TestClientLeavesThePoolAgainAfterItsDetourHasFailedManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(3, 0, 1, 2)
		defer w.Close()
		client := retryhttp.New(w.Transport(), retryhttp.Policy{MaxAttempts: 1})
		defer client.CloseIdleConnections()
		load := replicas.Load{Rate: 1, For: time.Minute, Deadline: 5 * time.Second}
		w.Drive(client, load)
		w.Replicas[1].Serve(func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(usual)
			broken(rw, r)
		})
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() { assert.Equal(t, http.StatusServiceUnavailable, statusOf(t, client, w.URL())) })
		}
		all.Wait()
		assert.GreaterOrEqual(t, w.Drive(client, load).Success(), 0.9)
	})
}

// While the pool fails in part, and all dials so far have reached a broken replica, time pays for more.
func TestPoolThatFailsInPartIsLeftInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(3, 0, 1, 1, 1, 2)
		defer w.Close()
		w.Replicas[0].Serve(inTurns(well, broken))
		w.Replicas[1].Serve(broken)
		client := retryhttp.New(w.Transport(), retryhttp.Policy{})
		defer client.CloseIdleConnections()
		load := replicas.Load{Rate: 20, For: 3 * time.Minute, Deadline: 5 * time.Second}
		w.Drive(client, load)
		assert.GreaterOrEqual(t, w.Drive(client, load).Success(), 0.99)
	})
}

// A pool that fails in part is not left for replicas that are broken: a detour to one of them has one request.
func TestPoolThatFailsInPartIsBetterThanBrokenReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(2, 0, 1)
		defer w.Close()
		w.Replicas[0].Serve(inTurns(well, broken))
		w.Replicas[1].Serve(broken)
		client := retryhttp.New(w.Transport(), retryhttp.Policy{MaxAttempts: 1})
		defer client.CloseIdleConnections()
		f := w.Drive(client, replicas.Load{Rate: 10, For: time.Minute, Deadline: 5 * time.Second})
		assert.LessOrEqual(t, f.Share[1], 0.01)
	})
}

// A pool that fails in part is not left for detours that fail more.
func TestPoolIsNotLeftForDetoursThatFailMore(t *testing.T) {
	for _, p := range protocols {
		for _, c := range []struct {
			attempts      int
			pool, detours http.HandlerFunc
			least         float64
		}{
			{2, inTurns(well, well, well, broken), inTurns(well, broken, broken), 0.8},
			{4, inTurns(well, well, well, well, broken), inTurns(well, broken), 0.95},
		} {
			synctest.Test(t, func(t *testing.T) {
				w := choosingOver(p, 2, 0, 1)
				defer w.Close()
				w.Replicas[0].Serve(c.pool)
				w.Replicas[1].Serve(c.detours)
				client := retryhttp.New(w.Transport(), retryhttp.Policy{MaxAttempts: c.attempts})
				defer client.CloseIdleConnections()
				f := w.Drive(client, replicas.Load{Rate: 1, For: 3 * time.Minute, Deadline: 5 * time.Second})
				assert.GreaterOrEqual(t, f.Success(), c.least, "%v, %d attempts: %v", p, c.attempts, f)
			})
		}
	}
}

// A detour that fails in part is left for another.
func TestBetterDetourTakesTheRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(3, 0, 1, 2)
		defer w.Close()
		w.Replicas[1].Serve(inTurns(well, broken))
		client := retryhttp.New(w.Transport(), retryhttp.Policy{})
		defer client.CloseIdleConnections()
		f := w.Drive(client, replicas.Load{Rate: 1, For: time.Minute, Deadline: 5 * time.Second})
		assert.Greater(t, f.Share[2], 0.8, f)
	})
}

func TestDetoursShareTheRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosingOver(replicas.HTTP2, 3, 0, 1, 2)
		defer w.Close()
		client := retryhttp.New(w.Transport(), retryhttp.Policy{})
		defer client.CloseIdleConnections()
		serve := replicas.Well(100 * time.Millisecond)
		w.Replicas[1].Serve(inTurns(serve, broken)) // until there is another detour
		w.Replicas[2].Serve(serve)
		w.Drive(client, replicas.Load{Rate: 1, For: time.Minute, Deadline: 5 * time.Second})
		require.Positive(t, w.Replicas[2].Requests.Load())
		w.Replicas[1].Serve(serve)
		f := w.Drive(client, replicas.Load{Rate: 100, For: 20 * time.Second, Deadline: 5 * time.Second})
		assert.Greater(t, f.Share[1], 0.3, f)
		assert.Greater(t, f.Share[2], 0.3, f)
	})
}

// Beside another detour that serves well, a detour that is slow is given up.
func TestSlowDetourIsGivenUpBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosingOver(replicas.HTTP1, 3, 0, 1, 2)
		defer w.Close()
		client := retryhttp.New(w.Transport(), retryhttp.Policy{})
		defer client.CloseIdleConnections()
		pair := func() {
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() { assert.Equal(t, http.StatusOK, statusOf(t, client, w.URL())) })
			}
			both.Wait()
		}
		assert.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
		for range 3 { // over HTTP/1, two requests at once need two detours
			pair()
		}
		synctest.Wait()
		open := w.Open()
		require.Positive(t, w.Replicas[2].Requests.Load(), "there are two detours")
		w.Replicas[2].Serve(replicas.Well(500 * time.Millisecond))
		pair()
		synctest.Wait()
		assert.Equal(t, open-1, w.Open())
	})
}

// A detour may have met a broken replica. Until it has answered well, it has one request.
func TestDetourThatHasNotServedHasOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(3, 0, 1, 2)
		defer w.Close()
		w.Replicas[1].Serve(replicas.Well(2 * time.Second))
		client := retryhttp.New(w.Transport(), retryhttp.Policy{})
		defer client.CloseIdleConnections()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { assert.Equal(t, http.StatusOK, statusOf(t, client, w.URL())) })
			time.Sleep(time.Second)
		}
		both.Wait()
		assert.EqualValues(t, 1, w.Replicas[1].Requests.Load())
		assert.EqualValues(t, 1, w.Replicas[2].Requests.Load())
	})
}

// A retry after a hedge takes another connection than both attempts, whose detours have served well for long.
func TestRetryAfterAHedgeTakesAnotherDetour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(4, 0, 1, 2, 3)
		defer w.Close()
		client := retryhttp.New(w.Transport(), retryhttp.Policy{
			Hedge: &retryhttp.Hedge{After: 50 * time.Millisecond}, Backoff: retryhttp.Constant(time.Second),
		})
		defer client.CloseIdleConnections()
		w.Drive(client, replicas.Load{Rate: 1, For: 5 * time.Second, Deadline: 5 * time.Second})
		slow := func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(60 * time.Millisecond)
			broken(rw, r)
		}
		w.Replicas[1].Serve(slow)
		require.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
		require.Equal(t, 3, w.Dials(), "a hedge has taken a new detour")
		for _, r := range w.Replicas[1:3] {
			r.Serve(replicas.Well(20 * time.Millisecond))
		}
		w.Drive(client, replicas.Load{Rate: 100, For: 10 * time.Second, Deadline: 5 * time.Second})
		require.Equal(t, 3, w.Dials())
		w.Replicas[1].Serve(slow)
		w.Replicas[2].Serve(slow)
		before := [2]int64{w.Replicas[1].Requests.Load(), w.Replicas[2].Requests.Load()}
		require.Less(t, int64(100), min(before[0], before[1]), "both detours are in use")
		assert.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
		assert.Equal(t, before[0]+1, w.Replicas[1].Requests.Load())
		assert.Equal(t, before[1]+1, w.Replicas[2].Requests.Load())
	})
}

// A hedge takes another detour than the attempt beside it.
func TestHedgeTakesAnotherDetour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := choosing(3, 0, 1, 2)
		defer w.Close()
		client := retryhttp.New(w.Transport(), retryhttp.Policy{Hedge: &retryhttp.Hedge{After: 50 * time.Millisecond}})
		defer client.CloseIdleConnections()
		f := w.Drive(client, replicas.Load{Rate: 1, For: 5 * time.Second, Deadline: 5 * time.Second})
		require.EqualValues(t, 1, f.Success())
		require.Equal(t, 2, w.Dials(), "first attempts take a detour")
		w.Replicas[1].Serve(replicas.Hang)
		begin := time.Now()
		assert.Equal(t, http.StatusOK, statusOf(t, client, w.URL()))
		assert.Less(t, time.Since(begin), time.Second)
	})
}
