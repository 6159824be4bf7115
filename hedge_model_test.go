package retryhttp_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ending is how an attempt ends if nothing cuts it short.
type ending int

const (
	succeeds ending = iota
	missing
	unavailable // for a while, perhaps with a Retry-After
	throttled   // likewise
	breaks      // with an error that a retry may not meet
	permanent   // with an error that a retry would meet
	hangs       // until its context ends
	distrusted  // with a certificate that is not valid
	deaf        // succeeds after 5 s, whatever its context says
	timedOut    // by AttemptTimeout
	gone        // with its caller
)

func (e ending) hasResponse() bool { return e <= throttled }
func (e ending) fails() bool {
	return e == unavailable || e == throttled || e == breaks || e == timedOut
}

// leg is an attempt as the base plays it.
type leg struct {
	ending ending
	lap
}

// hedgedRequest is a request, and what its attempts meet.
type hedgedRequest struct {
	kind     raceKind
	legs     [5]leg
	major    int // of HTTP; 0: unknown
	max      int // attempts
	timeout  time.Duration
	elapsed  time.Duration // MaxElapsed
	deadline time.Duration // 0: none
	canceled time.Duration
	grants   int // that the Budget has for it
	caller   callerHabit
	deaf     bool // to Retry-After
}

// callerHabit is what a caller does with a response.
type callerHabit int

const (
	readsAll callerHabit = iota
	closesAtOnce
	cancelsAtOnce
)

// errGone is the cause of the end of a caller's context.
var errGone = errors.New("the caller has gone")

const (
	raceLongest   = 1500 * time.Millisecond // MaxRetryAfter
	losersTime    = 250 * time.Millisecond
	never         = time.Duration(math.MaxInt64)
	wholeHedge    = 1_000_000_000
	hedgesAllowed = 10 * wholeHedge
)

// raceBackoff is at least half of each Retry-After, which makes waits exact.
func raceBackoff(n int) time.Duration { return time.Duration(1000+100*n) * time.Millisecond }

// raceModel is the rules of hedging, for one key, and requests one after the other.
type raceModel struct {
	share     float64
	delay     time.Duration // 0: no hedges
	allowance int64
	grants    int
	bought    bool          // the hedge's token is given back after a Final response
	until     time.Duration // of the wait for a retry planned before its hedge had ended; or 0
	readAt    time.Duration

	r        *hedgedRequest
	now      time.Duration // since the request's start, as all times
	leaves   time.Duration // when the caller's context ends
	forecast forecast
}

// forecast is what should come of a request.
type forecast struct {
	attempts []attemptForecast
	judged   int // the attempt whose result counts; 0: any
	ending   ending
	took     time.Duration // that attempt
	done     time.Duration
	outcome  retryhttp.Outcome
	retries  int
	reports  []report // of the retries
	read     bool     // the response's body has come when the caller gets it

	withdrawn, refunded, deposited int
}

// report is a call of OnRetry. There is none before a hedge has ended, because there is no retry if the hedge wins.
type report struct {
	number   int // of the attempt that failed
	at, wait time.Duration
}

// attemptForecast is when an attempt is sent, and when its context ends.
type attemptForecast struct {
	sent    time.Duration
	bounded bool // its context is its own
	from    time.Duration
	until   time.Duration
}

// played is an attempt as the model has played it.
type played struct {
	number int
	hedge  bool
	ending ending
	at     time.Duration
	asked  time.Duration
	over   time.Duration // when its response's body is over, or else at
}

func (m *raceModel) play(r *hedgedRequest) forecast {
	m.r, m.now, m.leaves, m.grants, m.forecast = r, 0, r.canceled, r.grants, forecast{}
	if r.deadline > 0 {
		m.leaves = min(r.canceled, r.deadline)
	}
	for {
		m.bought, m.until = false, 0
		got := m.attempt()
		stop := m.stop(got)
		kept := stop != "" && got.ending.hasResponse()
		switch stop {
		case "":
			stop = m.wait(got)
		case retryhttp.StopBudget:
			stop = m.waitRefused(got)
		}
		if stop != "" {
			m.finish(got, stop, kept)
			return m.forecast
		}
	}
}

