package retryhttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
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

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/pause"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// Each test exposes a recipe of the documents to what it is for. The first tests are about the policies
// of docs/choosing.md.

// serving runs test in a bubble, with a base that talks to h.
func serving(t *testing.T, h http.HandlerFunc, test func(t *testing.T, base http.RoundTripper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(h)
		defer stop()
		test(t, base)
	})
}

// fresh returns p with a Budget, a Gate and a Hedge of its own, which no other test has used.
func fresh(p retryhttp.Policy) retryhttp.Policy {
	if b, ok := p.Budget.(*retryhttp.TokenBucket); ok {
		p.Budget = &retryhttp.TokenBucket{Ratio: b.Ratio, Burst: b.Burst, MinPerSecond: b.MinPerSecond}
	}
	if p.Gate != nil {
		p.Gate = &retryhttp.Gate{Hold: p.Gate.Hold}
	}
	if p.Hedge != nil {
		p.Hedge = &retryhttp.Hedge{Share: p.Hedge.Share}
	}
	return p
}

// A 503 is retried, and half of a document, a page or a receipt is worth nothing.
func TestPolicyRetriesWhatItIsFor(t *testing.T) {
	half := sends(200, "to be", io.ErrUnexpectedEOF, "Content-Length", "10")
	type testCase struct {
		policy retryhttp.Policy
		first  script.Step
	}
	inBubbles(t, map[string]testCase{
		"an interactive call":           {interactive, script.Status(503)},
		"a command":                     {command, script.Status(503)},
		"a quick read":                  {quickRead, script.Status(503)},
		"a job of cron":                 {fromCron, script.Status(503)},
		"a page":                        {crawl, half},
		"a receipt":                     {payment, half},
		"a small answer":                {smallAnswers, half},
		"a limit that names its window": {limited, script.Status(403, "RateLimit", `"hourly";r=0;t=60`)},
	}, func(t *testing.T, c testCase) {
		base := script.New(c.first, sends(200, "to be, not", io.EOF, "Content-Length", "10"))
		got, err := download(t, base, fresh(c.policy))
		require.NoError(t, err)
		assert.Equal(t, "to be, not", got)
		assert.Len(t, base.Requests(), 2)
	})
}

// Twenty workers ask one host at once.
func TestPolicyKeepsAWorkerNoLongerThanItSays(t *testing.T) {
	for name, c := range map[string]struct {
		policy  retryhttp.Policy
		timeout time.Duration // of the http.Client
		host    http.HandlerFunc
		limit   time.Duration
		closed  time.Duration // for how long the Gate then says that the host is, or 0 for any time
	}{
		"an interactive call":              {interactive, 2 * time.Second, hang, 2 * time.Second, 0},
		"a command at a silent server":     {command, 0, hang, command.MaxElapsed + command.AttemptTimeout, 0},
		"a command at a busy server":       {command, 0, status(503, "Retry-After", "5"), command.MaxElapsed, 0},
		"a crawler at a limited host":      {crawl, 0, status(429, "Retry-After", "60"), 0, crawl.MaxRetryAfter},
		"a crawler at a dead host":         {crawl, 0, hangUp, 750*ms + 2*crawl.Gate.Hold, 0}, // waits and holds
		"a webhook at a silent host":       {webhooks, 0, hang, webhooks.AttemptTimeout, 0},
		"a webhook and a limit of an hour": {webhooks, 0, status(429, "Retry-After", "3600"), 0, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			serving(t, c.host, func(t *testing.T, base http.RoundTripper) {
				policy := fresh(c.policy)
				policy.OnRetry = nil // a command prints there
				if policy.Gate == nil {
					policy.Gate = new(retryhttp.Gate)
				}
				client := &http.Client{Transport: retryhttp.New(base, policy), Timeout: c.timeout}
				var working sync.WaitGroup
				for range 20 {
					working.Go(func() {
						start := time.Now()
						resp, err := client.Do(getURL(t, "http://host.example/"))
						assert.LessOrEqual(t, time.Since(start), c.limit)
						if err == nil {
							assert.NoError(t, resp.Body.Close())
							assert.NotEqual(t, http.StatusOK, resp.StatusCode)
						}
					})
				}
				working.Wait()
				if c.closed > 0 {
					assert.Equal(t, c.closed, policy.Gate.Status(requestTo("host.example")).Closed)
				}
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
		resp := answerTo(t, retryhttp.New(base, batch), getURL(t, "http://host.example/"))
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
			var made atomic.Int64
			serving(t, func(w http.ResponseWriter, r *http.Request) {
				began, known := payments.LoadOrStore(r.Header.Get("Idempotency-Key"), time.Now())
				switch {
				case !known:
					made.Add(1)
					if tc.lost {
						panic(http.ErrAbortHandler)
					}
					time.Sleep(tc.needs)
				case time.Since(began.(time.Time)) < tc.needs:
					w.WriteHeader(http.StatusConflict)
				}
			}, func(t *testing.T, base http.RoundTripper) {
				rt := retryhttp.New(base, fresh(payment))
				var wg sync.WaitGroup
				for i := range 10 {
					wg.Go(func() {
						req, err := http.NewRequest(http.MethodPost, "http://host.example/", strings.NewReader("{}"))
						assert.NoError(t, err)
						req.Header.Set("Idempotency-Key", fmt.Sprint("order-", i))
						resp, err := rt.RoundTrip(req)
						if assert.NoError(t, err) {
							assert.NoError(t, resp.Body.Close())
							assert.Equal(t, http.StatusOK, resp.StatusCode)
							assert.True(t, retryhttp.OutcomeOf(resp).Ambiguous)
						}
					})
				}
				wg.Wait()
				assert.EqualValues(t, 10, made.Load())
				time.Sleep(tc.needs) // until the last has been worked on
			})
		})
	}
}

func TestLargeUploadToAServerThatStopsReadingIsSentAgain(t *testing.T) {
	const size = 1 << 20
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
		file := bodies.File(t, strings.Repeat("x", size))
		req := uploadOf(t, file)
		req.ContentLength = size
		client := &http.Client{Transport: retryhttp.New(base, largeUpload), Timeout: time.Hour}
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.EqualValues(t, size, got.Load())
		assert.EqualValues(t, 2, attempts.Load())
		time.Sleep(2 * time.Hour) // until the server has given up as well
	})
}

