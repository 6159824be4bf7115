package retryhttp_test

import (
	"bytes"
	"cmp"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// budgetModel is TokenBucket's rules for one key in the plainest form. It accounts
// for the rate and MinPerSecond itself, and is not safe for concurrent use.
type budgetModel struct {
	ratio, most, burst, window, perSecond float64

	now                   float64 // seconds, as everywhere here
	settled               float64 // up to when rate and earned are right
	pending               int     // successes since
	total                 int     // successes ever
	rate                  float64
	earned                float64
	floor                 float64
	failing, ups, downs   float64 // the share of failures, and the results of the present tenth
	rested                bool    // the server has been given a rest since it was poor
	restUntil, trialUntil float64
	tenth                 float64 // when the tenth began
	poor                  bool
	outage, outageFrom    float64 // the newest failure of an outage, and the first
	drawn                 float64 // when it was used last, but by a success
	came                  int     // successes since then
	retried, helped       bool    // a retry was granted since the last rest; a success came after it
	whole                 bool    // the last rest was worth the burst
	credit, vain          int     // of retries after rests; the doublings until the next rest without success and credit
	newest                float64 // when the last success was noticed, or the last such rest

	unsure bool // an amount was so close to one that rounding decides
}

func (m *budgetModel) floorRoom() float64 {
	if m.perSecond == 0 {
		return 0
	}
	return max(1, math.Ceil(m.perSecond))
}

func (m *budgetModel) room() float64 {
	if m.window < 0 {
		return m.burst
	}
	return max(m.burst, m.ratio*m.rate*m.window)
}

func (m *budgetModel) advance(seconds float64) {
	m.now += seconds
	m.floor = min(m.floor+m.perSecond*seconds, m.floorRoom())
}

// settle books the pending successes as if they had come evenly since the last
// call. It mixes their rate into the mean with the weight of that time.
func (m *budgetModel) settle() {
	if elapsed := m.now - m.settled; m.window > 0 && elapsed > 0 {
		weight := -math.Expm1(-elapsed / m.window)
		m.rate = (1-weight)*m.rate + weight*float64(m.pending)/elapsed
	} else if m.window > 0 {
		m.rate += float64(m.pending) / m.window
	}
	m.ups += float64(m.pending)
	if n := m.ups + m.downs; n > 0 && m.now-m.tenth >= 0.1 {
		m.failing += (m.downs/n - m.failing) * min(n, 8) / 64
		m.ups, m.downs, m.tenth = 0, 0, m.now
		m.judge()
	}
	earns := m.most
	if m.poor {
		earns = m.ratio
	}
	m.earned = min(m.earned+earns*float64(m.pending), m.room())
	m.settled, m.pending = m.now, 0
}

func (m *budgetModel) usualRest() float64 {
	if m.window > 0 {
		return m.window
	}
	return 20
}

func (m *budgetModel) rests() bool { return m.now-m.drawn > m.usualRest() }

func (m *budgetModel) retryHelped() bool { return m.helped || m.came > 0 && m.retried }

// creditAfterRest returns the credit after a rest that ends now: one more if a retry has helped since the last
// one, and four less if retries were in vain.
func (m *budgetModel) creditAfterRest() int {
	switch {
	case !m.rests() || !m.retried:
		return m.credit
	case !m.retryHelped():
		return max(m.credit-4, -4)
	case m.whole && m.credit < 0:
		return 0
	}
	return min(m.credit+1, 20)
}

func (m *budgetModel) worthOfRest() float64 {
	late := m.now-m.newest >= m.usualRest()*math.Exp2(float64(m.vain))
	switch credit := m.creditAfterRest(); {
	case math.IsInf(m.drawn, -1) || !m.rests() || m.most <= m.ratio:
		return 0
	case credit > 0, m.came > 0 && credit == 0, m.came == 0 && late:
		return m.burst
	case m.came > 0:
		return min(1, m.burst)
	}
	return 0
}

func (m *budgetModel) draw() {
	m.settle()
	if worth := m.worthOfRest(); worth > 0 {
		m.earned = max(m.earned, worth)
	}
	used, worth, credit := !math.IsInf(m.drawn, -1), m.worthOfRest(), m.creditAfterRest()
	switch {
	case m.came > 0:
		m.newest, m.vain = m.now, 5
	case used && m.rests() && credit <= 0 && m.now-m.newest >= m.usualRest()*math.Exp2(float64(m.vain)):
		m.newest, m.vain = m.now, m.vain+1
	}
	m.credit, m.helped = credit, m.retryHelped()
	if m.rests() {
		m.retried, m.helped, m.whole = false, false, worth == m.burst && used
	}
	m.drawn, m.came = m.now, 0
}

// judge decides whether the server is poor: from the time when more than a half fails, or more than
// two fifths in the minute of a trial, until only two fifths fail and a rest of 20 s is over.
func (m *budgetModel) judge() {
	limit, trial := 0.5, m.now < m.trialUntil
	if trial {
		limit = 0.4
	}
	switch {
	case m.poor && m.failing <= 0.4 && m.now >= m.restUntil:
		m.poor = false
		if m.failing <= 0.3 || !m.rested {
			m.trialUntil = m.now + 60
		}
	case !m.poor && m.failing > limit:
		m.poor, m.rested, m.trialUntil = true, trial, 0
		if trial {
			m.restUntil = m.now + 20
		}
	}
}

func (m *budgetModel) deposit() {
	m.total++
	m.came++
	m.pending++
	if m.total%64 == 0 {
		m.settle()
	}
}

func (m *budgetModel) enough(amount, price float64) bool {
	if amount < price-1e-10 && amount > price-1e-8 {
		m.unsure = true
	}
	return amount >= price-1e-10
}

func (m *budgetModel) failed(f failure) {
	m.settle()
	switch {
	case f.down && f.retry.Down:
		if m.now-m.outage >= 0.3 {
			m.outageFrom = m.now
		}
		m.outage = m.now
		if !m.poor && m.now-m.outageFrom >= 0.3 {
			m.trialUntil = m.now + 60
		}
	case f.down:
		m.downs++
	}
}

func (m *budgetModel) withdraw(f failure) (cost float64, ok bool) {
	m.draw()
	price, overdraft := 1.0, m.rate*f.retry.Failed.Elapsed.Seconds()
	if m.most == 0 {
		overdraft = 0
	}
	if f.invited {
		price = 1.0 / 3
	}
	switch {
	case m.enough(m.earned+overdraft, price):
		m.earned -= price
		m.retried = true
		return price, true
	case m.perSecond > 0 && m.enough(m.floor, 1):
		m.floor = max(m.floor-1, 0)
		return 1, true
	}
	return 0, false
}

func (m *budgetModel) refund(cost float64) {
	m.draw()
	m.earned = min(m.earned+cost, m.room())
}

func (m *budgetModel) tokens() float64 {
	m.settle()
	earned, earnedRest := math.Modf(max(m.earned+1e-10, m.worthOfRest(), 0))
	floor, floorRest := math.Modf(m.floor + 1e-10)
	return earned + floor + max(earnedRest, floorRest)
}

func newBudgetModel(b *retryhttp.TokenBucket) *budgetModel {
	m := &budgetModel{
		ratio: b.Ratio, burst: float64(b.Burst), window: b.Window.Seconds(), perSecond: max(b.MinPerSecond, 0),
	}
	switch {
	case b.Ratio == 0:
		m.ratio, m.most = 0.1, max(cmp.Or(b.HealthyRatio, 0.5), 0.1)
	case b.Ratio > 0:
		m.most = max(b.HealthyRatio, b.Ratio)
	}
	if b.Burst == 0 {
		m.burst = 5
	}
	if b.Window == 0 {
		m.window = 20
	}
	m.ratio, m.burst = max(m.ratio, 0), max(m.burst, 0)
	m.earned, m.floor = m.burst, m.floorRoom()
	m.vain = 5
	m.tenth, m.outage, m.drawn = math.Inf(-1), math.Inf(-1), math.Inf(-1)
	return m
}

// A Retry that a program makes has no Status.
var answered503 = &http.Response{StatusCode: http.StatusServiceUnavailable}

// failure is what a budget is asked with, and what that means.
type failure struct {
	retry         retryhttp.Retry
	down, invited bool
}

var failures = []failure{
	{retryhttp.Retry{}, false, false}, // a hedge
	{retryhttp.Retry{Failed: retryhttp.Attempt{Elapsed: 10 * time.Millisecond, Response: answered503}}, true, false},
	{retryhttp.Retry{Failed: retryhttp.Attempt{Elapsed: 10 * time.Second}, Status: 503}, true, false},
	{retryhttp.Retry{Failed: retryhttp.Attempt{Err: io.ErrUnexpectedEOF, Elapsed: time.Second}}, true, false},
	{retryhttp.Retry{Failed: retryhttp.Attempt{Response: answered503}, Down: true}, true, false},
	{retryhttp.Retry{Status: 408}, false, false},
	{retryhttp.Retry{Failed: retryhttp.Attempt{Elapsed: time.Millisecond}, Status: 429}, false, false},
	{retryhttp.Retry{Status: 429, Asked: time.Second}, false, true},
	{retryhttp.Retry{Failed: retryhttp.Attempt{Err: io.ErrUnexpectedEOF}, Status: 429, Asked: time.Second}, false, true},
	{retryhttp.Retry{Status: 503, Asked: time.Second}, true, false},
}

// compareWithModel applies ops to b and to a model of it, which must agree on
// everything. Extreme fields have no model; then compareWithModel requires only
// what holds for all fields. It must run in a bubble.
func compareWithModel(t *testing.T, b *retryhttp.TokenBucket, modeled bool, ops []byte) {
	t.Helper()
	var requests []*http.Request
	var open []float64 // what the last Withdraw cost, if it can be refunded
	for i := range 4 {
		requests, open = append(requests, requestTo([]string{"a", "b"}[i%2])), append(open, 0)
	}
	models := map[string]*budgetModel{}
	for _, op := range ops {
		kind, amount := op%8, int(op/8)
		i := amount % len(requests)
		req := requests[i]
		m := models[req.URL.Host]
		if m == nil && (kind <= 2 || kind == 4 || kind == 5) { // a bucket starts with its first use
			m = newBudgetModel(b)
			models[req.URL.Host] = m
		}
		switch kind {
		case 0, 1, 2:
			f := failures[0]
			if kind > 0 {
				f = failures[amount%len(failures)]
			}
			f.retry.Request, f.retry.Again = req, kind == 2
			before := b.Status(req).Tokens
			cost, granted := b.Withdraw(f.retry)
			if !f.retry.Again {
				m.failed(f)
			}
			if modeled {
				price, want := m.withdraw(f)
				if m.unsure {
					return
				}
				require.Equal(t, want, granted, "Withdraw with %v tokens", before)
				if granted {
					require.Equal(t, price, cost)
				}
			}
			switch {
			case granted:
				open[i] = cost
				if modeled && before < 1e6 && before >= 1 && b.MinPerSecond == 0 {
					require.InDelta(t, before-cost, b.Status(req).Tokens, 1e-6)
				}
			default:
				require.Less(t, before, 1.0)
				require.Equal(t, before, b.Status(req).Tokens)
			}
		case 3:
			if cost := open[i]; cost > 0 {
				before := b.Status(req).Tokens
				b.Refund(req, cost)
				m.refund(cost)
				open[i] = 0
				require.GreaterOrEqual(t, b.Status(req).Tokens, before)
				require.LessOrEqual(t, b.Status(req).Tokens, before+1+1e-6*max(before, 1))
			}
		case 4, 5:
			for range 1 + amount*int(kind-4)*3 {
				b.Deposit(req)
				m.deposit()
			}
		case 6, 7:
			d := time.Duration(amount+1) * 37 * time.Millisecond
			if kind == 7 {
				d *= 80
			}
			time.Sleep(d)
			for _, m := range models {
				m.advance(d.Seconds())
			}
		}
		status := b.Status(req)
		tokens := status.Tokens
		require.False(t, math.IsNaN(tokens) || math.IsInf(tokens, 0), "%v tokens", tokens)
		require.GreaterOrEqual(t, tokens, 0.0)
		if modeled {
			want := newBudgetModel(b).tokens()
			if m != nil {
				want = m.tokens()
			}
			require.InDelta(t, want, tokens, 1e-7*max(want, 1))
			require.Equal(t, m != nil && m.poor && m.most > m.ratio, status.Sparing)
		}
	}
}

// onTrial makes the server poor, and then well. After so many times 12 s, it gets worse, gets better, and gets worse
// again after 12 s and after 24 s.
func onTrial(pauses int) []byte {
	const tenth, success, pause = "\x16", "\x1d\x16", "\x1f"
	failure := strings.Repeat("\x09", 8) + tenth
	worse, better := strings.Repeat(failure, 2), strings.Repeat(success, 5)
	return []byte(strings.Repeat(failure, 8) + better + strings.Repeat(pause, pauses) +
		worse + better + pause + better + pause + better + worse + better)
}

// repeatedly is one failure for some tenths of a second, and then a success.
func repeatedly(i int) []byte {
	const tenth = 0x16
	return append(bytes.Repeat(append(bytes.Repeat([]byte{byte(i<<3 | 1)}, 8), tenth), 8), byte(i<<3|4))
}

// restsOf repeats what happens between two rests, and then has five retries and a rest in vain.
func restsOf(ops string) []byte {
	return []byte(strings.Repeat(ops, 12) + "\x00\x00\x00\x00\x00" + strings.Repeat("\xff", 8) + "\x00\x00")
}

// overdrawn has slow failures overdraw the bucket of a busy host. Later successes pay for it.
func overdrawn() []byte {
	const busy, slow, hedge = "\xe5", "\x11", "\x00"
	return []byte(busy + strings.Repeat(slow, 40) + hedge + busy + hedge + busy + strings.Repeat(hedge, 9))
}

func FuzzBudget(f *testing.F) {
	ops := []byte("\x04\x00\x08\x10\x18\x03\x0b\x06\x00\x0d\x05\xfd\x00\x07\x00\x01\x02\xff\x00\x03\xfe\x00")
	for _, ratio := range []float64{
		math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, -1, 0, 0.1, 1,
	} {
		f.Add(ratio, math.MaxInt, int64(math.MaxInt64), math.Inf(1), ops)
		f.Add(ratio, math.MinInt, int64(math.MinInt64), math.NaN(), ops)
		f.Add(ratio, 0, int64(0), 0.0, ops)
		f.Add(ratio, 1, int64(1), math.SmallestNonzeroFloat64, ops)
		f.Add(ratio, -1, int64(time.Second), 2.5, ops)
	}
	f.Add(0.0, -1, int64(time.Second), 0.5, []byte("\x00\x03\x06\x00")) // a token of MinPerSecond comes back
	for _, pauses := range []int{0, 1, 2, 4, 5, 6} {
		f.Add(0.0, 100, int64(-1), 0.0, onTrial(pauses))
	}
	for _, ratio := range []float64{0, 0.1} { // a rest gives a token, and none if the Ratio is set
		f.Add(ratio, 5, int64(0), 0.0, []byte("\x00\x00\x00\x00\x00\x00\x04\xff\x00"))
	}
	f.Add(0.0, 5, int64(0), 0.0, restsOf("\x00\x00\x00\x00\x04\xff")) // a success needs four retries after each rest
	f.Add(0.0, 5, int64(0), 0.0, restsOf("\x00\x00\x04\x04\xff"))     // a first attempt succeeds as well
	f.Add(0.0, 5, int64(0), 0.0, restsOf("\x00\x00\xff\xff\xff\xff")) // rests in vain
	f.Add(0.0, 5, int64(0), 0.0, restsOf("\x00\x00\x04\x03\xff"))     // a refund follows the success
	f.Add(0.0, 5, int64(0), 0.0, []byte(strings.Repeat("\x00\x00\x00\x00\x00"+strings.Repeat("\xff", 8), 5)+
		strings.Repeat("\x04\x00\x04\xff", 12))) // long in vain, and then each retry helps
	const spend, success = "\x00\x00\x00\x00\x00\x00", "\x04\x00"
	minutes := strings.Repeat("\xff", 4)                                            // six; after eleven, a rest needs no credit
	f.Add(0.0, 5, int64(0), 0.0, []byte(spend+minutes+success+spend+minutes+spend)) // the success was six ago
	f.Add(0.0, 5, int64(0), 0.0, []byte(strings.Repeat(spend+minutes+minutes, 2)+
		success+spend+minutes+minutes+spend)) // after the success, eleven suffice again
	f.Add(0.0, -1, int64(0), 0.0, overdrawn())
	f.Add(-1.0, -1, int64(0), 1.0, overdrawn())
	for i := range failures {
		f.Add(0.0, 100, int64(-1), 0.0, repeatedly(i))
	}
	f.Add(0.2, 100, int64(-1), 0.0, onTrial(0)) // earns as much at all times, and is never sparing
	f.Fuzz(func(t *testing.T, ratio float64, burst int, window int64, perSecond float64, ops []byte) {
		b := &retryhttp.TokenBucket{Ratio: ratio, Burst: burst, Window: time.Duration(window), MinPerSecond: perSecond}
		within := func(x, lo, hi float64) bool { return lo <= x && x <= hi }
		modeled := (ratio == 0 || within(math.Abs(ratio), 1e-3, 10)) && within(float64(burst), -1000, 1000) &&
			(window <= 0 || within(float64(window), 1e6, 3600e9)) && (perSecond <= 0 || within(perSecond, 1e-3, 1000))
		synctest.Test(t, func(t *testing.T) { compareWithModel(t, b, modeled, ops[:min(len(ops), 200)]) })
	})
}
