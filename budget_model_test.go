package retryhttp_test

import (
	"cmp"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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
	price, overdraft      float64 // of the next withdrawal
	paid                  float64 // by the newest withdrawal

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

// judge decides whether the server is poor: from the time when more than a half fails, or more than
// two fifths in the 15 s of a trial, until only two fifths fail and a rest of 10 s is over.
func (m *budgetModel) judge() {
	limit, trial := 0.5, m.now < m.trialUntil
	if trial {
		limit = 0.4
	}
	switch {
	case m.poor && m.failing <= 0.4 && m.now >= m.restUntil:
		m.poor = false
		if m.failing <= 0.3 || !m.rested {
			m.trialUntil = m.now + 15
		}
	case !m.poor && m.failing > limit:
		m.poor, m.rested, m.trialUntil = true, trial, 0
		if trial {
			m.restUntil = m.now + 10
		}
	}
}

func (m *budgetModel) deposit() {
	m.total++
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

func (m *budgetModel) failed(down, invited bool, seconds float64) {
	m.settle()
	m.price, m.overdraft = 1, m.rate*seconds
	if invited {
		m.price = 1.0 / 3
	}
	if down {
		m.downs++
	}
}

func (m *budgetModel) withdraw() bool {
	m.settle()
	price := m.price
	m.price = 1
	defer func() { m.overdraft = 0 }()
	switch {
	case m.enough(m.earned+m.overdraft, price):
		m.earned -= price
		m.paid = price
	case m.perSecond > 0 && m.enough(m.floor, 1):
		m.floor = max(m.floor-1, 0)
		m.paid = 1
	default:
		m.price = price // it may be asked for again
		return false
	}
	return true
}

func (m *budgetModel) refund() {
	m.settle()
	m.earned = min(m.earned+m.paid, m.room())
}

func (m *budgetModel) tokens() float64 {
	m.settle()
	earned, earnedRest := math.Modf(max(m.earned+1e-10, 0))
	floor, floorRest := math.Modf(m.floor + 1e-10)
	return earned + floor + max(earnedRest, floorRest)
}

func newBudgetModel(b *retryhttp.TokenBucket) *budgetModel {
	m := &budgetModel{
		ratio: b.Ratio, burst: float64(b.Burst), window: b.Window.Seconds(), perSecond: max(b.MinPerSecond, 0),
	}
	switch {
	case b.Ratio == 0:
		m.ratio, m.most = 0.1, max(cmp.Or(b.Most, 0.5), 0.1)
	case b.Ratio > 0:
		m.most = max(b.Most, b.Ratio)
	}
	if b.Burst == 0 {
		m.burst = 5
	}
	if b.Window == 0 {
		m.window = 20
	}
	m.ratio, m.burst = max(m.ratio, 0), max(m.burst, 0)
	m.earned, m.floor = m.burst, m.floorRoom()
	m.price, m.paid, m.tenth = 1, 1, math.Inf(-1)
	return m
}

// failures are attempts that a budget hears of.
var failures = []struct {
	attempt       retryhttp.Attempt
	down, invited bool
}{
	{retryhttp.Attempt{Response: &http.Response{StatusCode: 503}, Elapsed: 10 * time.Millisecond}, true, false},
	{retryhttp.Attempt{Response: &http.Response{StatusCode: 503}, Elapsed: 10 * time.Second}, true, false},
	{retryhttp.Attempt{Err: io.ErrUnexpectedEOF, Elapsed: time.Second}, true, false},
	{retryhttp.Attempt{Response: &http.Response{StatusCode: 408}}, false, false},
	{retryhttp.Attempt{Response: &http.Response{StatusCode: 429}, Elapsed: time.Millisecond}, false, false},
	{retryhttp.Attempt{Response: &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}}}, false, true},
	{retryhttp.Attempt{Response: &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"1"}}}}, false, false},
}

// compareWithModel applies ops to b and to a model of it, which must agree on
// everything. Extreme fields have no model; then compareWithModel requires only
// what holds for all fields. It must run in a bubble.
//
// One processor has one counter, which is folded at every 64th deposit, as in the
// model. Several processors fold each their own.
func compareWithModel(t *testing.T, b *retryhttp.TokenBucket, modeled bool, ops []byte) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var requests []*http.Request
	var open []bool // whose last Withdraw was granted and can be refunded
	for i := range 4 {
		requests, open = append(requests, requestTo([]string{"a", "b"}[i%2])), append(open, false)
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
			if kind == 2 {
				failed := failures[amount%len(failures)]
				b.Failed(req, failed.attempt)
				m.failed(failed.down, failed.invited, failed.attempt.Elapsed.Seconds())
			}
			price, overdraft := m.price, m.overdraft
			if !modeled {
				price = 1.0 / 3 // or more
			}
			before := b.Tokens(req)
			granted := b.Withdraw(req)
			if modeled {
				want := m.withdraw()
				if m.unsure {
					return
				}
				require.Equal(t, want, granted, "Withdraw with %v tokens", before)
			}
			switch {
			case granted && overdraft == 0:
				open[i] = true
				require.GreaterOrEqual(t, before, price-1e-9)
				if modeled && before < 1e6 && before >= 1 && b.MinPerSecond == 0 {
					require.InDelta(t, before-price, b.Tokens(req), 1e-6)
				}
			case granted:
				open[i] = true
			default:
				require.Less(t, before, 1.0)
				require.Equal(t, before, b.Tokens(req))
			}
		case 3:
			if open[i] {
				before := b.Tokens(req)
				b.Refund(req)
				m.refund()
				open[i] = false
				require.GreaterOrEqual(t, b.Tokens(req), before)
				require.LessOrEqual(t, b.Tokens(req), before+1+1e-6*max(before, 1))
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
		tokens := b.Tokens(req)
		require.False(t, math.IsNaN(tokens) || math.IsInf(tokens, 0), "%v tokens", tokens)
		require.GreaterOrEqual(t, tokens, 0.0)
		if modeled {
			want := newBudgetModel(b).tokens()
			if m != nil {
				want = m.tokens()
			}
			require.InDelta(t, want, tokens, 1e-7*max(want, 1))
		}
	}
}

