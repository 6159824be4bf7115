//go:build !race

package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
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
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests run without the race detector, which makes sync.Pool forget at random.

func BenchmarkSuccess(b *testing.B) {
	bare := &stub{statuses: []int{200}}
	for name, rt := range map[string]http.RoundTripper{
		"bare":           bare,
		"default policy": retryhttp.New(bare, retryhttp.Policy{}),
		"shared budget":  retryhttp.New(bare, retryhttp.Policy{Budget: &retryhttp.TokenBucket{}}),
	} {
		for _, kind := range requestKinds {
			b.Run(kind.name+"/"+name, func(b *testing.B) {
				once := roundTripper(rt, kind.make())
				b.ReportAllocs()
				for b.Loop() {
					once()
				}
			})
		}
	}
}

// stub is a base that plays statuses over and over. Its own allocations are the
// floor that Transports are compared with.
type stub struct {
	statuses []int
	header   http.Header
	size     int64  // of the bodies, which do not break off
	declared bool   // with a Content-Length
	closed   func() // called when a body is closed
	n        int
}

func (s *stub) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	code := s.statuses[s.n%len(s.statuses)]
	if len(s.statuses) > 1 {
		s.n++
	}
	resp := &http.Response{StatusCode: code, Header: s.header, Body: http.NoBody, Request: req, ContentLength: -1}
	if s.size > 0 {
		resp.Body = &letters{s.size, s.closed}
	}
	if s.declared {
		resp.ContentLength = s.size
	}
	return resp, nil
}

// letters is a body of many letters. Its reads allocate nothing.
type letters struct {
	left   int64
	closed func()
}

var manyLetters = strings.Repeat("a", 32<<10)

func (l *letters) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), l.left)], manyLetters)
	l.left -= int64(n)
	return n, nil
}

func (l *letters) Close() error {
	if l.closed != nil {
		l.closed()
	}
	return nil
}

var requestKinds = []struct {
	name string
	make func() *http.Request
}{
	{"GET", func() *http.Request {
		req, _ := http.NewRequest("GET", "http://host.example/", nil)
		return req
	}},
	{"64 KiB POST", func() *http.Request {
		req, _ := http.NewRequest("POST", "http://host.example/", bytes.NewReader(make([]byte, 64<<10)))
		return req
	}},
}

// roundTripper returns a function that sends req and reads the response.
func roundTripper(rt http.RoundTripper, req *http.Request) func() {
	return func() {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// objects returns how many objects a request through rt allocates, its body included.
func objects(rt http.RoundTripper, req *http.Request) float64 {
	return testing.AllocsPerRun(1000, roundTripper(rt, req))
}

// allocations is objects of a GET.
func allocations(rt http.RoundTripper) float64 { return objects(rt, requestTo("host.example")) }

// The http.Transport needs no connection, so only the path of a request through a Base is measured.
func TestCostOfAFirstAttemptSuccessIsNoAllocation(t *testing.T) {
	bare, transport := &stub{statuses: []int{200}}, new(http.Transport)
	transport.RegisterProtocol("http", bare)
	base := retryhttp.NewBase(transport)
	for name, c := range map[string]struct{ rt, floor http.RoundTripper }{
		"default policy":           {retryhttp.New(bare, retryhttp.Policy{}), bare},
		"shared budget":            {retryhttp.New(bare, retryhttp.Policy{Budget: &retryhttp.TokenBucket{}}), bare},
		"Base":                     {base, transport},
		"New of an http.Transport": {retryhttp.New(transport, retryhttp.Policy{}), transport},
		"New of a Base":            {retryhttp.New(base, retryhttp.Policy{}), transport},
	} {
		for _, kind := range requestKinds {
			t.Run(name+", "+kind.name, func(t *testing.T) {
				assert.Zero(t, objects(c.rt, kind.make())-objects(c.floor, kind.make()))
			})
		}
	}
}

// GetBody allocates the retries' bodies.
func TestCostOfTwoRetriesIsThreeObjects(t *testing.T) {
	bare := &stub{statuses: []int{503, 503, 200}, size: 16}
	for _, kind := range requestKinds {
		t.Run(kind.name, func(t *testing.T) {
			req := kind.make()
			req.Header.Set("Idempotency-Key", "k")
			reopened := 0.0
			if req.GetBody != nil {
				reopened = 2 * testing.AllocsPerRun(1000, func() { _, _ = req.GetBody() })
			}
			once := roundTripper(bare, req)
			floor := testing.AllocsPerRun(1000, func() { once(); once(); once() })
			assert.LessOrEqual(t, objects(retryhttp.New(bare, noWait), req)-floor-reopened, 3.0)
		})
	}
}

// A stream that no retry can follow is neither wrapped nor recorded.
func TestCostOfAStreamWithoutRetriesIsTwoObjectsAtMost(t *testing.T) {
	content := make([]byte, 60<<10)
	send := func(rt http.RoundTripper) func() {
		return func() {
			stream := struct{ io.Reader }{bytes.NewReader(content)}
			req, _ := http.NewRequest("POST", "http://host.example/", stream)
			roundTripper(rt, req)()
		}
	}
	base := script.Status(200)
	ours := testing.AllocsPerRun(100, send(retryhttp.New(base, retryhttp.Policy{})))
	assert.LessOrEqual(t, ours-testing.AllocsPerRun(100, send(base)), 2.0)
}

func TestBodyIsNotReadAhead(t *testing.T) {
	body := &bodies.Tracked{Reader: bytes.NewReader(make([]byte, 1<<20))}
	req := uploadOf(t, body)
	_, err := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
		_, err := req.Body.Read(make([]byte, 10))
		assert.NoError(t, err)
		assert.Equal(t, 1<<20-10, body.Reader.(*bytes.Reader).Len())
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	}), retryhttp.Policy{}).RoundTrip(req)
	require.NoError(t, err)
}

