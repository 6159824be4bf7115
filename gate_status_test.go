package retryhttp_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestStatusAndGaugesOfARequestWithoutAURL(t *testing.T) {
	var key func(*http.Request) string
	for range 2 {
		gate, bucket, hedge := &retryhttp.Gate{Key: key}, &retryhttp.TokenBucket{Key: key}, &retryhttp.Hedge{Key: key}
		_, err := retryhttp.New(script.New(script.Fail(errBroken)), retryhttp.Policy{Gate: gate, MaxAttempts: 1}).
			RoundTrip(requestTo("host")) // a Gate without results looks at nothing
		require.Error(t, err)
		for _, req := range []*http.Request{nil, {}} {
			assert.Zero(t, gate.Status(req))
			assert.EqualValues(t, 5, bucket.Status(req).Tokens)
			_, known := hedge.Delay(req)
			assert.False(t, known)
		}
		key = func(req *http.Request) string { return req.URL.Path }
	}
}

// The panic comes while the Gate holds a retry, and other goroutines ask it.
func TestKeyThatPanicsPanicsInTheCallerOfStatusAlone(t *testing.T) {
	panics := func(req *http.Request) string {
		if req.URL.Path == "/panic" {
			panic("no key")
		}
		return req.URL.Host
	}
	inGate(t, &retryhttp.Gate{Key: panics}, func(t *testing.T, g *gated) {
		g.down()
		held := g.at(90*ms, "/503,200")
		g.wait(295 * ms)
		bad := requestTo("host")
		bad.URL.Path = "/panic"
		var asking sync.WaitGroup
		for range 10 {
			asking.Go(func() {
				assert.PanicsWithValue(t, "no key", func() { g.gate.Status(bad) })
			})
		}
		asking.Wait()
		down := g.gate.Status(requestTo("host")).Down
		assert.True(t, down)
		assert.Equal(t, 1, g.held())
		g.ended.Wait()
		assert.Equal(t, 200, held.status)
		down = g.gate.Status(requestTo("host")).Down
		assert.False(t, down)
	})
}

// Retries wait in line because their budget is spent. Seven failures do not make their host down.
func TestStatusIsNotDownWhileOnlyALineWaits(t *testing.T) {
	for failures, want := range map[int]bool{7: false, 8: true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLining(t, nil)
			for i := range failures {
				l.at(time.Duration(i)*20*ms, "/503,200,"+strconv.Itoa(i))
			}
			time.Sleep(300 * ms)
			s := l.gate.Status(l.request("/"))
			assert.Equal(t, want, s.Down, "after %d failures", failures)
			assert.Zero(t, s.Closed)
			assert.Greater(t, s.Held, 4)
			assert.Equal(t, s.Held, s.InLine)
			l.others.Wait()
		})
	}
}
