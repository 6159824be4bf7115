//go:build !race

package retryhttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// armedHedges are Hedges whose timer runs, and does not fire.
func armedHedges() map[string]*retryhttp.Hedge {
	return map[string]*retryhttp.Hedge{
		"after a fixed time": {After: time.Hour},
		"at the quantile":    {Min: time.Hour},
	}
}

// armed returns a Transport whose Hedge knows the latencies of enough answers.
func armed(t *testing.T, base http.RoundTripper, h *retryhttp.Hedge) http.RoundTripper {
	rt := retryhttp.New(base, retryhttp.Policy{Hedge: h})
	req := requestTo("host.example")
	for range 200 {
		roundTripper(rt, req)()
	}
	_, ok := h.Delay(req)
	require.True(t, ok)
	return rt
}

func TestCostOfAHedgeThatIsNotSentIsFiveObjectsAtMost(t *testing.T) {
	for kind, base := range map[string]http.RoundTripper{
		"no body":              &stub{statuses: []int{200}},
		"JSON":                 jsonOf(true),
		"JSON without its end": jsonOf(false),
	} {
		for name, h := range armedHedges() {
			t.Run(name+", "+kind, func(t *testing.T) {
				ours := allocations(armed(t, base, h))
				t.Log(ours - allocations(base))
				assert.LessOrEqual(t, ours-allocations(base), 5.0)
			})
		}
	}
}

func TestCostOfAHedgeIsNothingIfTheRequestIsNotHedged(t *testing.T) {
	for name, p := range map[string]struct {
		method string
		hedge  *retryhttp.Hedge
	}{
		"no Hedge":        {http.MethodGet, nil},
		"no Share":        {http.MethodGet, &retryhttp.Hedge{After: time.Hour, Share: -1}},
		"a write":         {http.MethodPut, &retryhttp.Hedge{After: time.Hour}},
		"too few answers": {http.MethodGet, &retryhttp.Hedge{Share: 1e-9}},
		"not idempotent":  {http.MethodPost, &retryhttp.Hedge{After: time.Hour}},
		"unknown method":  {"PURGE", &retryhttp.Hedge{After: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			base := &stub{statuses: []int{200}}
			req := requestTo("host.example")
			req.Method = p.method
			ours := testing.AllocsPerRun(1000, roundTripper(retryhttp.New(base, retryhttp.Policy{Hedge: p.hedge}), req))
			assert.Zero(t, ours-testing.AllocsPerRun(1000, roundTripper(base, req)))
		})
	}
}

func TestAHedgeThatIsNotSentStartsNoGoroutine(t *testing.T) {
	hedges := armedHedges()
	hedges["zero value"] = new(retryhttp.Hedge)
	for name, h := range hedges {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counts, during := false, 0
				rt := armed(t, script.Step(func(req *http.Request) (*http.Response, error) {
					if counts {
						during = goroutinesInBubble()
					}
					return jsonOf(true).RoundTrip(req)
				}), h)
				counts = true
				alone := goroutinesInBubble()
				roundTripper(rt, requestTo("host.example"))()
				assert.Equal(t, alone, during, "while the base works")
				assert.Equal(t, alone, goroutinesInBubble(), "at the end")
			})
		})
	}
}

// goroutinesInBubble counts the goroutines of the bubble that it is called in. Other tests
// may have left some that are about to end, outside of it.
func goroutinesInBubble() int {
	buf := make([]byte, 1<<20)
	stacks := string(buf[:runtime.Stack(buf, true)])
	bubble := regexp.MustCompile(`synctest bubble \d+\]`).FindString(stacks) // its own stack comes first
	return strings.Count(stacks, bubble)
}

// A hedge that is sent shows that goroutinesInBubble sees goroutines.
func TestAHedgeThatIsSentStartsAGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alone := goroutinesInBubble()
		var during []int
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			during = append(during, goroutinesInBubble())
			time.Sleep(time.Minute)
			return jsonOf(true).RoundTrip(req)
		})
		rt := retryhttp.New(base, retryhttp.Policy{Hedge: &retryhttp.Hedge{After: time.Second}})
		roundTripper(rt, requestTo("host.example"))()
		assert.Equal(t, []int{alone, alone + 1}, during)
		time.Sleep(time.Minute) // in which the hedge ends
	})
}

// These tests run without the race detector, which makes sync.Pool forget at
// random.

