package retryhttp_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// A hedge that is sent costs no token if the race ends in a Final response.
func TestTokenOfAHedgeIsGivenBackAfterAFinalResponse(t *testing.T) {
	permanent := retryhttp.Permanent(errBroken)
	for name, c := range map[string]struct {
		laps                []lap
		withdrawn, refunded int
	}{
		"the first attempt wins":              {[]lap{{after: 60 * ms, code: 200}, {}}, 1, 1},
		"the hedge wins":                      {[]lap{{}, {after: 10 * ms, code: 404}}, 1, 1},
		"the hedge has failed, and loses":     {[]lap{{after: 90 * ms, code: 200}, {after: 10 * ms, code: 503}}, 1, 1},
		"the hedge wins while a retry waits":  {[]lap{{after: 60 * ms, code: 503}, {after: 100 * ms, code: 200}}, 1, 1},
		"a retry takes the place of a hedge":  {[]lap{{after: 60 * ms, code: 503}, {}, {after: ms, code: 200}}, 2, 0},
		"both fail, and a retry succeeds":     {[]lap{{after: 90 * ms, code: 503}, {after: ms, code: 503}, {code: 200, after: ms}}, 2, 0},
		"the first attempt cannot be retried": {[]lap{{after: 60 * ms, err: permanent}, {}}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				newTrack(c.laps...).runOn(t, p, get(t, t.Context()))
				b := p.Budget.(*countingBudget)
				assert.Equal(t, c.withdrawn, b.withdrawn)
				assert.Equal(t, c.refunded, b.refunded)
			})
		})
	}
}

func TestOutcomeNamesAHedgeThatTheBudgetRefused(t *testing.T) {
	for name, c := range map[string]struct {
		laps    []lap
		tokens  int
		refused bool
	}{
		"refused":                    {[]lap{{after: 60 * ms, code: 200}}, 0, true},
		"refused beside a failure":   {[]lap{{after: 60 * ms, code: 503}}, 0, true},
		"refused, and then answered": {[]lap{{after: 60 * ms, code: 404}}, 0, true},
		"not due":                    {[]lap{{after: 40 * ms, code: 200}}, 0, false},
		"granted":                    {[]lap{{after: 60 * ms, code: 200}, {}}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := hedging()
				budget := new(grantingBudget)
				budget.grant(c.tokens)
				p.Budget = budget
				var done retryhttp.Outcome
				p.OnDone = func(_ retryhttp.Attempt, o retryhttp.Outcome) { done = o }
				f := newTrack(c.laps...).runOn(t, p, get(t, t.Context()))
				assert.Equal(t, c.refused, f.out.HedgeRefused)
				assert.Equal(t, c.refused, done.HedgeRefused)
				assert.Equal(t, c.tokens, f.out.Hedges)
			})
		})
	}
}

// busy is a service under a steady load. What each attempt that is not a hedge meets is the same
// in every run.
type busy struct {
	began   time.Time
	blip    [2]time.Duration // in which every attempt fails
	failing float64          // the share of the attempts that fail after the first two seconds
}

type busyRequest struct {
	id, elders int
	mu         sync.Mutex
}

type busyKey struct{}

func (b *busy) RoundTrip(req *http.Request) (*http.Response, error) {
	r := req.Context().Value(busyKey{}).(*busyRequest)
	draw := 1000
	if !retryhttp.AttemptOf(req.Context()).Hedge {
		r.mu.Lock()
		draw = r.elders
		r.elders++
		r.mu.Unlock()
	}
	rng := rand.New(rand.NewPCG(uint64(r.id), uint64(draw)))
	took := time.Duration(2+rng.ExpFloat64()*3) * ms
	if rng.IntN(10) == 0 {
		took += 30 * ms
	}
	at := time.Since(b.began)
	code := 200
	if rng.Float64() < b.failing && at > 2*time.Second || b.blip[0] <= at && at < b.blip[1] {
		code = 503
	}
	select {
	case <-time.After(took):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	return script.Response(req, code), nil
}

// failures sends a thousand requests a second, and returns which of them fail.
func (b busy) failures(t *testing.T, hedge *retryhttp.Hedge) (failed map[int]bool, hedges int) {
	t.Helper()
	failed = make(map[int]bool)
	synctest.Test(t, func(t *testing.T) {
		b.began = time.Now()
		p := retryhttp.Policy{Hedge: hedge, MaxAttempts: 4, Backoff: retryhttp.Exponential(250*ms, time.Minute)}
		if hedge != nil {
			p.MaxAttempts++ // for the hedge
		}
		rt := retryhttp.New(&b, p)
		var mu sync.Mutex
		var all sync.WaitGroup
		for id := range 6000 {
			all.Go(func() {
				req := get(t, context.WithValue(t.Context(), busyKey{}, &busyRequest{id: id}))
				resp, err := rt.RoundTrip(req)
				if !assert.NoError(t, err) {
					return
				}
				_ = resp.Body.Close()
				mu.Lock()
				defer mu.Unlock()
				hedges += retryhttp.OutcomeOf(resp).Hedges
				if resp.StatusCode != 200 {
					failed[id] = true
				}
			})
			time.Sleep(ms)
		}
		all.Wait()
		time.Sleep(time.Second)
	})
	return failed, hedges
}

// Hedges leave the tokens to the retries.
func TestHedgesDoNotMakeRequestsFail(t *testing.T) {
	for name, c := range map[string]struct {
		service busy
		hedge   *retryhttp.Hedge
	}{
		"a tenth is hedged, and nothing is answered for 200 ms": {
			busy{blip: [2]time.Duration{4 * time.Second, 4200 * ms}}, &retryhttp.Hedge{Share: 0.10},
		},
		"7 attempts of 100 fail": {busy{failing: 0.07}, new(retryhttp.Hedge)},
	} {
		t.Run(name, func(t *testing.T) {
			without, _ := c.service.failures(t, nil)
			with, hedges := c.service.failures(t, c.hedge)
			t.Logf("%d fail without a Hedge, %d with %d hedges", len(without), len(with), hedges)
			require.Greater(t, hedges, 100)
			for id := range with {
				assert.Contains(t, without, id)
			}
		})
	}
}
