package http2_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// tries is how often a base sends a request that it takes for safe to send
// again, with waits that would be too long outside of a bubble.
const tries = 8

// scene is a request to a server in memory, in a bubble.
type scene struct {
	handler *fault.Server
	frames  *server
	result  fault.Result
	classes []retryhttp.Class
}

// withoutDetours is a base in which all attempts take the pool.
type withoutDetours struct{ *http.Transport }

// play makes a request with the policy, after set has given orders.
func play(t *testing.T, b base, p retryhttp.Policy, m fault.Method, k fault.Kind, set func(*scene)) *scene {
	t.Helper()
	n := memnet.New()
	s := &scene{handler: fault.NewServer(fault.NewLedger())}
	s.frames = newServer(n, s.handler, 16<<10)
	set(s)
	p.Backoff = retryhttp.Constant(0)
	p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		s.classes = append(s.classes, retryhttp.Classify(a))
		return s.classes[len(s.classes)-1]
	}
	base := b.open(n.Dial)
	if t, ok := base.(*http.Transport); ok {
		base = withoutDetours{t} // net/http sends again only what takes the pool
	}
	rt := retryhttp.New(base, p)
	s.result = fault.Send(t.Context(), rt, s.handler.Ledger, "http://server", "request", 1, m, k)
	rt.CloseIdleConnections()
	s.handler.Close()
	s.frames.close()
	synctest.Wait()
	assert.NoError(t, s.handler.Ledger.Check("request", s.result.Succeeded()))
	assert.NoError(t, s.result.Upload.Closed(true))
	time.Sleep(time.Minute) // what a base keeps for a closed stream
	return s
}

func kind(t *testing.T, name string) fault.Kind {
	t.Helper()
	i := slices.IndexFunc(fault.Kinds, func(k fault.Kind) bool { return k.Name == name })
	require.GreaterOrEqual(t, i, 0)
	return fault.Kinds[i]
}

// inBubble runs f with each base.
func inBubble(t *testing.T, f func(*testing.T, base)) {
	t.Helper()
	for _, b := range bases {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, b) })
		})
	}
}

var post = fault.Method{Name: http.MethodPost}

// refused refuses each of the base's tries, and one more. Without a GetBody the base does not try
// again.
func refused(k string) func(s *scene) {
	times := tries + 1
	if k == "recorded stream" {
		times = 1
	}
	return func(s *scene) { s.frames.order("request", slices.Repeat([]func(*stream){refuse}, times)...) }
}

func TestRefusedStreamIsUnprocessed(t *testing.T) {
	inBubble(t, func(t *testing.T, b base) {
		s := play(t, b, retryhttp.Policy{}, post, kind(t, "recorded stream"), refused("recorded stream"))
		assert.Equal(t, []retryhttp.Class{retryhttp.Unprocessed}, s.classes, "%v", s.result)
		assert.Equal(t, retryhttp.StopNotIdempotent, s.result.Outcome.Stop)
		assert.Zero(t, s.handler.Ledger.Arrivals("request"))
	})
}

func TestPostThatWasRefusedSucceedsIfUnprocessedIsRetried(t *testing.T) {
	for _, k := range []string{"none", "bytes.Reader", "recorded stream"} {
		t.Run(k, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b base) {
				s := play(t, b, retryhttp.Policy{RetryUnprocessed: true}, post, kind(t, k), refused(k))
				assert.True(t, s.result.Succeeded(), "%v", s.result)
				assert.Equal(t, 2, s.result.Outcome.Attempts)
				assert.False(t, s.result.Outcome.Ambiguous)
				assert.Equal(t, 1, s.handler.Ledger.Arrivals("request"))
			})
		})
	}
}

func TestPostThatAGoAwayLeavesOutIsProcessedOnce(t *testing.T) {
	for _, tc := range []struct {
		kind     string
		attempts int
	}{{"bytes.Reader", 1}, {"recorded stream", 2}} { // the base itself goes on if there is a GetBody
		t.Run(tc.kind, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b base) {
				policy := retryhttp.Policy{RetryUnprocessed: true}
				s := play(t, b, policy, post, kind(t, tc.kind), func(s *scene) { s.frames.order("request", leave) })
				assert.True(t, s.result.Succeeded(), "%v", s.result)
				assert.Equal(t, tc.attempts, s.result.Outcome.Attempts)
				assert.Equal(t, 1, s.handler.Ledger.Arrivals("request"))
			})
		})
	}
}

