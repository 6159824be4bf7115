package retryhttp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// Each test exposes a policy of docs/choosing.md to the failures that it is for.

// serving runs test in a bubble, with a base that talks to h.
func serving(t *testing.T, h http.HandlerFunc, test func(t *testing.T, base http.RoundTripper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(h)
		defer stop()
		test(t, base)
	})
}

func TestInteractiveCallIsOverInTime(t *testing.T) {
	serving(t, hang, func(t *testing.T, base http.RoundTripper) {
		start := time.Now()
		client := &http.Client{Transport: retryhttp.New(base, interactive), Timeout: 2 * time.Second}
		_, err := client.Do(getURL(t, "http://host.example/"))
		require.Error(t, err)
		assert.LessOrEqual(t, time.Since(start), 2*time.Second)
	})
}

func TestInteractiveCallThatMayNotBeRepeatedIsOnlyCutShort(t *testing.T) {
	slow := func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }
	unset := func(p *retryhttp.Policy) { p.AttemptTimeout = 0 }
	for name, tc := range map[string]struct {
		edit func(*retryhttp.Policy)
		ok   bool
	}{"limited": {func(*retryhttp.Policy) {}, false}, "not limited": {unset, true}} {
		t.Run(name, func(t *testing.T) {
			serving(t, slow, func(t *testing.T, base http.RoundTripper) {
				ctx := retryhttp.WithPolicy(t.Context(), tc.edit)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://host.example/", nil)
				require.NoError(t, err)
				resp, err := retryhttp.New(base, interactive).RoundTrip(req)
				if tc.ok {
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					return
				}
				assert.Equal(t, 1, errorOf(t, err).Attempts)
				time.Sleep(time.Minute) // until the server has done it all the same
			})
		})
	}
}

func TestBatchJobOutlastsAnOutageAndDoesItsServerNoHarm(t *testing.T) {
	const outage = 10 * time.Minute
	var start time.Time
	attempts := 0
	serving(t, func(w http.ResponseWriter, _ *http.Request) {
		attempts++
		if time.Since(start) < outage {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}, func(t *testing.T, base http.RoundTripper) {
		start = time.Now()
		resp, err := retryhttp.New(base, batch).RoundTrip(getURL(t, "http://host.example/"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Less(t, attempts, 60) // 25 in the mean, with a deviation of 3
	})
}

// The server works on a payment for a while, even if the client no longer listens.
// It answers 409 to any repetition until then. Ten payments are under way at once.
func TestPaymentIsMadeOnceThoughItsAnswerIsLost(t *testing.T) {
	for name, tc := range map[string]struct {
		needs time.Duration
		lost  bool
	}{
		"the connection breaks":                   {2 * time.Second, true},
		"it takes longer than an attempt's limit": {40 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			var payments sync.Map // when each began, by its key
			serving(t, func(w http.ResponseWriter, r *http.Request) {
				began, known := payments.LoadOrStore(r.Header.Get("Idempotency-Key"), time.Now())
				switch {
				case !known && tc.lost:
					panic(http.ErrAbortHandler)
				case !known:
					time.Sleep(tc.needs)
				case time.Since(began.(time.Time)) < tc.needs:
					w.WriteHeader(http.StatusConflict)
				}
			}, func(t *testing.T, base http.RoundTripper) {
				const atOnce = 10
				policy := payment
				policy.Budget = unused(payment)
				rt := retryhttp.New(base, policy)
				var wg sync.WaitGroup
				for i := range atOnce {
					wg.Go(func() {
						status, outcome := pay(t, rt, fmt.Sprint("order-", i))
						assert.Equal(t, http.StatusOK, status)
						assert.True(t, outcome.Ambiguous)
					})
				}
				wg.Wait()
				keys := 0
				payments.Range(func(any, any) bool { keys++; return true })
				assert.Equal(t, atOnce, keys)
				time.Sleep(tc.needs) // until the last has been worked on
			})
		})
	}
}

func pay(t *testing.T, rt http.RoundTripper, key string) (int, retryhttp.Outcome) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://host.example/", strings.NewReader("{}"))
	if !assert.NoError(t, err) {
		return 0, retryhttp.Outcome{}
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := rt.RoundTrip(req)
	if !assert.NoError(t, err) {
		return 0, retryhttp.Outcome{}
	}
	assert.NoError(t, resp.Body.Close())
	return resp.StatusCode, retryhttp.OutcomeOf(resp)
}

// unused returns a bucket like the policy's that no other test has used.
func unused(p retryhttp.Policy) retryhttp.Budget {
	b := p.Budget.(*retryhttp.TokenBucket)
	return &retryhttp.TokenBucket{Ratio: b.Ratio, Burst: b.Burst, MinPerSecond: b.MinPerSecond}
}

func TestPaymentAfterAnOutageGetsItsRetries(t *testing.T) {
	var began atomic.Pointer[time.Time]
	var up atomic.Bool
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		switch at := began.Load(); {
		case !up.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case at == nil:
			now := time.Now()
			began.Store(&now)
			panic(http.ErrAbortHandler)
		case time.Since(*at) < 10*time.Second:
			w.WriteHeader(http.StatusConflict)
		}
	}, func(t *testing.T, base http.RoundTripper) {
		policy := payment
		policy.Budget = unused(payment)
		rt := retryhttp.New(base, policy)
		for range 20 {
			status, _ := pay(t, rt, "order-4711")
			require.Equal(t, http.StatusServiceUnavailable, status)
		}
		up.Store(true)
		status, _ := pay(t, rt, "order-4712")
		assert.Equal(t, http.StatusOK, status)
	})
}