// A sparse file is sent through a base that fails at first.
func TestCostOfAFileSentAgainIsConstantMemory(t *testing.T) {
	const size = 64 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "upload"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	req := uploadOf(t, f)
	sent := int64(0)
	base := script.Step(func(req *http.Request) (*http.Response, error) {
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, req.Body, make([]byte, 32<<10))
		sent += n
		_ = req.Body.Close()
		status := map[bool]int{true: 503, false: 200}[sent == size]
		return &http.Response{StatusCode: status, Body: http.NoBody, Request: req}, err
	})
	assert.Less(t, allocated(roundTripper(retryhttp.New(base, noWait), req)), uint64(1<<20))
	assert.Equal(t, int64(2*size), sent)
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
func costOfWaiting(t *testing.T, rt http.RoundTripper, n int, wait func()) float64 {
	ctx, cancel := context.WithCancel(t.Context())
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
			assert.ErrorIs(t, err, context.Canceled)
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

// sleeping is a Policy under which a request sleeps.
var sleeping = retryhttp.Policy{Backoff: retryhttp.Constant(time.Hour), Budget: retryhttp.Unlimited{}}

func TestCostOfSleepersIsLittleMoreThanASleep(t *testing.T) {
	const n = 10_000
	var asleep sync.WaitGroup
	base := &stub{statuses: []int{503}, size: 16, closed: asleep.Done}
	measure := func(rt http.RoundTripper) float64 {
		asleep.Add(n)
		return costOfWaiting(t, rt, n, asleep.Wait)
	}
	measure(waiting(base, time.Hour)) // the runtime keeps memory of so many goroutines
	floor := measure(waiting(base, time.Hour))
	ours := measure(retryhttp.New(base, sleeping))
	t.Logf("bytes per sleeper: %.0f, with retryhttp %.0f", floor, ours)
	assert.LessOrEqual(t, ours, 1.05*floor)
}

func TestCostOfAHeldRequestIsLittleMoreThanASleeper(t *testing.T) {
	const n = 10_000
	synctest.Test(t, func(t *testing.T) {
		base := &stub{statuses: []int{503}, size: 16}
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
		costOfWaiting(t, retryhttp.New(base, sleeping), n, wait) // the runtime keeps memory of so many goroutines
		floor := costOfWaiting(t, retryhttp.New(base, sleeping), n, wait)
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

func whole(header http.Header, size int64, declared bool) *stub {
	return &stub{statuses: []int{200}, header: header, size: size, declared: declared}
}

// downloadOf is a base whose body can be resumed by its tag.
func downloadOf(size int64) *stub { return whole(http.Header{"Etag": {`"one"`}}, size, true) }

// jsonOf is a base whose body is 2 KiB of JSON, as an API answers.
func jsonOf(declared bool) *stub {
	return whole(http.Header{"Content-Type": {"application/json"}}, 2<<10, declared)
}

func TestCostOfAResponseBody(t *testing.T) {
	const kib = 1 << 10
	date := []string{"Thu, 01 Jan 2026 00:01:00 GMT"}
	minuteOld := http.Header{"Last-Modified": {"Thu, 01 Jan 2026 00:00:00 GMT"}, "Date": date}
	weak, strong := http.Header{"Etag": {`W/"one"`}}, http.Header{"Etag": {`"one"`}}
	resume := retryhttp.Policy{Resume: true}
	buffer := func(n int64) retryhttp.Policy { return retryhttp.Policy{BufferBytes: n} }
	peek := func(n int64) retryhttp.Policy { return retryhttp.Policy{AttemptTimeout: time.Minute, PeekBytes: n} }
	for name, c := range map[string]struct {
		method  string
		base    *stub
		policy  retryhttp.Policy
		objects float64 // more than with the AttemptTimeout alone
	}{
		"Resume by tag":               {"GET", downloadOf(kib), resume, 1},
		"Resume by date":              {"GET", whole(minuteOld, kib, true), resume, 1},
		"Resume of a weak tag":        {"GET", whole(weak, kib, true), resume, 1},
		"Resume without a tag":        {"GET", whole(http.Header{"Date": date}, kib, true), resume, 1},
		"Resume without an end":       {"GET", whole(strong, kib, false), resume, 1},
		"Resume with one attempt":     {"GET", downloadOf(kib), retryhttp.Policy{Resume: true, MaxAttempts: 1}, 0},
		"Resume of a POST":            {"POST", downloadOf(kib), resume, 0},
		"buffer that is too small":    {"GET", jsonOf(true), buffer(kib), 0},
		"buffer of a known length":    {"GET", jsonOf(true), buffer(64 * kib), 2},
		"buffer of an unknown length": {"GET", jsonOf(false), buffer(64 * kib), 2},
		"peek of 4 KiB":               {"GET", jsonOf(false), peek(4 * kib), 1},
	} {
		t.Run(name, func(t *testing.T) {
			req := requestTo("host.example")
			req.Method = c.method
			without := retryhttp.New(c.base, retryhttp.Policy{AttemptTimeout: c.policy.AttemptTimeout})
			assert.Equal(t, c.objects, objects(retryhttp.New(c.base, c.policy), req)-objects(without, req))
		})
	}
}

func TestCostOfABodyIsNothingIfItsFieldsAreZero(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"zero":     {},
		"negative": {BufferBytes: -1, PeekBytes: -1, StallTimeout: -1},
	} {
		for kind, base := range map[string]*stub{
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

func TestCostOfResumeDoesNotGrowWithTheDownload(t *testing.T) {
	download := retryhttp.New(downloadOf(256<<20), retryhttp.Policy{Resume: true})
	once := roundTripper(download, requestTo("host.example"))
	once() // io.Copy keeps a buffer
	assert.Less(t, allocated(once), uint64(16<<10))
}

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
	armed := &retryhttp.Hedge{After: time.Hour}
	for name, c := range map[string]struct {
		method string
		hedge  *retryhttp.Hedge
	}{
		"no Share":        {http.MethodGet, &retryhttp.Hedge{After: time.Hour, Share: -1}},
		"a write":         {http.MethodPut, armed},
		"too few answers": {http.MethodGet, &retryhttp.Hedge{Share: 1e-9}},
		"not idempotent":  {http.MethodPost, armed},
		"unknown method":  {"PURGE", armed},
	} {
		t.Run(name, func(t *testing.T) {
			base := &stub{statuses: []int{200}}
			req := requestTo("host.example")
			req.Method = c.method
			ours := objects(retryhttp.New(base, retryhttp.Policy{Hedge: c.hedge}), req)
			assert.Zero(t, ours-objects(base, req))
		})
	}
}

// A hedge that is sent shows that goroutinesInBubble sees goroutines.
func TestAHedgeThatIsNotSentStartsNoGoroutine(t *testing.T) {
	hedges, sent := armedHedges(), &retryhttp.Hedge{After: time.Second}
	hedges["zero value"], hedges["one that is sent"] = new(retryhttp.Hedge), sent
	inBubbles(t, hedges, func(t *testing.T, h *retryhttp.Hedge) {
		counts, during := false, []int(nil)
		rt := armed(t, script.Step(func(req *http.Request) (*http.Response, error) {
			if counts {
				during = append(during, goroutinesInBubble())
			}
			if counts && h == sent {
				time.Sleep(time.Minute)
			}
			return jsonOf(true).RoundTrip(req)
		}), h)
		counts = true
		alone := goroutinesInBubble()
		roundTripper(rt, requestTo("host.example"))()
		want := []int{alone}
		if h == sent {
			want = append(want, alone+1)
			time.Sleep(time.Minute) // in which the hedge ends
		}
		assert.Equal(t, want, during, "while the base works")
		assert.Equal(t, alone, goroutinesInBubble(), "at the end")
	})
}

// goroutinesInBubble counts the goroutines of the bubble that it is called in. Other tests
// may have left some that are about to end, outside of it.
func goroutinesInBubble() int {
	buf := make([]byte, 1<<20)
	stacks := string(buf[:runtime.Stack(buf, true)])
	bubble := regexp.MustCompile(`synctest bubble \d+\]`).FindString(stacks) // its own stack comes first
	return strings.Count(stacks, bubble)
}

// A server can put long texts into its certificate and its GOAWAY.
func TestErrorTextTakesTimeThatGrowsWithItsLength(t *testing.T) {
	for _, fragment := range []string{
		"lookup u@h: ", "address @", "://", "://@", "://#", "? ", "://a@b?c#d ", `debug="x"`, "Content-Length ",
	} {
		t.Run(fragment, func(t *testing.T) {
			err := &retryhttp.Error{Err: errors.New(strings.Repeat(fragment, 1<<20/len(fragment)))}
			assert.Less(t, allocated(func() { _ = err.Error() }), uint64(64<<20), "for a megabyte of text")
		})
	}
}