// send plays an attempt that is sent now, and whose caller goes at the time leaves.
func (m *raceModel) send(now, leaves time.Duration, number int, hedge bool) played {
	l := m.r.legs[number-1]
	p := played{number: number, hedge: hedge, ending: l.ending, at: now + l.after, asked: l.asks}
	if l.ending == hangs {
		p.at = never
	}
	if m.r.timeout > 0 && now+m.r.timeout < p.at {
		p.ending, p.at = timedOut, now+m.r.timeout
	}
	if leaves < p.at {
		p.ending, p.at = gone, leaves
	}
	p.over = p.at
	if p.ending.hasResponse() {
		p.over += l.slow
	}
	if !p.ending.hasResponse() || m.r.deaf {
		p.asked = 0
	}
	return p
}

// attempt plays an attempt, and perhaps a hedge beside it, until there is a result.
func (m *raceModel) attempt() played {
	sent := len(m.forecast.attempts)
	armed := m.delay > 0 && m.r.kind.hedged && m.forecast.outcome.Hedges == 0 && m.r.max-sent >= 2
	first := m.send(m.now, m.leaves, sent+1, false)
	m.forecast.attempts = append(m.forecast.attempts, attemptForecast{sent: m.now, bounded: armed || m.r.timeout > 0})
	due := m.now + m.delay
	m.now = first.at
	if !armed || first.at < due || !m.affords(due) {
		m.answered(first)
		m.ends(first.number, first.at, first.at)
		return first
	}
	m.forecast.outcome.Hedges++
	m.forecast.attempts = append(m.forecast.attempts, attemptForecast{sent: due, bounded: true})
	return m.race(first, m.send(due, m.leaves, sent+2, true))
}

// affords takes what a hedge costs.
func (m *raceModel) affords(due time.Duration) bool {
	if m.r.elapsed > 0 && due > m.r.elapsed || m.allowance < wholeHedge {
		return false
	}
	if m.grants == 0 {
		m.forecast.outcome.HedgeRefused = true
		return false
	}
	m.allowance -= wholeHedge
	m.grants--
	m.forecast.withdrawn++
	m.bought = true
	return true
}

// race returns the result that counts.
func (m *raceModel) race(first, hedge played) played {
	switch {
	case hedge.at < first.at:
		return m.hedgeFirst(first, hedge)
	case first.ending.fails():
		return m.firstFails(first, hedge)
	}
	m.answered(first)
	m.refundHedge(first)
	if first.ending == gone {
		m.ends(hedge.number, first.at, first.at)
		m.ends(first.number, first.at, first.at)
		first.number = 0
	} else {
		m.loses(first, hedge)
	}
	return first
}

// hedgeFirst plays a race in which the hedge ends first. Only a Final response of the hedge is a
// result.
func (m *raceModel) hedgeFirst(first, hedge played) played {
	if hedge.ending == succeeds || hedge.ending == missing {
		m.answered(hedge)
		m.refundHedge(hedge)
		m.loses(hedge, first)
		m.now = hedge.at
		return hedge
	}
	until := hedge.at + losersTime
	if !m.letsGo(first, hedge) {
		until = min(until, m.leaves)
	}
	m.ends(hedge.number, hedge.at, until)
	m.answered(first)
	m.refundHedge(first)
	if hedge.ending.fails() {
		first.asked = max(first.asked, leftOf(hedge.asked, first.at-hedge.at))
	}
	m.ends(first.number, first.at, first.at)
	if first.ending == gone {
		first.number = 0
	}
	return first
}

// firstFails plays a hedge that is awaited for as long as the retry would wait, or to its end if no
// retry follows. Only a Final response of the hedge is a result.
func (m *raceModel) firstFails(first, hedge played) played {
	end, retried := never, m.plans(first) == ""
	if retried {
		end = first.at + max(first.asked, 0) + raceBackoff(m.forecast.retries+1)
	}
	due := end
	end = min(end, m.leaves)
	if hedge.at >= end {
		m.now = end
		if retried {
			m.until = due
		}
		m.ends(hedge.number, end, end)
		m.ends(first.number, first.at, first.over)
		return first
	}
	m.now = hedge.at
	cleared := min(hedge.at+losersTime, m.leaves)
	if hedge.ending == succeeds || hedge.ending == missing {
		m.answered(hedge)
		m.refundHedge(hedge)
		m.ends(first.number, first.at, cleared)
		return hedge
	}
	m.ends(hedge.number, hedge.at, cleared)
	m.ends(first.number, first.at, first.over)
	if retried && !(hedge.ending.fails() && (hedge.asked > raceLongest || hedge.at+hedge.asked > due)) {
		m.until = due
	}
	first.asked = leftOf(first.asked, hedge.at-first.at)
	if hedge.ending.fails() {
		first.asked = max(first.asked, hedge.asked)
	}
	return first
}