func TestRateLimitIsWaitedForWhateverItsStatus(t *testing.T) {
	for _, tc := range []struct {
		method, after    string
		status, attempts int
	}{
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
			req := requestOf(t, tc.method, nil)
			answerTo(t, retryhttp.New(base, limited), req)
			assert.Equal(t, tc.attempts, n, "%v", tc)
		})
	}
}

// Each attempt brings two mebibytes, and then breaks off or falls silent. After the first, the server is
// down for longer than the waits of the default policy, which are over after 1.75 s.
func TestLargeDownloadOutlastsABadLineAndAnOutage(t *testing.T) {
	const size, piece = 24 << 20, 2 << 20
	var broke time.Time
	pieces := 0
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		if pieces == 1 && time.Since(broke) < 2*time.Second {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Etag", `"v1"`)
		broke = time.Now()
		stalled, end := context.WithCancel(r.Context())
		defer end()
		if pieces++; pieces%2 == 1 {
			end()
			defer hangUp(w, r)
		}
		http.ServeContent(&stalledWriter{w, piece, stalled}, r, "", time.Time{}, io.NewSectionReader(zeros{}, 0, size))
	}, func(t *testing.T, base http.RoundTripper) {
		start := time.Now()
		got, err := download(t, base, fresh(largeDownload))
		require.NoError(t, err)
		assert.Len(t, got, size)
		assert.Equal(t, size/piece, pieces)
		assert.Less(t, time.Since(start), size/piece*(largeDownload.StallTimeout+time.Second))
	})
}

// The receiver has chosen the address, which leads into the sender's own network.
func TestWebhookToAnAddressThatTheDialerRefusesIsFinal(t *testing.T) {
	dialer := &net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
		return retryhttp.Permanent(errBroken)
	}}
	base := &http.Transport{DialContext: dialer.DialContext}
	_, err := retryhttp.New(base, fresh(webhooks)).RoundTrip(getURL(t, "http://127.0.0.1:9/"))
	assert.ErrorIs(t, err, errBroken)
	assert.Equal(t, 1, errorOf(t, err).Attempts)
	assert.Equal(t, retryhttp.StopFinal, errorOf(t, err).Stop)
}

