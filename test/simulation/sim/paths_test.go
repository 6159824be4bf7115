package sim

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// byPath gives each path of a host a budget and a health of its own.
func byPath() retryhttp.Policy {
	key := func(req *http.Request) string { return req.URL.Host + req.URL.Path }
	return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Key: key}, Gate: &retryhttp.Gate{Key: key}}
}

func TestGateOfAHostWithADeadPath(t *testing.T) {
	p := Paths{
		Policy: defaults, Rate: 1000, Ill: 0.5, Flaws: 0.02, WarmUp: steady,
		For: 3 * time.Second, After: 8 * time.Second, Seeds: 3,
	}
	t.Run("by host, a Gate hears of successes and stays open", func(t *testing.T) {
		p := p
		p.Seeds = 60 // a run has some 30 requests that recover, of which one in 250 takes longer than 2 s
		with := p.Run(t)
		p.Policy, p.Seeds = ungated(defaults), 20
		without := p.Run(t)
		assert.InDelta(t, without.Ill.Load.Mean, with.Ill.Load.Mean, 0.1)
		assert.LessOrEqual(t, with.Ill.Lost.Mean, without.Ill.Lost.Mean)
		assert.LessOrEqual(t, with.Well.Quantile(0.99), 2*time.Second)
	})
	t.Run("by host and without a budget, the same", func(t *testing.T) {
		p.Policy = unlimited
		r := p.Run(t)
		assert.GreaterOrEqual(t, r.Ill.Load.Mean, 3.0)
		assert.LessOrEqual(t, r.Well.Quantile(0.99), time.Second)
	})
	t.Run("by path", func(t *testing.T) {
		p.Policy = byPath
		r := p.Run(t)
		assert.LessOrEqual(t, r.Ill.Lost.Mean, 0.5)
		assert.LessOrEqual(t, r.Ill.Load.Mean, 1.05)
		assert.Zero(t, r.Well.Lost.Mean)
		assert.LessOrEqual(t, r.Well.Quantile(0.99), time.Second)
	})
}

// Both paths draw on one budget, and the dead path asks far more often. The live path needs few
// tokens, and must find them.
func TestLivePathOfAHostLosesLittleToADeadOne(t *testing.T) {
	for name, c := range map[string]struct {
		ill    float64
		outage time.Duration // until the budget of a tenth has nothing left
		lost   float64
	}{
		"a fifth of the requests": {0.2, 10 * time.Second, 0.02},
		"half of the requests":    {0.5, 3 * time.Second, 0.20},
	} {
		t.Run(name, func(t *testing.T) {
			p := Paths{
				Policy: defaults, Rate: 1000, Ill: c.ill, Flaws: 0.02, WarmUp: steady,
				For: c.outage, After: 8 * time.Second, Seeds: 4 / fewer,
			}
			r := p.Run(t)
			t.Logf("live: lost %v, load %v; dead: lost %v, load %v", r.Well.Lost, r.Well.Load, r.Ill.Lost, r.Ill.Load)
			assert.LessOrEqual(t, r.Well.Lost.Mean, c.lost)
			p.Policy = ungated(tenth)
			assert.GreaterOrEqual(t, p.Run(t).Well.Lost.Mean, 0.3, "a tenth for each success, and no line")
			p.Policy = ungated(unlimited)
			assert.LessOrEqual(t, p.Run(t).Well.Lost.Mean, 0.02, "no budget")
		})
	}
}

// The requests of the dead endpoint would spend all that the live ones earn.
func TestOneDeadEndpointOfTenCostsTheOthersNothing(t *testing.T) {
	p := Paths{
		Policy: defaults, Rate: 200, Ill: 0.1, Flaws: 0.02, WarmUp: 20 * time.Second,
		For: time.Minute, Seeds: 3,
	}
	assert.LessOrEqual(t, p.Run(t).Well.Lost.Mean, 0.01)
	p.Policy, p.Seeds = fixedTenth, 12
	assert.InDelta(t, 0.5, p.Run(t).Well.Lost.Mean, 0.12, "a fixed tenth")
	p.Policy, p.Seeds = ungated(unlimited), 1
	assert.LessOrEqual(t, p.Run(t).Well.Lost.Mean, 0.01, "no budget")
}