// leftOf returns what is left of a wait that the server asked for. A wait that is too long stays so.
func leftOf(asked, passed time.Duration) time.Duration {
	if asked > raceLongest {
		return asked
	}
	return asked - passed
}

// loses ends the context of an attempt that has lost.
func (m *raceModel) loses(winner, loser played) {
	until := winner.at
	if m.letsGo(winner, loser) {
		sent := m.forecast.attempts[loser.number-1].sent
		until = min(until+losersTime, m.send(sent, never, loser.number, true).over)
	}
	m.ends(loser.number, until, until)
}

// letsGo reports whether the loser no longer ends with the caller's context.
func (m *raceModel) letsGo(winner, loser played) bool {
	reusable := m.r.kind.body != nil && !m.r.kind.once // a GetBody's reader may be the caller's again
	return loser.hedge && !winner.ending.fails() && winner.ending.hasResponse() && m.r.major < 2 && !reusable
}

func (m *raceModel) ends(number int, from, until time.Duration) {
	a := &m.forecast.attempts[number-1]
	a.from, a.until = from, until
}

// answered earns what a Final response earns.
func (m *raceModel) answered(p played) {
	if (p.ending == succeeds || p.ending == missing) && m.r.kind.hedged && m.share > 0 {
		m.allowance = min(m.allowance+int64(m.share*wholeHedge), hedgesAllowed)
	}
}

// stop returns why no retry follows.
func (m *raceModel) stop(got played) retryhttp.Stop {
	if m.now == m.leaves && got.ending.fails() {
		return retryhttp.StopCanceled
	}
	stop := retryhttp.Stop("")
	if m.until == 0 {
		stop = m.plans(got)
	}
	if stop == "" && m.grants == 0 {
		return retryhttp.StopBudget
	}
	return stop
}

// plans is like stop, but does not ask the Budget.
func (m *raceModel) plans(got played) retryhttp.Stop {
	switch {
	case got.ending == succeeds, got.ending == missing, got.ending == permanent:
		return retryhttp.StopFinal
	case got.ending == gone:
		return retryhttp.StopCanceled
	case !m.r.kind.retried:
		return retryhttp.StopNotIdempotent
	case len(m.forecast.attempts) >= m.r.max:
		return retryhttp.StopAttempts
	case got.asked > raceLongest:
		return retryhttp.StopRetryAfter
	case max(got.asked, 0)+raceBackoff(m.forecast.retries+1) > m.room():
		return retryhttp.StopDeadline
	}
	return ""
}

func (m *raceModel) room() time.Duration {
	room := never
	if m.r.deadline > 0 {
		room = m.r.deadline - m.now - 1
	}
	if m.r.elapsed > 0 {
		room = min(room, m.r.elapsed-m.now)
	}
	return room
}

// wait plays the wait before a retry, beside which a failed response is read.
func (m *raceModel) wait(got played) retryhttp.Stop {
	m.forecast.retries++
	m.grants--
	m.forecast.withdrawn++
	wait := max(got.asked, 0) + raceBackoff(m.forecast.retries) // longer than a drain may take
	if m.until > 0 {
		wait = m.until - m.now
	}
	m.forecast.reports = append(m.forecast.reports, report{got.number, m.now, wait})
	end := min(m.now+wait, m.leaves)
	m.ends(got.number, got.at, min(m.now+losersTime, m.leaves))
	m.forecast.outcome.Waited += end - m.now
	m.now = end
	if end == m.leaves {
		m.forecast.refunded++
		return retryhttp.StopCanceled
	}
	m.lost(got)
	return ""
}