func TestCostOfAFirstAttemptSuccessIsNoAllocation(t *testing.T) {
	bare := &stub{statuses: []int{200}}
	for name, rt := range transports(bare) {
		for _, kind := range requestKinds {
			t.Run(name+", "+kind.name, func(t *testing.T) {
				ours := testing.AllocsPerRun(1000, roundTripper(rt, kind.make()))
				assert.Zero(t, ours-testing.AllocsPerRun(1000, roundTripper(bare, kind.make())))
			})
		}
	}
}

func TestCostOfTwoRetriesIsThreeObjects(t *testing.T) {
	bare := &stub{statuses: []int{503, 503, 200}, body: true}
	rt := retryhttp.New(bare, noWait)
	req := requestKinds[0].make()
	once := roundTripper(bare, req)
	floor := testing.AllocsPerRun(1000, func() { once(); once(); once() })
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, roundTripper(rt, req))-floor, 3.0)
}

// A stream that no retry can follow is neither wrapped nor recorded.
func TestCostOfAStreamWithoutRetriesIsTwoObjectsAtMost(t *testing.T) {
	for _, size := range []int{60 << 10, 10 << 20} {
		content := make([]byte, size)
		rt := retryhttp.New(consuming{}, retryhttp.Policy{})
		bare := testing.AllocsPerRun(100, func() { sendStream(consuming{}, content) })
		assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { sendStream(rt, content) })-bare, 2.0)
	}
}

// GetBody allocates as well.
func TestCostOfTwoRetriesOfABodyIsTheirBodies(t *testing.T) {
	bare := &stub{statuses: []int{503, 503, 200}, body: true}
	req, err := http.NewRequest(http.MethodPut, "http://host.example/", bytes.NewReader(make([]byte, 1<<10)))
	require.NoError(t, err)
	body := testing.AllocsPerRun(1000, func() { _, _ = req.GetBody() })
	once := roundTripper(bare, req)
	floor := testing.AllocsPerRun(1000, func() { once(); once(); once() })
	again := testing.AllocsPerRun(1000, roundTripper(retryhttp.New(bare, noWait), req))
	assert.LessOrEqual(t, again-floor, 3.0+2*body)
}

// sendFileTwice PUTs a sparse file through a base that fails at first, and
// returns how much was read of it.
func sendFileTwice(tb testing.TB, size int64) (sent int64) {
	f, err := os.Create(filepath.Join(tb.TempDir(), "upload"))
	require.NoError(tb, err)
	require.NoError(tb, f.Truncate(size))
	req, err := http.NewRequest("PUT", "http://host.example/", f)
	require.NoError(tb, err)
	attempts := 0
	base := script.Step(func(req *http.Request) (*http.Response, error) {
		attempts++
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, req.Body, make([]byte, 32<<10))
		sent += n
		_ = req.Body.Close()
		return &http.Response{StatusCode: 200 + 303*(attempts%2), Body: http.NoBody, Request: req}, err
	})
	resp, err := retryhttp.New(base, noWait).RoundTrip(req)
	require.NoError(tb, err)
	require.NoError(tb, resp.Body.Close())
	return sent
}

func TestCostOfAFileSentAgainIsConstantMemory(t *testing.T) {
	const size = 64 << 20
	var sent int64
	assert.Less(t, allocated(func() { sent = sendFileTwice(t, size) }), uint64(1<<20))
	assert.Equal(t, int64(2*size), sent)
}

func BenchmarkFileOf64MiBSentTwice(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(2 * 64 << 20)
	for b.Loop() {
		sendFileTwice(b, 64<<20)
	}
}

// waiting is the least that a RoundTripper must do to wait: it closes the response
// and sleeps in a select.
func waiting(base http.RoundTripper, d time.Duration) script.Step {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return base.RoundTrip(req)
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
}

// costOfWaiting returns the bytes that each of n requests costs while it waits in rt, heap and
// stack. wait returns when all of them do. Then they are canceled.
//
// A stack is a power of two. The runtime counts whole spans of stacks, with room that earlier
// goroutines left in some of them, and that differs by a tenth from one measurement to the next. So
// the mean is rounded to the power of two that is nearest.
func costOfWaiting(tb testing.TB, rt http.RoundTripper, n int, wait func()) float64 {
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	client := &http.Client{Transport: rt}
	var before, after runtime.MemStats
	settle := func(m *runtime.MemStats) {
		runtime.GC()
		runtime.GC() // the first frees the stacks of what has ended
		runtime.ReadMemStats(m)
	}
	settle(&before)
	var ended sync.WaitGroup
	for range n {
		ended.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://host.example/", nil)
			_, err := client.Do(req) //nolint:bodyclose // there is none
			assert.ErrorIs(tb, err, context.Canceled)
		})
	}
	wait()
	settle(&after)
	cancel()
	ended.Wait()
	heap := float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
	stack := float64(after.StackInuse-before.StackInuse) / float64(n)
	return heap + math.Exp2(math.Round(math.Log2(stack)))
}