// A refused second attempt says nothing about the first.
func TestPaymentThatWasRefusedInTheEndMayHaveBeenMade(t *testing.T) {
	for _, status := range []int{401, 403, 404, 408, 422, 429} {
		n := 0
		serving(t, func(w http.ResponseWriter, r *http.Request) {
			if n++; n == 1 {
				panic(http.ErrAbortHandler) // and it was made
			}
			w.WriteHeader(status)
		}, func(t *testing.T, base http.RoundTripper) {
			policy := payment
			policy.Budget = unused(payment)
			got, outcome := pay(t, retryhttp.New(base, policy), "order-4711")
			assert.Equal(t, status, got)
			assert.True(t, outcome.Ambiguous)
		})
	}
}

func TestPaymentWhoseReceiptBreaksOffIsRequestedAgain(t *testing.T) {
	n := 0
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		const receipt = `{"paid": true}`
		w.Header().Set("Content-Length", strconv.Itoa(len(receipt)))
		if n++; n == 1 {
			_, _ = io.WriteString(w, receipt[:5])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, receipt)
	}, func(t *testing.T, base http.RoundTripper) {
		policy := payment
		policy.Budget = unused(payment)
		status, outcome := pay(t, retryhttp.New(base, policy), "order-4711")
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, 2, outcome.Attempts)
	})
}

func TestLargeUploadToAServerThatStopsReadingIsSentAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "upload")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	var attempts, got atomic.Int64
	serving(t, func(_ http.ResponseWriter, r *http.Request) {
		if attempts.Add(1) == 1 {
			_, _ = r.Body.Read(make([]byte, 1000))
			time.Sleep(2 * time.Hour)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		got.Add(n)
	}, func(t *testing.T, base http.RoundTripper) {
		file, err := os.Open(path)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://host.example/", file)
		require.NoError(t, err)
		req.ContentLength = 1 << 20
		client := &http.Client{Transport: retryhttp.New(base, largeUpload), Timeout: time.Hour}
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.EqualValues(t, 1<<20, got.Load())
		assert.EqualValues(t, 2, attempts.Load())
		time.Sleep(2 * time.Hour) // until the server has given up as well
	})
}