// waitRefused plays the backoff of a retry that the Budget has refused. Its response is read meanwhile.
func (m *raceModel) waitRefused(got played) retryhttp.Stop {
	wait := raceBackoff(m.forecast.retries + 1)
	if m.until > 0 {
		wait = min(wait, m.until-m.now)
	}
	if wait == 0 {
		return retryhttp.StopBudget
	}
	m.readAt = max(got.over, m.now)
	m.forecast.read = got.ending.hasResponse() && m.readAt <= min(m.now+losersTime, m.leaves)
	end := min(m.now+wait, m.leaves)
	m.forecast.outcome.Waited += end - m.now
	m.now = end
	if end == m.leaves {
		return retryhttp.StopCanceled
	}
	return retryhttp.StopBudget
}

// lost records that the caller does not get the response of got.
func (m *raceModel) lost(got played) {
	if m.r.kind.writes && got.number > 0 && (got.ending == unavailable || !got.ending.hasResponse()) {
		m.forecast.outcome.Ambiguous = true
	}
}

// refundHedge gives back the hedge's token after a Final response.
func (m *raceModel) refundHedge(p played) {
	if m.bought && (p.ending == succeeds || p.ending == missing) {
		m.bought = false
		m.grants++
		m.forecast.refunded++
	}
}

// finish ends the request. Its response is kept if the Budget has refused a retry: none replaces it.
func (m *raceModel) finish(got played, stop retryhttp.Stop, kept bool) {
	f := &m.forecast
	f.judged, f.ending, f.done = got.number, got.ending, m.now
	if got.number > 0 {
		f.took = got.at - f.attempts[got.number-1].sent
	}
	f.outcome.Attempts, f.outcome.Elapsed, f.outcome.Stop = len(f.attempts), m.now, stop
	canceled := stop == retryhttp.StopCanceled && !kept
	if canceled || !got.ending.hasResponse() {
		m.lost(got)
	}
	if canceled {
		f.ending = gone
		return
	}
	f.outcome.HedgeWon = got.hedge && got.ending.hasResponse()
	over := got.over
	switch {
	case f.read:
		over = m.readAt
	case got.ending.hasResponse() && m.r.caller != readsAll:
		over = m.now
	case kept:
		over = max(over, m.now)
	}
	over = min(over, m.leaves)
	m.ends(got.number, over, over)
	if stop == retryhttp.StopFinal && got.ending.hasResponse() {
		f.deposited++
	}
}

// endings has each ending as often as a fuzzer should meet it.
var endings = []ending{
	succeeds, breaks, unavailable, hangs, throttled, succeeds, breaks, unavailable,
	missing, permanent, unavailable, hangs, throttled, succeeds, breaks, unavailable,
}

// raceChoices makes choices of random data.
type raceChoices struct {
	data []byte
	odd  time.Duration
}

func (c *raceChoices) next() (b byte) {
	if len(c.data) > 0 {
		b, c.data = c.data[0], c.data[1:]
	}
	return b
}

// duration adds something odd to a time, so that no two things happen at the same moment. Either could then
// be the first.
func (c *raceChoices) duration(unit time.Duration) time.Duration {
	c.odd += 7919
	return time.Duration(c.next())*unit + c.odd%(997*time.Microsecond) + 1
}

// maybe returns a duration in one of so many cases, and else 0.
func (c *raceChoices) maybe(one byte, unit time.Duration) time.Duration {
	if c.next()%one > 0 {
		return 0
	}
	return c.duration(unit)
}

var (
	statusOf  = map[ending]int{succeeds: 200, missing: 404, unavailable: 503, throttled: 429, deaf: 200}
	failureOf = map[ending]error{
		breaks: errBroken, permanent: retryhttp.Permanent(errBroken),
		distrusted: httperr.Untrusted(x509.CertificateInvalidError{Reason: x509.Expired}),
	}
)

func legOf(e ending, latency time.Duration) leg {
	l := leg{e, lap{after: latency, code: statusOf[e], err: failureOf[e]}}
	if e == deaf {
		l.deaf, l.after = true, 5*time.Second
	}
	return l
}

