package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// raceKind is a method and a way to carry a body.
type raceKind struct {
	method  string
	body    func(*testing.T) io.Reader // nil: none
	header  http.Header
	writes  bool
	retried bool
	hedged  bool
	once    bool // the body has no GetBody
}

const raceContent = "a request's content"

// The GETs come first, and so are the most.
var raceKinds = []raceKind{
	{method: "GET", retried: true, hedged: true},
	{method: "HEAD", retried: true, hedged: true},
	{method: "QUERY", body: inMemoryBody, retried: true, hedged: true},
	{method: "QUERY", body: fileBody, once: true, retried: true, hedged: true},
	{method: "QUERY", body: streamBody, once: true, retried: true},
	{method: "QUERY", body: seekingBody, once: true, retried: true},
	{method: "GET", header: http.Header{"Upgrade": {"websocket"}}, retried: true},
	{method: "PUT", body: inMemoryBody, writes: true, retried: true},
	{method: "DELETE", writes: true, retried: true},
	{method: "PATCH", writes: true},
	{method: "POST", body: inMemoryBody, writes: true},
	{method: "POST", header: http.Header{"Idempotency-Key": {"k"}}, writes: true, retried: true},
}

func inMemoryBody(*testing.T) io.Reader { return bytes.NewReader([]byte(raceContent)) }
func fileBody(t *testing.T) io.Reader   { return bodies.File(t, raceContent) }
func streamBody(t *testing.T) io.Reader { return io.MultiReader(inMemoryBody(t)) }
func seekingBody(*testing.T) io.Reader  { return bodies.Seeker(bytes.NewReader([]byte(raceContent))) }

func (k raceKind) request(t *testing.T, ctx context.Context) *http.Request {
	t.Helper()
	var body io.Reader
	if k.body != nil {
		body = k.body(t)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, "http://host.example/", body)
	require.NoError(t, err)
	for name, values := range k.header {
		req.Header[name] = values
	}
	return req
}

// raceBase plays the legs of a request.
type raceBase struct {
	t     *testing.T
	r     *hedgedRequest
	began time.Time

	mu       sync.Mutex
	attempts map[int]*attemptSeen
	underWay int
}

// attemptSeen is what the base has seen of an attempt.
type attemptSeen struct {
	sent time.Duration
	over time.Duration // when its context ended; 0: not yet
	body *timedBody    // nil: it had no response
}

func (b *raceBase) since() time.Duration { return time.Since(b.began) }

type raceKey struct{}

func playLeg(req *http.Request) (*http.Response, error) {
	return req.Context().Value(raceKey{}).(*raceBase).play(req)
}

func (b *raceBase) play(req *http.Request) (*http.Response, error) {
	number := retryhttp.AttemptOf(req.Context()).Number
	seen := &attemptSeen{sent: b.since()}
	b.mu.Lock()
	assert.NotContains(b.t, b.attempts, number)
	b.attempts[number] = seen
	b.underWay++
	b.mu.Unlock()
	context.AfterFunc(req.Context(), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		seen.over = b.since()
	})
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.underWay--
	}()
	if req.Body != nil {
		content, err := io.ReadAll(req.Body)
		assert.NoError(b.t, err)
		assert.Equal(b.t, raceContent, string(content))
		assert.NoError(b.t, req.Body.Close())
	}
	return b.answer(req, number, seen)
}