func TestRateLimitIsWaitedForWhateverItsStatus(t *testing.T) {
	for _, tc := range []struct {
		method, after    string
		status, attempts int
	}{
		{"GET", "60", 429, 2},
		{"GET", "", 429, 2},
		{"POST", "60", 429, 2},
		{"GET", "60", 403, 2},
		{"POST", "60", 403, 2},
		{"GET", "", 403, 1},
		{"POST", "60", 503, 1},
	} {
		n := 0
		serving(t, func(w http.ResponseWriter, _ *http.Request) {
			if n++; n == 1 {
				w.Header().Set("Retry-After", tc.after)
				w.WriteHeader(tc.status)
			}
		}, func(t *testing.T, base http.RoundTripper) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://host.example/", nil)
			require.NoError(t, err)
			resp, err := retryhttp.New(base, limited).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, tc.attempts, n, "%v", tc)
		})
	}
}

func TestRateLimitThatLastsIsGivenUp(t *testing.T) {
	serving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "300")
		w.WriteHeader(http.StatusTooManyRequests)
	}, func(t *testing.T, base http.RoundTripper) {
		start := time.Now()
		resp, err := retryhttp.New(base, limited).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		assert.LessOrEqual(t, time.Since(start), limited.MaxElapsed)
	})
}

// A limiter fails at once, each time, if the deadline does not allow its wait.
func TestLimiterBelowThatForbidsAWaitCostsNoBudget(t *testing.T) {
	for name, tc := range map[string]struct {
		wrap     func(error) error
		attempts int
	}{
		"permanent": {retryhttp.Permanent, 1},
		"as it is":  {func(err error) error { return err }, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := rate.NewLimiter(rate.Every(time.Hour), 1)
				require.True(t, limiter.Allow())
				base := script.Step(func(req *http.Request) (*http.Response, error) {
					return nil, tc.wrap(limiter.Wait(req.Context()))
				})
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
				defer cancel()
				_, err := retryhttp.New(base, limited).RoundTrip(get(t, ctx))
				assert.Equal(t, tc.attempts, errorOf(t, err).Attempts)
			})
		})
	}
}

func TestLargeDownloadOutlastsABadLine(t *testing.T) {
	const size, piece = 64 << 20, 2 << 20
	stalls := 0
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		if stalls++; stalls%2 == 0 {
			http.ServeContent(&cutWriter{w, piece}, r, "", time.Time{}, io.NewSectionReader(zeros{}, 0, size))
			return
		}
		http.ServeContent(&stalledWriter{w, piece, r.Context()}, r, "", time.Time{}, io.NewSectionReader(zeros{}, 0, size))
	}, func(t *testing.T, base http.RoundTripper) {
		policy := largeDownload
		policy.Budget = unused(largeDownload)
		start := time.Now()
		resp, err := retryhttp.New(base, policy).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		assert.EqualValues(t, size, n)
		assert.Equal(t, size/piece, stalls)
		assert.Less(t, time.Since(start), size/piece*(largeDownload.StallTimeout+time.Second))
	})
}

// The waits of the default policy are over after 1.75 s.
func TestLargeDownloadOutlastsAnOutage(t *testing.T) {
	const size = 4 << 20
	var broke time.Time
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		switch {
		case broke.IsZero():
			broke = time.Now()
			w = &cutWriter{w, size / 2}
		case time.Since(broke) < 2*time.Second:
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(zeros{}, 0, size))
	}, func(t *testing.T, base http.RoundTripper) {
		policy := largeDownload
		policy.Budget = unused(largeDownload)
		got, err := download(t, base, policy)
		require.NoError(t, err)
		assert.Len(t, got, size)
	})
}

func TestLargeDownloadIsGivenUpAfterEightAttempts(t *testing.T) {
	n := 0
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		if n++; n > 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Etag", `"v1"`)
		http.ServeContent(&cutWriter{w, 1000}, r, "", time.Time{}, io.NewSectionReader(zeros{}, 0, 2000))
	}, func(t *testing.T, base http.RoundTripper) {
		policy := largeDownload
		policy.Budget = unused(largeDownload)
		_, err := download(t, base, policy)
		assert.Equal(t, retryhttp.StopAttempts, errorOf(t, err).Stop)
		assert.Equal(t, 8, n)
	})
}

