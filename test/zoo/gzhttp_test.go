package zoo

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// gzhttp takes its decoders from a pool. Close gives one back though a Read may be
// using it. A drain that does both at once spoils another request's response, or ends
// the process.
func TestGzhttpDrainOfAStalledBodySpoilsNothing(t *testing.T) {
	for _, coding := range []string{"gzip", "zstd"} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprintf("%s, AttemptTimeout %v", coding, timeout), func(t *testing.T) {
				spoilsNothing(t, coding, timeout)
			})
		}
	}
}

// spoilsNothing sends some requests whose response stalls, while others succeed.
func spoilsNothing(t *testing.T, coding string, timeout time.Duration) {
	t.Helper()
	srv, b := newServer(t), newBase(false)
	decoding := gzhttp.Transport(b,
		gzhttp.TransportEnableGzip(coding == "gzip"), gzhttp.TransportEnableZstd(coding == "zstd"))
	rt := retryhttp.New(decoding, retryhttp.Policy{
		AttemptTimeout: timeout, Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	get := func(f *mishap, id string) {
		s := scene{animal: &animal{}, kind: &kind{}, method: methods[0], fault: f}
		r := s.through(ctx, t, rt, srv, id, 0)
		assert.True(t, r.success(false), "%v", r)
	}

	over := make(chan struct{})
	var failing, others sync.WaitGroup
	for n := range 16 {
		failing.Go(func() { get(&mishap{answer: stalled(coding, beginning(coding))}, fmt.Sprint("failing-", n)) })
	}
	for worker := range 4 {
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
					get(&mishap{answer: (*exchange).serve}, fmt.Sprintf("other-%d-%d", worker, n))
				}
			}
		})
	}
	failing.Wait()
	close(over)
	others.Wait()
	if timeout == 0 {
		cancel() // a drain may read on until its context ends; with an AttemptTimeout it has one of its own
	}
	b.rest(t)
}

// Below a Transport, gzhttp asks for an encoding on each attempt, and decodes.
func TestGzhttpDecodesTheAnswerToARetry(t *testing.T) {
	srv, b := newServer(t), newBase(false)
	defer b.rest(t)
	rt := retryhttp.New(gzhttp.Transport(b), retryhttp.Policy{Backoff: retryhttp.Constant(0)})
	busyFirst := &mishap{answer: func(x *exchange) { x.whole(http.StatusServiceUnavailable, busy) }}
	s := scene{animal: &animal{}, kind: &kind{}, method: methods[0], fault: busyFirst}
	r := s.through(t.Context(), t, rt, srv, "request", 0)
	assert.True(t, r.success(false), "%v", r)
	assert.Equal(t, 2, r.outcome.Attempts)
}