func (b *raceBase) answer(req *http.Request, number int, seen *attemptSeen) (*http.Response, error) {
	l := b.r.legs[number-1]
	var arrives <-chan time.Time
	if l.ending != hangs {
		arrives = time.After(l.latency)
	}
	select {
	case <-arrives:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	switch l.ending {
	case breaks:
		return nil, errBroken
	case permanent:
		return nil, retryhttp.Permanent(errBroken)
	}
	resp := script.Response(req, statusOf[l.ending], "Attempt", strconv.Itoa(number))
	if l.asked > 0 {
		resp.Header.Set("Retry-After-Ms", strconv.FormatInt(l.asked.Milliseconds(), 10))
	}
	resp.ProtoMajor = b.r.major
	body := &timedBody{ctx: req.Context(), end: time.Now().Add(l.body), closed: make(chan struct{})}
	b.mu.Lock()
	seen.body = body
	b.mu.Unlock()
	resp.Body = body
	return resp, nil
}

var statusOf = map[ending]int{succeeds: 200, missing: 404, unavailable: 503, throttled: 429}

// timedBody is a response body that comes at once, except its last bytes, which come at the
// end.
type timedBody struct {
	ctx    context.Context
	end    time.Time
	read   int
	once   sync.Once
	closed chan struct{}
}

const answerText = "all of an answer"

func (b *timedBody) Read(p []byte) (int, error) {
	const late = 5
	select {
	case <-b.closed:
		return 0, errors.New("read of a closed body")
	default:
	}
	if b.read >= len(answerText)-late {
		if err := b.wait(); err != nil {
			return 0, err
		}
	}
	if b.read == len(answerText) {
		return 0, io.EOF
	}
	until := len(answerText)
	if b.read < until-late {
		until -= late
	}
	n := copy(p, answerText[b.read:until])
	b.read += n
	return n, nil
}

func (b *timedBody) wait() error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if left := time.Until(b.end); left > 0 {
		select {
		case <-time.After(left):
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
	}
	return nil
}

func (b *timedBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

func (b *timedBody) isClosed() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}

// grantingBudget grants a number of withdrawals that are not refunded.
type grantingBudget struct {
	countingBudget
	grants int
}

// grant sets how many withdrawals are left.
func (b *grantingBudget) grant(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grants = b.withdrawn - b.refunded + n
}

func (b *grantingBudget) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	b.mu.Lock()
	b.refuse = b.withdrawn-b.refunded >= b.grants
	b.mu.Unlock()
	return b.countingBudget.Withdraw(r)
}

// compareRaces plays requests with a Hedge and with the model.
func compareRaces(t *testing.T, hedge *retryhttp.Hedge, requests []hedgedRequest) {
	t.Helper()
	m := &raceModel{share: shareOf(hedge), delay: delayOf(hedge), allowance: wholeHedge}
	synctest.Test(t, func(t *testing.T) {
		budget := new(grantingBudget)
		rt := retryhttp.New(script.Step(playLeg), retryhttp.Policy{
			Hedge: hedge, Budget: budget, Gate: &retryhttp.Gate{Hold: -1},
			MaxRetryAfter: raceLongest,
		})
		total := new(countingBudget)
		for i := range requests {
			r := &requests[i]
			budget.grant(r.grants)
			want := m.play(r)
			total.withdrawn += want.withdrawn
			total.refunded += want.refunded
			total.deposit += want.deposited
			base := &raceBase{t: t, r: r, began: time.Now(), attempts: map[int]*attemptSeen{}}
			s := &raceCall{t: t, base: base, rt: rt, want: want}
			s.about = fmt.Sprintf("request %d, after %v, share %v, %+v", i, m.delay, m.share, *r)
			s.play()
			require.Equal(t, [3]int{total.withdrawn, total.refunded, total.deposit},
				[3]int{budget.withdrawn, budget.refunded, budget.deposit}, s.about)
		}
	})
}

func shareOf(h *retryhttp.Hedge) float64 {
	switch {
	case h.Share == 0:
		return 0.05
	case h.Share > 0:
		return min(h.Share, 1)
	}
	return 0
}

func delayOf(h *retryhttp.Hedge) time.Duration {
	least := h.Min
	if least == 0 {
		least = time.Millisecond
	}
	if h.After == 0 || shareOf(h) == 0 {
		return 0
	}
	return max(h.After, least)
}

// raceCall is a request that is compared with its forecast.
type raceCall struct {
	t     *testing.T
	base  *raceBase
	rt    http.RoundTripper
	want  forecast
	about string

	classified, retries int // not guarded: Classify never runs for both attempts at once
	last                []retryhttp.Attempt
	outcome             retryhttp.Outcome
}