// unusedCrawl returns the policy with a Gate that no other test has used.
func unusedCrawl() retryhttp.Policy {
	policy := crawl
	policy.Gate = &retryhttp.Gate{Hold: crawl.Gate.Hold}
	return policy
}

func TestCrawlerDoesNotWaitForALimitedHost(t *testing.T) {
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	}, func(t *testing.T, base http.RoundTripper) {
		start := time.Now()
		resp, err := retryhttp.New(base, unusedCrawl()).RoundTrip(getURL(t, "http://limited.example/"))
		require.NoError(t, err)
		assert.NoError(t, resp.Body.Close())
		assert.Equal(t, retryhttp.StopRetryAfter, retryhttp.OutcomeOf(resp).Stop)
		assert.Zero(t, time.Since(start))
	})
}

func TestCrawlerIsSoonDoneWithADeadHost(t *testing.T) {
	serving(t, hangUp, func(t *testing.T, base http.RoundTripper) {
		rt := retryhttp.New(base, unusedCrawl())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				start := time.Now()
				_, err := rt.RoundTrip(getURL(t, "http://dead.example/"))
				assert.Error(t, err)
				// two waits of the backoff, and two holds
				assert.LessOrEqual(t, time.Since(start), 250*time.Millisecond+500*time.Millisecond+2*crawl.Gate.Hold)
			})
		}
		wg.Wait()
	})
}

// unusedWebhooks returns the policy with a Gate that no other test has used.
func unusedWebhooks() retryhttp.Policy {
	policy := webhooks
	policy.Gate = new(retryhttp.Gate)
	return policy
}

// deliver returns how the delivery ended and how long its worker was busy. status is 0 for an error.
func deliver(t *testing.T, rt http.RoundTripper, id string) (status int, stop retryhttp.Stop, took time.Duration) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://host.example/", strings.NewReader("{}"))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", id)
	start := time.Now()
	resp, err := rt.RoundTrip(req)
	took = time.Since(start)
	if err != nil {
		return 0, errorOf(t, err).Stop, took
	}
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, retryhttp.OutcomeOf(resp).Stop, took
}

func TestWebhookWorkerIsSoonFree(t *testing.T) {
	silent := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not see that the client goes away
		hang(w, r)
	}
	for name, c := range map[string]struct {
		host   http.HandlerFunc
		status int
		stop   retryhttp.Stop
		took   time.Duration
		closed time.Duration
	}{
		"a silent host":           {silent, 0, retryhttp.StopDeadline, 10 * time.Second, 0},
		"a limit of 30 minutes":   {status(429, "Retry-After", "1800"), 429, retryhttp.StopDeadline, 0, 30 * time.Minute},
		"a closure of 30 minutes": {status(503, "Retry-After", "1800"), 503, retryhttp.StopDeadline, 0, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			serving(t, c.host, func(t *testing.T, base http.RoundTripper) {
				policy := unusedWebhooks()
				status, stop, took := deliver(t, retryhttp.New(base, policy), "1")
				assert.Equal(t, c.status, status)
				assert.Equal(t, c.stop, stop)
				assert.Equal(t, c.took, took)
				closed := policy.Gate.Status(requestTo("host.example")).Closed
				assert.Equal(t, c.closed, closed)
			})
		})
	}
}

func TestWebhookWhoseAnswerIsLostIsRepeatedAtOnceWithItsKey(t *testing.T) {
	var keys []string
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		if keys = append(keys, r.Header.Get("Idempotency-Key")); len(keys) == 1 {
			hangUp(w, r)
		}
	}, func(t *testing.T, base http.RoundTripper) {
		status, _, took := deliver(t, retryhttp.New(base, unusedWebhooks()), "1")
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, []string{"1", "1"}, keys)
		assert.LessOrEqual(t, took, webhooks.MaxElapsed)
	})
}