// sleepers returns the bytes that each of many sleeping requests costs, in a
// RoundTripper that only sleeps, and in ours.
func sleepers(tb testing.TB) (floor, ours float64) {
	const n = 10_000
	var asleep sync.WaitGroup
	base := &stub{statuses: []int{503}, body: true, closed: asleep.Done}
	measure := func(rt http.RoundTripper) float64 {
		asleep.Add(n)
		return costOfWaiting(tb, rt, n, asleep.Wait)
	}
	measure(waiting(base, time.Hour)) // the runtime keeps memory of so many goroutines
	floor = measure(waiting(base, time.Hour))
	p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Hour), Budget: retryhttp.Unlimited{}}
	return floor, measure(retryhttp.New(base, p))
}

func TestCostOfSleepersIsLittleMoreThanASleep(t *testing.T) {
	floor, ours := sleepers(t)
	t.Logf("bytes per sleeper: %.0f, with retryhttp %.0f", floor, ours)
	assert.LessOrEqual(t, ours, 1.05*floor)
}

func TestCostOfAHeldRequestIsLittleMoreThanASleeper(t *testing.T) {
	const n = 10_000
	synctest.Test(t, func(t *testing.T) {
		base := &stub{statuses: []int{503}, body: true}
		asleep := retryhttp.Policy{Backoff: retryhttp.Constant(time.Hour), Budget: retryhttp.Unlimited{}}
		held := retryhttp.Policy{
			Backoff: retryhttp.Constant(200 * time.Millisecond), Budget: retryhttp.Unlimited{}, MaxAttempts: -1,
		}
		// Probes fail at 250 and 750 ms, and their retries are held again 200 ms later. If the retry
		// of the last request comes due first, it is sent at once, because no request was sent since
		// its failure. Then the probes come 200 ms later. At 1.5 s, all requests are held in any case.
		wait := func() {
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
		}
		costOfWaiting(t, retryhttp.New(base, asleep), n, wait) // the runtime keeps memory of so many goroutines
		floor := costOfWaiting(t, retryhttp.New(base, asleep), n, wait)
		held.Gate = &retryhttp.Gate{Hold: time.Hour}
		ours := costOfWaiting(t, retryhttp.New(base, held), n, func() {
			wait()
			assert.Equal(t, n, held.Gate.Status(requestTo("host.example")).Held)
		})
		lined := held
		lined.Gate, lined.Budget = &retryhttp.Gate{Hold: time.Hour}, &retryhttp.TokenBucket{Burst: -1}
		inLine := costOfWaiting(t, retryhttp.New(base, lined), n, func() {
			wait()
			assert.InDelta(t, n, lined.Gate.Status(requestTo("host.example")).Held, n/100, "some are probes")
		})
		t.Logf("bytes per sleeper: %.0f, if held %.0f, in line %.0f", floor, ours, inLine)
		assert.LessOrEqual(t, ours, 1.1*floor)
		assert.LessOrEqual(t, inLine, 2*floor, "the stack doubles where the response is kept")
	})
}

func TestCostOfAKeyIsAKibibyteAtMost(t *testing.T) {
	const n = 4000
	budget, gate := new(retryhttp.TokenBucket), new(retryhttp.Gate)
	rt := retryhttp.New(&stub{statuses: []int{503}}, retryhttp.Policy{
		Gate: gate, Budget: &asking{asked: func(*http.Request) bool { return false }}, Backoff: retryhttp.Constant(0),
	})
	reqs := make([]*http.Request, n)
	for i := range reqs {
		reqs[i] = requestTo(fmt.Sprint("host", i))
	}
	perKey := func(use func(*http.Request)) float64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for _, req := range reqs {
			use(req)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		return float64(after.HeapAlloc-before.HeapAlloc) / n
	}
	bucket := perKey(func(req *http.Request) {
		countFailure(budget, req, retryhttp.Attempt{Err: io.ErrUnexpectedEOF})
		withdraw(budget, req)
		budget.Deposit(req)
	})
	health := perKey(func(req *http.Request) {
		_, err := rt.RoundTrip(req) //nolint:bodyclose // there is none
		require.NoError(t, err)
	})
	t.Logf("bytes of a key: TokenBucket %.0f, Gate %.0f", bucket, health)
	assert.LessOrEqual(t, bucket, 1024.0)
	assert.LessOrEqual(t, health, 1024.0)
	runtime.KeepAlive(budget)
	runtime.KeepAlive(gate)
	runtime.KeepAlive(reqs)
}

