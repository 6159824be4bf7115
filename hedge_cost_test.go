//go:build !race

package retryhttp_test

import (
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
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