// hedgedRequests makes requests of random data, and what they share.
func hedgedRequests(data []byte) (hedge *retryhttp.Hedge, requests []hedgedRequest) {
	c := &raceChoices{data: data}
	hedge = &retryhttp.Hedge{
		Share: []float64{1, 0, 0.5, 1, 0.25, 1, -1, math.NaN(), 7, 1, 1, 1, 0.9, 1, 1, 1}[c.next()%16],
		After: c.duration(time.Millisecond),
		Min:   []time.Duration{0, -1, 0, 50*time.Millisecond + 13}[c.next()%4],
	}
	if c.next()%16 == 1 {
		hedge.After = 0 // there never are enough answers for the quantile
	}
	for len(c.data) > 0 && len(requests) < 6 {
		r := hedgedRequest{
			kind:     raceKinds[max(int(c.next()%32)-16, 0)%len(raceKinds)],
			major:    int(c.next() % 3),
			max:      1 + int(c.next()+3)%5,
			timeout:  c.maybe(4, 4*time.Millisecond),
			elapsed:  c.maybe(8, 10*time.Millisecond),
			deadline: c.maybe(8, 20*time.Millisecond),
			canceled: 40*time.Second + c.duration(time.Millisecond),
			grants:   int(c.next() % 8),
			caller:   callerHabit(c.next() % 3),
			deaf:     c.next()%8 == 0,
		}
		if r.kind.once {
			r.max = max(r.max, 2) // with one attempt, nothing is known of such a body
		}
		if soon := c.maybe(8, 5*time.Millisecond); soon > 0 {
			r.canceled = soon
		}
		for i := range r.legs {
			l := legOf(endings[int(c.next())%len(endings)], c.duration(2*ms))
			l.slow, l.proto = c.maybe(2, 2*ms), r.major
			if l.ending == unavailable || l.ending == throttled {
				l.asks = c.maybe(2, 8*ms).Truncate(ms)
			}
			r.legs[i] = l
		}
		requests = append(requests, r)
	}
	return hedge, requests
}

// The model decides what is sent when, what the caller gets, and what is given back.
func FuzzHedge(f *testing.F) {
	addRandom(f, 300, 40, 190)
	f.Fuzz(func(t *testing.T, data []byte) {
		hedge, requests := hedgedRequests(data)
		compareRaces(t, hedge, requests)
	})
}

// raceKind is a method and a way to carry a body.
type raceKind struct {
	method  string
	body    func(*testing.T) io.Reader // nil: none
	header  http.Header
	trailer bool // which a body may set when it ends, and two bodies would do so at once
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
	{method: "OPTIONS", retried: true, hedged: true},
	{method: "TRACE", retried: true, hedged: true},
	{method: "QUERY", trailer: true, retried: true},
	{method: "CONNECT", writes: true},
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
	if k.trailer {
		req.Trailer = http.Header{"Digest": nil}
	}
	return req
}

func readRaceContent(t *testing.T, req *http.Request) {
	if req.Body != nil {
		content, err := io.ReadAll(req.Body)
		assert.NoError(t, err)
		assert.Equal(t, raceContent, string(content))
		assert.NoError(t, req.Body.Close())
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
		var base *track
		budget := new(grantingBudget)
		rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
			return base.RoundTrip(req)
		}), retryhttp.Policy{Hedge: hedge, Budget: budget, Gate: &retryhttp.Gate{Hold: -1}, MaxRetryAfter: raceLongest})
		total := new(countingBudget)
		for i := range requests {
			r := &requests[i]
			budget.grant(r.grants)
			want := m.play(r)
			total.withdrawn += want.withdrawn
			total.refunded += want.refunded
			total.deposit += want.deposited
			s := &raceCall{t: t, r: r, rt: rt, want: want}
			s.about = fmt.Sprintf("request %d, after %v, share %v, %+v", i, m.delay, m.share, *r)
			base = s.track()
			s.base = base
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
	r     *hedgedRequest
	base  *track
	rt    http.RoundTripper
	want  forecast
	about string

	mu   sync.Mutex
	over [len(hedgedRequest{}.legs)]time.Duration // when the attempts' contexts have ended; 0: not yet

	classified int // not guarded: Classify never runs for both attempts at once
	reports    []report
	last       []retryhttp.Attempt
	outcome    retryhttp.Outcome
}

// track makes a base that plays the request's legs.
func (s *raceCall) track() *track {
	laps := make([]lap, len(s.r.legs))
	for i, l := range s.r.legs {
		laps[i] = l.lap
		laps[i].do = func(req *http.Request) {
			context.AfterFunc(req.Context(), func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.over[i] = time.Since(s.base.start)
			})
			readRaceContent(s.t, req)
		}
	}
	return newTrack(laps...)
}