// BenchmarkCancelHeld cancels 10,000 requests, which a Gate holds, which wait in line for a token, or
// which sleep.
func BenchmarkCancelHeld(b *testing.B) {
	const n = 10_000
	for name, c := range map[string]struct {
		hold, backoff time.Duration
		budget        retryhttp.Budget
	}{
		"held":    {time.Hour, 150 * time.Millisecond, retryhttp.Unlimited{}},
		"in line": {time.Hour, 150 * time.Millisecond, &retryhttp.TokenBucket{Burst: -1}},
		"asleep":  {-1, time.Hour, retryhttp.Unlimited{}},
	} {
		b.Run(name, func(b *testing.B) {
			hold, gate := c.hold, &retryhttp.Gate{Hold: c.hold}
			p := retryhttp.Policy{MaxAttempts: -1, Gate: gate, Budget: c.budget, Backoff: retryhttp.Constant(c.backoff)}
			var failed atomic.Int64
			rt := retryhttp.New(&stub{statuses: []int{503}, body: true, closed: func() { failed.Add(1) }}, p)
			for b.Loop() {
				b.StopTimer()
				failed.Store(0)
				ctx, cancel := context.WithCancel(b.Context())
				req := requestTo("host.example").WithContext(ctx)
				var ended sync.WaitGroup
				for range n {
					ended.Go(func() { _, _ = rt.RoundTrip(req) }) //nolint:bodyclose // there is none
				}
				for hold < 0 && failed.Load() < n || hold > 0 && gate.Status(req).Held < n-n/100 { // some are probes
					runtime.Gosched()
				}
				b.StartTimer()
				cancel()
				ended.Wait()
			}
		})
	}
}

func BenchmarkSleepers(b *testing.B) {
	for b.Loop() {
		floor, ours := sleepers(b)
		b.ReportMetric(floor, "bare-B/sleeper")
		b.ReportMetric(ours, "B/sleeper")
	}
}

func TestBodyIsNotReadAhead(t *testing.T) {
	body := &bodies.Tracked{Reader: bytes.NewReader(make([]byte, 1<<20))}
	req, err := http.NewRequest("PUT", "http://host.example/", body)
	require.NoError(t, err)
	_, err = retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
		_, err := req.Body.Read(make([]byte, 10))
		assert.NoError(t, err)
		assert.Equal(t, 1<<20-10, body.Reader.(*bytes.Reader).Len())
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	}), retryhttp.Policy{}).RoundTrip(req)
	require.NoError(t, err)
}

// whole is a base that answers 200 with a body that does not break off.
type whole struct {
	header   http.Header
	size     int64
	declared bool // with a Content-Length
}

func (w *whole) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: 200, Header: w.header, Body: &letters{w.size}, Request: req, ContentLength: -1}
	if w.declared {
		resp.ContentLength = w.size
	}
	return resp, nil
}

// letters is a body of many letters. It allocates nothing and holds nothing.
type letters struct{ left int64 }

var manyLetters = strings.Repeat("a", 32<<10)

func (l *letters) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), l.left)], manyLetters)
	l.left -= int64(n)
	return n, nil
}

func (*letters) Close() error { return nil }

// downloadOf is a base whose body can be resumed by its tag.
func downloadOf(size int64) *whole {
	return &whole{http.Header{"Etag": {`"one"`}}, size, true}
}

// jsonOf is a base whose body is 2 KiB of JSON, as an API answers.
func jsonOf(declared bool) *whole {
	return &whole{http.Header{"Content-Type": {"application/json"}}, 2 << 10, declared}
}

// allocations returns how many objects a GET through rt allocates, its body included.
func allocations(rt http.RoundTripper) float64 {
	return testing.AllocsPerRun(1000, roundTripper(rt, requestTo("host.example")))
}

func TestCostOfResumeIsOneObject(t *testing.T) {
	byDate := http.Header{"Last-Modified": {"Thu, 01 Jan 2026 00:00:00 GMT"}, "Date": {"Thu, 01 Jan 2026 00:01:00 GMT"}}
	for name, base := range map[string]*whole{"by tag": downloadOf(1 << 10), "by date": {byDate, 1 << 10, true}} {
		ours := allocations(retryhttp.New(base, retryhttp.Policy{Resume: true}))
		assert.Equal(t, 1.0, ours-allocations(base), name)
	}
}