// One request in a hundred is slow by chance.
func TestQuickReadIsQuickWhenOneReplicaIsNot(t *testing.T) {
	var attempts atomic.Int64
	serving(t, func(_ http.ResponseWriter, r *http.Request) {
		latency := 10 * time.Millisecond
		if attempts.Add(1)%100 == 0 {
			latency = time.Second
		}
		_ = pause.For(r.Context(), latency)
	}, func(t *testing.T, base http.RoundTripper) {
		rt := retryhttp.New(base, fresh(quickRead))
		slow, hedges := 0, 0
		for i := range 1000 {
			start := time.Now()
			resp := answerTo(t, rt, getURL(t, "http://host.example/"))
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

func TestDeadlinesHeadersFollowWhatIsLeft(t *testing.T) {
	type testCase struct {
		timeout, caller time.Duration
		want            []string
	}
	inBubbles(t, map[string]testCase{
		"neither":                {0, 0, []string{"", "", ""}},
		"both":                   {time.Second, 3 * time.Second, []string{"1000", "1000", "600"}},
		"more than eight digits": {48 * time.Hour, 0, []string{"99999999", "99999999", "99999999"}},
	}, func(t *testing.T, c testCase) {
		base := script.New(script.Status(503), script.Status(503), script.Status(200))
		ctx, cancel := endingIn(t.Context(), c.caller)
		defer cancel()
		p := retryhttp.Policy{AttemptTimeout: c.timeout, Backoff: retryhttp.Constant(1200 * ms)}
		req := get(t, ctx)
		answerTo(t, retryhttp.New(deadlines{base}, p), req)
		for i, sent := range base.Requests() {
			assert.Equal(t, c.want[i], sent.Header.Get("X-Envoy-Expected-Rq-Timeout-Ms"))
			assert.Equal(t, c.want[i], strings.TrimSuffix(sent.Header.Get("Grpc-Timeout"), "m"))
		}
		assert.Empty(t, req.Header, "the caller's request is not changed")
	})
}

// The server refuses the old token before or after it has read the body, and is busy once.
func TestRefreshingSendsEachBodyWholeWithTheNewToken(t *testing.T) {
	const size = 40_000
	text := strings.Repeat("0123456789", size/10)
	stream := func() io.Reader { return io.MultiReader(strings.NewReader(text)) }
	for name, c := range map[string]struct {
		body   func() io.Reader
		length int64 // of a body that http.NewRequest does not know
		status int
	}{
		"a string":               {func() io.Reader { return strings.NewReader(text) }, size, 200},
		"a file":                 {func() io.Reader { return bodies.File(t, text) }, size, 200},
		"a stream":               {stream, size, 200},
		"a stream of any length": {stream, -1, 401},
	} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, refused early: %t", name, early), func(t *testing.T) {
				var got []string
				busy := true
				serving(t, func(w http.ResponseWriter, r *http.Request) {
					valid := r.Header.Get("Authorization") == "Bearer 2"
					if !valid && early {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					body, err := io.ReadAll(r.Body)
					switch {
					case !valid:
						w.WriteHeader(http.StatusUnauthorized)
					case err != nil || busy:
						busy = false
						w.WriteHeader(http.StatusServiceUnavailable)
					default:
						got = append(got, string(body))
					}
				}, func(t *testing.T, base http.RoundTripper) {
					tokens := 0
					rt := retryhttp.New(newRefreshing(base, "host.example", func(context.Context) (string, error) {
						tokens++
						return strconv.Itoa(tokens), nil
					}), retryhttp.Policy{RecordBytes: size})
					req := uploadOf(t, c.body())
					req.ContentLength = c.length
					resp := answerTo(t, rt, req)
					assert.Equal(t, c.status, resp.StatusCode)
					if c.status != http.StatusOK {
						assert.Empty(t, got)
						return
					}
					assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts, "the 503")
					assert.Equal(t, 2, tokens)
					require.Len(t, got, 1)
					assert.True(t, got[0] == text, "%d bytes", len(got[0]))
				})
			})
		}
	}
}

func TestRefreshingFetchesOneTokenForAllThatAreRefused(t *testing.T) {
	var valid, fetched atomic.Int64
	serving(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Second)
		if r.Header.Get("Authorization") != fmt.Sprint("Bearer ", valid.Load()) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}, func(t *testing.T, base http.RoundTripper) {
		rt := retryhttp.New(newRefreshing(base, "host.example", func(context.Context) (string, error) {
			time.Sleep(time.Second)
			return fmt.Sprint(fetched.Add(1)), nil
		}), retryhttp.Policy{})
		ask := func(url string, want int) {
			resp, err := rt.RoundTrip(getURL(t, url))
			if assert.NoError(t, err) {
				assert.NoError(t, resp.Body.Close())
				assert.Equal(t, want, resp.StatusCode)
			}
		}
		for round := range 2 {
			valid.Add(1)
			start := time.Now()
			var running sync.WaitGroup
			for range 50 {
				running.Go(func() { ask("http://host.example/", http.StatusOK) })
			}
			running.Wait()
			assert.EqualValues(t, round+1, fetched.Load())
			assert.Equal(t, time.Duration(round+2)*time.Second, time.Since(start))
		}
		ask("http://other.example/", http.StatusUnauthorized) // another host has no token
	})
}