func (s *raceCall) play() {
	r := s.r
	ctx, cancel := context.WithCancelCause(s.t.Context())
	leave := func() { cancel(errGone) }
	defer leave()
	defer time.AfterFunc(r.canceled, leave).Stop()
	if r.deadline > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, r.deadline, errGone)
		defer stop()
	}
	resp, err := s.rt.RoundTrip(r.kind.request(s.t, retryhttp.WithPolicy(ctx, s.observe)))
	require.Equal(s.t, s.want.done, time.Since(s.base.start), s.about)
	s.checkOutcome()
	s.checkResult(resp, err)
	if resp != nil {
		s.use(resp, leave)
	}
	time.Sleep(30 * time.Second) // less than until its caller goes
	synctest.Wait()
	s.checkAttempts()
}

func (s *raceCall) observe(p *retryhttp.Policy) {
	r := s.r
	p.MaxAttempts, p.AttemptTimeout, p.MaxElapsed = r.max, r.timeout, r.elapsed
	if r.deaf {
		p.MaxRetryAfter = -1
	}
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
	p.OnRetry = func(a retryhttp.Attempt) {
		s.reports = append(s.reports, report{a.Number, time.Since(s.base.start), a.Wait})
	}
	p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
		s.last, s.outcome = append(s.last, a), o
	}
}

func (s *raceCall) checkOutcome() {
	require.Len(s.t, s.last, 1, s.about)
	require.Equal(s.t, s.want.outcome, s.outcome, s.about)
	require.Equal(s.t, s.want.reports, s.reports, s.about)
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
		require.Equal(s.t, s.want.outcome.HedgeWon, s.last[0].Hedge, s.about)
		require.Same(s.t, resp, s.last[0].Response, s.about)
		return
	}
	require.Nil(s.t, resp, s.about)
	e := errorOf(s.t, err)
	require.Equal(s.t, s.want.outcome, e.Outcome, s.about)
	switch s.want.ending {
	case timedOut:
		require.True(s.t, e.Timeout(), s.about)
	case gone:
		require.ErrorIs(s.t, err, errGone, s.about)
	case breaks, permanent:
		require.ErrorIs(s.t, err, errBroken, s.about)
	}
}

// use does with the response what its caller does.
func (s *raceCall) use(resp *http.Response, leave func()) {
	body := s.base.attempts()[s.want.judged-1].body
	closed := s.want.read && !s.r.kind.once // beside an upload, the body is the caller's to close
	require.Equal(s.t, closed, body.Closes.Load() > 0, "the caller's body: %s", s.about)
	switch s.r.caller {
	case readsAll:
		got, err := io.ReadAll(resp.Body)
		if err == nil {
			require.Equal(s.t, "whole", string(got), s.about)
		} else {
			require.Error(s.t, resp.Request.Context().Err(), s.about)
		}
		synctest.Wait()
		require.Equal(s.t, closed, body.Closes.Load() > 0, "the caller's body: %s", s.about)
	case cancelsAtOnce:
		leave()
	}
	require.NoError(s.t, resp.Body.Close())
}

// checkAttempts checks when attempts were sent and ended, long after the request.
func (s *raceCall) checkAttempts() {
	attempts := s.base.attempts()
	require.Len(s.t, attempts, len(s.want.attempts), s.about)
	for i, want := range s.want.attempts {
		seen, about := attempts[i], fmt.Sprintf("attempt %d of %s, %+v", i+1, s.about, s.want)
		require.Equal(s.t, i+1, seen.number, about)
		require.Equal(s.t, want.sent, seen.at, about)
		require.Positive(s.t, seen.over, about)
		if seen.body != nil {
			require.Positive(s.t, seen.body.Closes.Load(), about)
		}
		if want.bounded {
			require.GreaterOrEqual(s.t, s.over[i], want.from, about)
			require.LessOrEqual(s.t, s.over[i], want.until, about)
		}
	}
}