func (s *raceCall) play() {
	r := s.base.r
	ctx, cancel := context.WithCancel(context.WithValue(s.t.Context(), raceKey{}, s.base))
	defer cancel()
	defer time.AfterFunc(r.canceled, cancel).Stop()
	if r.deadline > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, s.base.began.Add(r.deadline))
		defer stop()
	}
	resp, err := s.rt.RoundTrip(r.kind.request(s.t, retryhttp.WithPolicy(ctx, s.observe)))
	require.Equal(s.t, s.want.done, s.base.since(), s.about)
	s.checkOutcome()
	s.checkResult(resp, err)
	if resp != nil {
		s.use(resp, cancel)
	}
	time.Sleep(30 * time.Second) // less than until its caller goes
	synctest.Wait()
	s.checkAttempts()
}

func (s *raceCall) observe(p *retryhttp.Policy) {
	r := s.base.r
	p.MaxAttempts, p.AttemptTimeout, p.MaxElapsed = r.max, r.timeout, r.elapsed
	p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		s.classified++
		return retryhttp.Classify(a)
	}
	p.Backoff = func(n int, prev time.Duration) time.Duration {
		if n > 1 {
			require.Equal(s.t, raceBackoff(n-1), prev, s.about)
		}
		return raceBackoff(n)
	}
	p.OnRetry = func(retryhttp.Attempt) { s.retries++ }
	p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
		s.last, s.outcome = append(s.last, a), o
	}
}

func (s *raceCall) checkOutcome() {
	require.Len(s.t, s.last, 1, s.about)
	require.Equal(s.t, s.want.outcome, s.outcome, s.about)
	require.Equal(s.t, s.want.retries, s.retries, s.about)
	require.LessOrEqual(s.t, s.classified, s.want.outcome.Attempts, s.about)
	if s.want.judged > 0 {
		require.Equal(s.t, s.want.judged, s.last[0].Number, s.about)
		require.Equal(s.t, s.want.took, s.last[0].Elapsed, s.about)
	}
}

func (s *raceCall) checkResult(resp *http.Response, err error) {
	if s.want.ending.hasResponse() {
		require.NoError(s.t, err, s.about)
		require.Equal(s.t, strconv.Itoa(s.want.judged), resp.Header.Get("Attempt"), s.about)
		require.Equal(s.t, s.want.outcome.HedgeWon, retryhttp.OutcomeOf(resp).HedgeWon, s.about)
		require.Equal(s.t, s.want.outcome.Attempts, retryhttp.OutcomeOf(resp).Attempts, s.about)
		return
	}
	require.Nil(s.t, resp, s.about)
	e := errorOf(s.t, err)
	require.Equal(s.t, s.want.outcome, e.Outcome, s.about)
	switch s.want.ending {
	case timedOut:
		require.True(s.t, e.Timeout(), s.about)
	case breaks, permanent:
		require.ErrorIs(s.t, err, errBroken, s.about)
	}
}

// use does with the response what its caller does.
func (s *raceCall) use(resp *http.Response, cancel context.CancelFunc) {
	seen := s.base.attempts[s.want.judged]
	closed := s.want.read && !s.base.r.kind.once // beside an upload, the body is the caller's to close
	require.Equal(s.t, closed, seen.body.isClosed(), "the caller's body: %s", s.about)
	switch s.base.r.caller {
	case readsAll:
		got, err := io.ReadAll(resp.Body)
		if err == nil {
			require.Equal(s.t, answerText, string(got), s.about)
		} else {
			require.Error(s.t, resp.Request.Context().Err(), s.about)
		}
		synctest.Wait()
		require.Equal(s.t, closed, seen.body.isClosed(), "the caller's body: %s", s.about)
	case cancelsAtOnce:
		cancel()
	}
	require.NoError(s.t, resp.Body.Close())
}

// checkAttempts checks when attempts were sent and ended, long after the request.
func (s *raceCall) checkAttempts() {
	b := s.base
	require.Zero(s.t, b.underWay, s.about)
	require.Len(s.t, b.attempts, len(s.want.attempts), s.about)
	for i, want := range s.want.attempts {
		seen, about := b.attempts[i+1], fmt.Sprintf("attempt %d of %s, %+v", i+1, s.about, s.want)
		require.Equal(s.t, want.sent, seen.sent, about)
		if seen.body != nil {
			require.True(s.t, seen.body.isClosed(), about)
		}
		if want.bounded {
			require.GreaterOrEqual(s.t, seen.over, want.from, about)
			require.LessOrEqual(s.t, seen.over, want.until, about)
		}
	}
}