// The tests below are about the recipes of example_recipes_test.go.

// halving is a server that answers each second attempt with the protocol and the length of the body, and
// a Transport like http.DefaultTransport that trusts it.
type halving struct {
	url      string
	proto    string // of the answers
	real     *http.Transport
	attempts atomic.Int64
	conns    sync.Map // by the client's address
}

func (s *halving) answer(w http.ResponseWriter, r *http.Request) {
	s.conns.Store(r.RemoteAddr, true)
	n, _ := io.Copy(io.Discard, r.Body)
	if s.attempts.Add(1)%2 == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprint(w, r.Proto, " ", n)
}

// dialed returns how many connections have been used.
func (s *halving) dialed() (n int) {
	s.conns.Range(func(any, any) bool { n++; return true })
	return n
}

// fetch requires that a body of this length arrives at each of this many attempts.
func (s *halving) fetch(t *testing.T, rt http.RoundTripper, body io.Reader, length, attempts int) {
	t.Helper()
	s.attempts.Store(0)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.url, body)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: rt, Timeout: time.Minute}).Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, fmt.Sprint(s.proto, " ", length), string(text))
	assert.EqualValues(t, attempts, s.attempts.Load())
}

var soon = retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond), Budget: retryhttp.Unlimited{}}

// onSchemes runs test with each scheme and protocol, where the real Transport has been used before or not.
func onSchemes(t *testing.T, test func(t *testing.T, s *halving)) {
	for scheme, proto := range map[string]string{"http": "HTTP/1.1", "https": "HTTP/1.1", "HTTP/2": "HTTP/2.0"} {
		for _, used := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, used before: %t", scheme, used), func(t *testing.T) {
				s := &halving{proto: proto, real: http.DefaultTransport.(*http.Transport).Clone()}
				if scheme == "http" {
					s.url = loopback.Serve(t, s.answer)
				} else {
					var trusting *http.Transport
					s.url, trusting = loopback.ServeTLS(t, proto == "HTTP/2.0", s.answer)
					s.real.TLSClientConfig = &tls.Config{RootCAs: trusting.TLSClientConfig.RootCAs}
				}
				t.Cleanup(s.real.CloseIdleConnections)
				if used {
					s.fetch(t, s.real, nil, 0, 1)
				}
				test(t, s)
			})
		}
	}
}

func TestDefaultTransportThatRetries(t *testing.T) {
	onSchemes(t, func(t *testing.T, s *halving) {
		var logged bytes.Buffer
		log.SetOutput(&logged)
		defer log.SetOutput(os.Stderr)
		onTime, p := 0, soon
		p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) {
			if a.Detour {
				onTime++
			}
		}
		outer := retryingByDefault(s.real, p)
		for range 3 {
			s.fetch(t, outer, strings.NewReader("body"), 4, 2)
			// Changes have no effect: the connections are the real Transport's, and so are their settings.
			outer.DialContext = func(context.Context, string, string) (net.Conn, error) {
				t.Error("dialed")
				return nil, errBroken
			}
			outer.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13} // does not trust the server
			outer.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.invalid"})
			outer.DisableKeepAlives = true
			outer.CloseIdleConnections()
		}
		assert.LessOrEqual(t, s.dialed(), 3, "the pool's connection and two detours are used again")
		if onTime == 3 { // a dial of more than a second, on a busy machine, leaves its retry to the pool
			assert.Equal(t, 3, s.dialed())
		}
		dialed := s.dialed()
		s.real.CloseIdleConnections()
		s.fetch(t, s.real, nil, 0, 1)
		assert.Equal(t, dialed+1, s.dialed(), "the pool was empty")
		assert.Empty(t, logged.String(), "net/http complains of nothing")
	})
}