// A trial is a request that is sent twice: once without a Hedge, and once with a Hedge. The first
// attempt and each retry end in the same way in both runs, whatever the hedge meets. How they end depends
// on how many attempts that are not hedges came before, and on nothing else.
//
// The claim is that a request that has a Final response without a Hedge has a Final response with
// the Hedge, and no later. There are three conditions. MaxAttempts is one more with the Hedge, which
// counts for it. The Budget has a token more, which pays for the hedge. And the hedge's response has
// no Retry-After, which the retries would obey.
type trial struct {
	request  int // an index of trialRequests
	policy   retryhttp.Policy
	deadline time.Duration
	tokens   int
	after    time.Duration // of the Hedge
	elders   [6]leg        // the first attempt and the retries: one more if no hedge is sent
	hedge    leg
}

var trialRequests = []func(*testing.T, context.Context) *http.Request{
	get, get,
	raceKind{method: "QUERY", body: inMemoryBody}.request,
	raceKind{method: "QUERY", body: fileBody}.request,
	func(t *testing.T, ctx context.Context) *http.Request {
		req, _ := rewinding(t, ctx)
		return req
	},
}

// trialOf makes a trial of random data.
func trialOf(data []byte) trial {
	r := &raceChoices{data: data}
	leg := func() leg {
		ending := []ending{succeeds, missing, unavailable, breaks, permanent, distrusted, hangs, deaf}[r.next()%8]
		l := legOf(ending, r.duration(3*ms))
		if ending == hangs {
			l.after, l.code = time.Hour, 200 // there may be no AttemptTimeout
		}
		l.asks, l.slow = r.maybe(4, 8*ms).Truncate(ms), r.maybe(2, 2*ms)
		return l
	}
	c := trial{
		request: int(r.next()) % len(trialRequests),
		policy: retryhttp.Policy{
			MaxAttempts: 1 + int(r.next()+3)%5, AttemptTimeout: r.maybe(3, 6*ms), MaxElapsed: r.maybe(6, 20*ms),
			Backoff: func(n int, _ time.Duration) time.Duration { return raceBackoff(n) },
		},
		deadline: r.maybe(4, 30*ms),
		tokens:   int(r.next() % 5),
		after:    r.duration(ms),
	}
	for i := range c.elders {
		c.elders[i] = leg()
	}
	c.hedge = leg()
	c.hedge.asks = 0
	return c
}

// run sends the request, with a Hedge or without.
func (c *trial) run(t *testing.T, hedge *retryhttp.Hedge) (f finish) {
	synctest.Test(t, func(t *testing.T) {
		budget, tokens, p := new(grantingBudget), c.tokens, c.policy
		p.Budget, p.Gate, p.Hedge = budget, &retryhttp.Gate{Hold: -1}, hedge
		if hedge != nil {
			tokens++
			p.MaxAttempts++
		}
		budget.grant(tokens)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if c.deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.deadline)
			defer cancel()
		}
		var elders atomic.Int64
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			meets := c.hedge
			if !retryhttp.AttemptOf(req.Context()).Hedge {
				meets = c.elders[elders.Add(1)-1]
			}
			readRaceContent(t, req)
			return meets.run(req)
		})
		f = newTrack().through(t, base, p, trialRequests[c.request](t, ctx))
		if f.resp != nil {
			_, _ = io.Copy(io.Discard, f.resp.Body)
			_ = f.resp.Body.Close()
		}
		time.Sleep(time.Minute)
		budget.mu.Lock()
		defer budget.mu.Unlock()
		assert.LessOrEqual(t, budget.refunded, budget.withdrawn)
	})
	return f
}

// Hedging helps, or it does nothing.
func FuzzHedgingFailsNoRequestThatWouldSucceed(f *testing.F) {
	addRandom(f, 5000, 30, 70)
	f.Fuzz(func(t *testing.T, data []byte) {
		c := trialOf(data)
		without := c.run(t, nil)
		with := c.run(t, &retryhttp.Hedge{After: c.after, Share: 1})
		if without.final() {
			about := fmt.Sprintf("%+v:\n%+v after %v without a Hedge,\n%+v after %v with one, %v",
				c, without.out, without.at, with.out, with.at, with.err)
			require.True(t, with.final(), about)
			require.LessOrEqual(t, with.at, without.at, about)
		}
	})
}

func (f finish) final() bool { return f.status == 200 || f.status == 404 }