func TestBudgetAgreesWithAPlainModel(t *testing.T) {
	pick := func(rng *rand.Rand, from ...float64) float64 { return from[rng.IntN(len(from))] }
	run := func(perSecond ...float64) func(*testing.T) {
		return func(t *testing.T) {
			for seed := range uint64(150) {
				rng := rand.New(rand.NewPCG(seed, 2))
				b := &retryhttp.TokenBucket{
					Ratio:        pick(rng, -1, 0, 0, 0.05, 0.1, 0.3, 1, 2.5),
					Most:         pick(rng, 0, 0, 0.05, 0.5, 1),
					Burst:        int(pick(rng, -1, 0, 0, 1, 2, 10, 100)),
					Window:       time.Duration(pick(rng, -1, 0, 0, 0.5e9, 1e9, 60e9, 3600e9)),
					MinPerSecond: pick(rng, perSecond...),
				}
				ops := make([]byte, 200)
				for i := range ops {
					ops[i] = byte(rng.Uint32())
				}
				synctest.Test(t, func(t *testing.T) { compareWithModel(t, b, true, ops) })
				if t.Failed() {
					t.Logf("seed %d: %+v", seed, []any{b.Ratio, b.Burst, b.Window, b.MinPerSecond})
					return
				}
			}
		}
	}
	t.Run("earned tokens", run(0))
	t.Run("with MinPerSecond", run(-1, 0.25, 0.5, 1, 2.5, 10))
}

// These tests build budgets of other libraries, and check them against published
// numbers.

func TestBudgetOfTheAWSSDK(t *testing.T) {
	// 500 tokens and 5 a retry; a success at the first attempt gives back 1.
	synctest.Test(t, func(t *testing.T) {
		b := retryhttp.TokenBucket{Burst: 100, Window: -1, Ratio: 1.0 / 5}
		req := requestTo("example.test")
		assert.Equal(t, 100, drawAll(t, &b, req))
		deposit(&b, req, 4)
		assert.False(t, b.Withdraw(req), "4 tokens are no retry")
		deposit(&b, req, 1)
		assert.Equal(t, 1, drawAll(t, &b, req))
		deposit(&b, req, 10_000)
		assert.Equal(t, 100, drawAll(t, &b, req), "500 tokens are all that it holds")
	})
}

func TestBudgetOfATenthOfTheCallsAfterTheFirstHundred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retryhttp.TokenBucket{Ratio: 0.1, Burst: 10}
		req := requestTo("example.test")
		retries := 0
		for range 100 {
			if b.Withdraw(req) {
				retries++
			}
		}
		assert.Equal(t, 10, retries, "of the first hundred calls, all of which fail")

		successes := 0
		for call := range 10_000 {
			time.Sleep(10 * time.Millisecond)
			if call%5 == 0 {
				if b.Withdraw(req) {
					retries++
				}
			} else {
				b.Deposit(req)
				successes++
			}
			require.LessOrEqual(t, float64(retries), 10+0.1*float64(successes)+1e-6)
		}
		assert.Equal(t, 8000, successes)
		assert.InDelta(t, 10+800, retries, 1, "what was earned could be spent")
	})
}

func TestBudgetOfFinagle(t *testing.T) {
	// A fifth of the requests of the last 10 s, and 10 a second.
	synctest.Test(t, func(t *testing.T) {
		b := retryhttp.TokenBucket{Ratio: 0.2, Window: 10 * time.Second, MinPerSecond: 10}
		req := requestTo("example.test")
		for range 6000 { // 100 a second, for a minute
			b.Deposit(req)
			time.Sleep(10 * time.Millisecond)
		}
		earned := 0.2 * 100 * 10
		assert.InEpsilon(t, earned+10, b.Tokens(req), 0.01)
		assert.InEpsilon(t, earned+10, drawAll(t, &b, req), 0.01)

		granted := 0
		for range 10 { // an outage
			time.Sleep(time.Second)
			granted += drawAll(t, &b, req)
		}
		assert.Equal(t, 100, granted)

		granted = 0
		for range 1000 { // 10 s in which one attempt in two fails, and 100 a second succeed
			time.Sleep(10 * time.Millisecond)
			b.Deposit(req)
			granted += drawAll(t, &b, req)
		}
		assert.Equal(t, 200+100, granted)
	})
}