// An *http.Transport hides the body's type before it asks what is registered. So a file is like any
// stream.
func TestDefaultTransportThatRetriesSendsAFileAsAStream(t *testing.T) {
	onSchemes(t, func(t *testing.T, s *halving) {
		for length, attempts := range map[int]int{64 << 10: 2, 64<<10 + 1: 1} {
			file := bodies.File(t, strings.Repeat("x", length))
			s.fetch(t, retryingByDefault(s.real, soon), file, length, attempts)
		}
	})
}

// A clone is an http.Transport like any other: it has its changes, and no retries.
func TestCloneOfADefaultTransportThatRetriesDoesNotRetry(t *testing.T) {
	onSchemes(t, func(t *testing.T, s *halving) {
		outer := retryingByDefault(s.real, soon)
		s.fetch(t, outer, nil, 0, 2)
		dialed := 0
		clone := outer.Clone()
		clone.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed++
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		defer clone.CloseIdleConnections()
		for range 2 {
			s.fetch(t, clone, nil, 0, 1)
		}
		assert.Equal(t, 1, dialed)
		assert.Panics(t, func() { outer.RegisterProtocol("https", http.DefaultTransport) })
		clone.RegisterProtocol("other", http.DefaultTransport)
	})
}

// net/http sends upgrades over https itself, since they need HTTP/1.
func TestDefaultTransportThatRetriesLeavesUpgradesOverHTTPSAlone(t *testing.T) {
	onSchemes(t, func(t *testing.T, s *halving) {
		outer := retryingByDefault(s.real, soon)
		defer outer.CloseIdleConnections()
		s.attempts.Store(0)
		req := getURL(t, s.url)
		req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
		resp := answerTo(t, outer, req)
		assert.Equal(t, "HTTP/1.1", resp.Proto)
		assert.Equal(t, map[string]int64{"http": 2, "https": 1}[req.URL.Scheme], s.attempts.Load())
	})
}

// Nothing is sent twice, nothing waits, and no response body is read.
func TestDryRunChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread := &bodies.Hooked{OnRead: func([]byte) (int, error) {
			t.Error("read")
			return 0, io.EOF
		}}
		var steps []script.Step
		for range 20 {
			steps = append(steps, script.Respond(503, unread), script.Status(200), script.Fail(errBroken),
				script.Status(503, "Retry-After", "1"), script.Status(429, "Retry-After", "1"))
		}
		base, gate := script.New(steps...), new(retryhttp.Gate)
		stops := map[retryhttp.Stop]int{}
		rt := retryhttp.New(base, retryhttp.Policy{
			Budget: broke{}, Backoff: retryhttp.Constant(0), Gate: gate,
			OnRetry: func(retryhttp.Attempt) { t.Error("retried") },
			OnDone:  func(_ retryhttp.Attempt, o retryhttp.Outcome) { stops[o.Stop]++ },
		})
		start := time.Now()
		for range len(steps) {
			resp, err := rt.RoundTrip(get(t, t.Context()))
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			assert.Zero(t, gate.Status(requestTo("host.example")).Held)
		}
		assert.Zero(t, time.Since(start))
		assert.Len(t, base.Requests(), 100)
		assert.Equal(t, map[retryhttp.Stop]int{retryhttp.StopFinal: 20, retryhttp.StopBudget: 80}, stops)
	})
}

// A POST without a key is sent as well, with RetryUnprocessed: without an address, nothing was sent.
func TestNameThatIsGoneForAMinuteIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			if time.Since(start) < time.Minute {
				return nil, &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}
			}
			return script.Response(req, 200), nil
		})
		policy := fresh(names)
		policy.RetryUnprocessed = true
		req, err := http.NewRequest(http.MethodPost, "http://db.prod.svc.cluster.local:80/", nil)
		require.NoError(t, err)
		resp := answerTo(t, retryhttp.New(base, policy), req)
		assert.False(t, retryhttp.OutcomeOf(resp).Ambiguous)
		assert.Less(t, time.Since(start), names.MaxElapsed)
	})
}

// Envoy's number makes only what the mesh has retried final.
func TestAnswerThatAMeshHasNotRetriedIsRetried(t *testing.T) {
	for count, attempts := range map[string]int{"": 4, "1": 4, "2": 1, "many": 4} {
		base := script.New(script.Status(503, "X-Envoy-Attempt-Count", count))
		policy := noWait
		policy.Classify = meshHasRetried
		answerTo(t, retryhttp.New(base, policy), get(t, t.Context()))
		assert.Len(t, base.Requests(), attempts, "count %q", count)
	}
}