// Many workers send to a host that goes down. Then its Status says so, until the host is up again.
func TestWebhookHostThatRefusesKeepsNoWorkerAndIsReportedAsDown(t *testing.T) {
	var up atomic.Bool
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			hangUp(w, r)
		}
	}, func(t *testing.T, base http.RoundTripper) {
		policy := unusedWebhooks()
		rt := retryhttp.New(base, policy)
		var working sync.WaitGroup
		for i := range 20 {
			working.Go(func() {
				time.Sleep(time.Duration(i) * 20 * ms)
				status, _, took := deliver(t, rt, strconv.Itoa(i))
				assert.Zero(t, status)
				assert.LessOrEqual(t, took, webhooks.MaxElapsed)
			})
		}
		working.Wait()
		down := policy.Gate.Status(requestTo("host.example")).Down
		assert.True(t, down)
		up.Store(true)
		status, _, _ := deliver(t, rt, "20")
		assert.Equal(t, http.StatusOK, status)
		down = policy.Gate.Status(requestTo("host.example")).Down
		assert.False(t, down)
	})
}

// The receiver has chosen the address, which leads into the sender's own network.
func TestWebhookToAnAddressThatTheDialerRefusesIsFinal(t *testing.T) {
	dialer := &net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
		return retryhttp.Permanent(errBroken)
	}}
	base := &http.Transport{DialContext: dialer.DialContext}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:9/", strings.NewReader("{}"))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "1")
	_, err = retryhttp.New(base, unusedWebhooks()).RoundTrip(req)
	assert.ErrorIs(t, err, errBroken)
	assert.Equal(t, 1, errorOf(t, err).Attempts)
	assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
}

func TestSmallAnswerIsWholeInTime(t *testing.T) {
	first := true
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			_, _ = io.WriteString(w, `{"half`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"half":2}`)
	}, func(t *testing.T, base http.RoundTripper) {
		start := time.Now()
		got, err := download(t, base, smallAnswers)
		require.NoError(t, err)
		assert.Equal(t, `{"half":2}`, got)
		assert.Less(t, time.Since(start), smallAnswers.AttemptTimeout+time.Second)
	})
}

func TestCommandIsOverWhileSomebodyStillLooks(t *testing.T) {
	for name, server := range map[string]http.HandlerFunc{
		"silent": hang,
		"busy": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
	} {
		t.Run(name, func(t *testing.T) {
			serving(t, server, func(t *testing.T, base http.RoundTripper) {
				start := time.Now()
				resp, err := retryhttp.New(base, command).RoundTrip(get(t, context.Background()))
				if err == nil {
					require.NoError(t, resp.Body.Close())
				}
				assert.LessOrEqual(t, time.Since(start), command.MaxElapsed+command.AttemptTimeout)
			})
		})
	}
}

// One request in a hundred is slow by chance.
func TestQuickReadIsQuickWhenOneReplicaIsNot(t *testing.T) {
	var attempts atomic.Int64
	serving(t, func(_ http.ResponseWriter, r *http.Request) {
		latency := 10 * time.Millisecond
		if attempts.Add(1)%100 == 0 {
			latency = time.Second
		}
		select {
		case <-time.After(latency):
		case <-r.Context().Done():
		}
	}, func(t *testing.T, base http.RoundTripper) {
		policy := quickRead
		policy.Hedge = &retryhttp.Hedge{Share: quickRead.Hedge.Share} // of its own, without latencies
		rt := retryhttp.New(base, policy)
		slow, hedges := 0, 0
		for i := range 1000 {
			start := time.Now()
			resp, err := rt.RoundTrip(getURL(t, "http://host.example/"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			if i >= 300 && time.Since(start) > 25*time.Millisecond {
				slow++
			}
			hedges += retryhttp.OutcomeOf(resp).Hedges
		}
		assert.Zero(t, slow)
		assert.LessOrEqual(t, hedges, 21, "a Share, and the first")
		assert.EqualValues(t, hedges, attempts.Load()-1000)
		time.Sleep(time.Second)
	})
}
