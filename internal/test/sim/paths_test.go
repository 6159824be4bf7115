package sim

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// byPath gives each path of a host a budget and a fate of its own.
func byPath() retryhttp.Policy {
	key := func(req *http.Request) string { return req.URL.Host + req.URL.Path }
	return retryhttp.Policy{Budget: &retryhttp.TokenBucket{Key: key}, Gate: &retryhttp.Gate{Key: key}}
}

func TestGateOfAHostWithADeadPath(t *testing.T) {
	p := Paths{
		Policy: defaults, Rate: 1000, Ill: 0.5, Flaws: 0.02, WarmUp: steady,
		For: 3 * time.Second, After: 8 * time.Second, Seeds: 3,
	}
	t.Run("by host, a Gate hears of successes and holds nothing", func(t *testing.T) {
		with := p.Run(t)
		p.Policy = ungated(defaults)
		without := p.Run(t)
		assert.InDelta(t, without.Ill.Load.Value, with.Ill.Load.Value, 0.1)
		assert.GreaterOrEqual(t, with.Ill.Lost.Value, 0.9)
		assert.LessOrEqual(t, with.Well.Quantile(0.99), time.Second)
	})
	t.Run("by host and without a budget, the same", func(t *testing.T) {
		p.Policy = unlimited
		r := p.Run(t)
		assert.GreaterOrEqual(t, r.Ill.Load.Value, 3.0)
		assert.LessOrEqual(t, r.Well.Quantile(0.99), time.Second)
	})
	t.Run("by path", func(t *testing.T) {
		p.Policy = byPath
		r := p.Run(t)
		assert.LessOrEqual(t, r.Ill.Lost.Value, 0.5)
		assert.LessOrEqual(t, r.Ill.Load.Value, 1.05)
		assert.Zero(t, r.Well.Lost.Value)
		assert.LessOrEqual(t, r.Well.Quantile(0.99), time.Second)
	})
}