func TestCostOfResumeDoesNotGrowWithTheDownload(t *testing.T) {
	download := retryhttp.New(downloadOf(256<<20), retryhttp.Policy{Resume: true})
	once := roundTripper(download, requestTo("host.example"))
	once() // io.Copy keeps a buffer
	assert.Less(t, allocated(once), uint64(16<<10))
}

func TestCostOfResumeIsOneObjectIfTheServerDoesNotLetTheBodyBeResumed(t *testing.T) {
	for name, base := range map[string]*whole{
		"weak tag": {http.Header{"Etag": {`W/"one"`}}, 1 << 10, true},
		"no tag":   {http.Header{"Date": {"Thu, 01 Jan 2026 00:00:00 GMT"}}, 1 << 10, true},
		"no end":   {http.Header{"Etag": {`"one"`}}, 1 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, 1.0, allocations(retryhttp.New(base, retryhttp.Policy{Resume: true}))-allocations(base))
		})
	}
}

func TestCostOfResumeIsNothingIfTheCallerRulesItOut(t *testing.T) {
	base := downloadOf(1 << 10)
	post := requestTo("host.example")
	post.Method = http.MethodPost
	rt := retryhttp.New(base, retryhttp.Policy{Resume: true})
	assert.Zero(t, testing.AllocsPerRun(1000, roundTripper(rt, post))-testing.AllocsPerRun(1000, roundTripper(base, post)))
	once := retryhttp.New(base, retryhttp.Policy{Resume: true, MaxAttempts: 1})
	assert.Zero(t, allocations(once)-allocations(base))
}

func TestCostOfBuffering2KiBIsThreeObjectsAtMost(t *testing.T) {
	for name, declared := range map[string]bool{"known length": true, "unknown length": false} {
		t.Run(name, func(t *testing.T) {
			base := jsonOf(declared)
			ours := allocations(retryhttp.New(base, retryhttp.Policy{BufferBytes: 64 << 10}))
			assert.LessOrEqual(t, ours-allocations(base), 3.0)
		})
	}
}

func TestCostOfAPeekIsOneObjectBesideAnAttemptTimeout(t *testing.T) {
	base := jsonOf(false)
	limited := allocations(retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}))
	for peek, objects := range map[int64]float64{1: 1, 1 << 10: 1, 1<<10 + 1: 1, 4 << 10: 1, 4<<10 + 1: 2} {
		ours := allocations(retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute, PeekBytes: peek}))
		assert.Equal(t, objects, ours-limited, "of %d bytes", peek)
	}
}

func TestCostOfABodyThatIsTooLongToBufferIsNothing(t *testing.T) {
	base := jsonOf(true)
	ours := allocations(retryhttp.New(base, retryhttp.Policy{BufferBytes: 1 << 10}))
	assert.Zero(t, ours-allocations(base))
}

func TestCostOfABodyIsNothingIfItsFieldsAreZero(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"zero":     {},
		"negative": {BufferBytes: -1, PeekBytes: -1, StallTimeout: -1},
	} {
		for kind, base := range map[string]*whole{
			"download":               downloadOf(1 << 10),
			"JSON of known length":   jsonOf(true),
			"JSON of unknown length": jsonOf(false),
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				assert.Zero(t, allocations(retryhttp.New(base, p))-allocations(base))
			})
		}
	}
}

// A Base passes the request on while nothing fails. The http.Transport needs no connection, so only
// the path of a request is measured.
func TestCostOfABaseIsNoAllocation(t *testing.T) {
	transport := &http.Transport{}
	transport.RegisterProtocol("http", &stub{statuses: []int{200}})
	base := retryhttp.NewBase(transport)
	for name, rt := range map[string]http.RoundTripper{
		"Base": base, "New of an http.Transport": retryhttp.New(transport, retryhttp.Policy{}), "New of a Base": retryhttp.New(base, retryhttp.Policy{}),
	} {
		for _, kind := range requestKinds {
			t.Run(name+", "+kind.name, func(t *testing.T) {
				ours := testing.AllocsPerRun(1000, roundTripper(rt, kind.make()))
				assert.Zero(t, ours-testing.AllocsPerRun(1000, roundTripper(transport, kind.make())))
			})
		}
	}
}