// x/net gives up after some GOAWAYs. It has no type for this error, which is known by its text.
func TestGoAwayThatXNetHasGivenUpOnIsUnprocessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, base{open: xNet}, retryhttp.Policy{RetryUnprocessed: true}, post, kind(t, "none"), leaveAlways(tries))
		assert.Equal(t, []retryhttp.Class{retryhttp.Unprocessed, retryhttp.Final}, s.classes, "%v", s.result)
		assert.Equal(t, 1, s.handler.Ledger.Arrivals("request"))
	})
}

// net/http does not count the GOAWAYs if each costs it the connection, and does not wait.
func TestGoAwayIsFollowedByNetHTTPForAsLongAsItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, base{open: netHTTP}, retryhttp.Policy{}, post, kind(t, "bytes.Reader"), leaveAlways(10*tries))
		assert.True(t, s.result.Succeeded(), "%v", s.result)
		assert.Equal(t, 1, s.result.Outcome.Attempts)
		assert.Equal(t, 1, s.handler.Ledger.Arrivals("request"))
	})
}

func leaveAlways(times int) func(*scene) {
	return func(s *scene) { s.frames.order("request", slices.Repeat([]func(*stream){leave}, times)...) }
}

// The code decides: a reset that came after processing began is no refusal.
func TestResetWithAnotherCodeIsNotUnprocessed(t *testing.T) {
	codes := []http2.ErrCode{
		http2.ErrCodeNo, http2.ErrCodeInternal, http2.ErrCodeFlowControl, http2.ErrCodeStreamClosed,
		http2.ErrCodeFrameSize, http2.ErrCodeCancel, http2.ErrCodeEnhanceYourCalm, http2.ErrCodeHTTP11Required,
	}
	for _, code := range codes {
		t.Run(code.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b base) {
				f := handled("reset", fault.Fails, func(x *fault.Exchange, s *stream) {
					x.Receive()
					s.reset(code)
				})
				order := func(s *scene) { s.handler.Order("request", &f.Fault) }
				s := play(t, b, retryhttp.Policy{RetryUnprocessed: true}, post, kind(t, "bytes.Reader"), order)
				assert.Equal(t, []retryhttp.Class{retryhttp.Retryable}, s.classes, "%v", s.result)
				assert.Equal(t, 1, s.handler.Ledger.Arrivals("request"))
			})
		})
	}
}

// net/http takes this code for a refusal, which it is not: a server that finds fault with a
// request has looked at it. See golang/go#47635.
func TestProtocolErrorIsResentByNetHTTPWhateverTheMethod(t *testing.T) {
	for _, b := range []struct {
		base
		arrivals int
	}{{bases[0], tries + 1}, {bases[1], 1}} {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := handled("reset", fault.Fails, func(x *fault.Exchange, s *stream) {
					x.Receive()
					s.reset(http2.ErrCodeProtocol)
				})
				known := fault.Method{Name: http.MethodPost, Repeatable: true} // to the ledger alone
				s := play(t, b.base, retryhttp.Policy{RetryUnprocessed: true}, known, kind(t, "bytes.Reader"), func(s *scene) {
					s.handler.Order("request", slices.Repeat([]*fault.Fault{&f.Fault}, tries)...)
				})
				assert.Equal(t, b.arrivals, s.handler.Ledger.Arrivals("request"), "%v", s.result)
				assert.NotContains(t, s.classes, retryhttp.Unprocessed)
			})
		})
	}
}

func TestUploadIntoAStalledWindowEndsWithItsAttempt(t *testing.T) {
	const timeout = 2 * time.Second
	for _, k := range []string{"bytes.Reader", "file", "seeker", "recorded stream", "trailer"} {
		t.Run(k, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b base) {
				f := stalls("stall", 0)
				order := func(s *scene) { s.handler.Order("request", &f.Fault) }
				put := fault.Method{Name: http.MethodPut, Repeatable: true}
				s := play(t, b, retryhttp.Policy{AttemptTimeout: timeout}, put, kind(t, k), order)
				assert.True(t, s.result.Succeeded(), "%v", s.result)
				assert.Equal(t, 2, s.result.Outcome.Attempts)
				assert.Equal(t, timeout, s.result.Outcome.Elapsed)
				assert.Equal(t, 2, s.handler.Ledger.Arrivals("request"))
			})
		})
	}
}
