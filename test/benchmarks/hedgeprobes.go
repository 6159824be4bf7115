package benchmarks

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp/internal/test/script"
)

const (
	// patience is how long a good thing may take.
	patience = time.Second
	// grace is how long a library has to do what it should not.
	grace = 200 * time.Millisecond
)

// hedgeProbes try good things that a hedge should do. They run in real time: hedgedhttp's
// goroutines wait on a channel that is not of a bubble.
var hedgeProbes = []probe{
	{
		"a stalled first attempt is answered by the hedge",
		"A GET whose first attempt never answers, and whose hedge is answered 200.",
		func(t *testing.T, p peer) verdict {
			base := newDuel(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}, script.Status(200))
			ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
			defer cancel()
			status, _, _ := exchange(hedging(p, false)(base), newGet(t).WithContext(ctx))
			return verdict{yes: status == 200}
		},
	},
	{
		"a slow 200 wins against a hedge's quick 503",
		"A GET whose hedge is answered 503. Later the first attempt is answered 200. Yes: the caller gets the 200.",
		func(t *testing.T, p peer) verdict { return awaited(t, p, script.Status(503)) },
	},
	{
		"a slow 200 wins against a hedge's quick error",
		"As before, with a connection for the hedge that is refused.",
		func(t *testing.T, p peer) verdict {
			return awaited(t, p, script.Fail(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}))
		},
	},
	{
		"a slow POST is sent once",
		"A POST with a body and a GetBody, whose first attempt is slow. Yes: no second one is sent beside it.",
		func(t *testing.T, p peer) verdict {
			base := newDuel(nil, script.Status(200))
			base.first = func(req *http.Request) (*http.Response, error) {
				waitFor(grace, base.hedged)
				return answer(req, http.StatusOK, http.NoBody), nil
			}
			_, _, _ = exchange(hedging(p, false)(base), newPost(t))
			return verdict{yes: base.sent.Load() == 1}
		},
	},
	{
		"the winner's body is whole",
		"A GET of 1 MiB over HTTP/1 and loopback. The body ends when the caller has had the response for a while. " +
			"Once the first attempt wins, and once the hedge. Yes: both bodies are whole.",
		func(t *testing.T, p peer) verdict {
			return inBoth(func(hedgeWins bool) bool { return whole(t, p, hedgeWins) })
		},
	},
	{
		"the loser's response is closed",
		"An attempt wins, and the caller closes its response. The loser still has a response, when it is canceled " +
			"or later. Yes: its body is closed. The loser is once the first attempt, and once the hedge.",
		func(t *testing.T, p peer) verdict {
			return inBoth(func(hedgeWins bool) bool { return happens(settle(t, p, hedgeWins).closed) })
		},
	},
	{
		"the loser's context ends",
		"As before. Yes: the loser's context ends.",
		func(t *testing.T, p peer) verdict {
			return inBoth(func(hedgeWins bool) bool { return happens(settle(t, p, hedgeWins).loser) })
		},
	},
	{
		"the winner's context ends",
		"As before. Yes: the winner's context ends when its response has been closed. " +
			"Otherwise it stays in memory until the caller's context ends.",
		func(t *testing.T, p peer) verdict {
			return inBoth(func(hedgeWins bool) bool { return happens(settle(t, p, hedgeWins).winner) })
		},
	},
	{
		deafBase,
		"A GET whose hedge is answered 200, over a base that does not look at the first attempt's context. " +
			"Yes: the caller has the 200 before the first attempt ends.",
		deaf,
	},
}

// deafBase is what this library does not do.
const deafBase = "a base that ignores its context does not hold up the hedge"

func deaf(t *testing.T, p peer) verdict {
	release, answered := make(chan struct{}), make(chan struct{})
	base := newDuel(func(req *http.Request) (*http.Response, error) {
		<-release
		return answer(req, http.StatusOK, http.NoBody), nil
	}, script.Status(200))
	go func() {
		defer close(answered)
		_, _, _ = exchange(hedging(p, false)(base), newGet(t))
	}()
	yes := happens(answered)
	close(release)
	<-answered
	return verdict{yes: yes}
}

// hedging returns a way to build p such that each request is hedged.
func hedging(p peer, successes bool) func(http.RoundTripper) doer {
	return func(base http.RoundTripper) doer {
		return p.build(base, settings{hedge: hedge{after: hedgeDelay, all: true, successes: successes}})
	}
}

// inBoth tries something with each of the two attempts as the winner.
func inBoth(try func(hedgeWins bool) bool) verdict {
	var first, hedge bool
	var group sync.WaitGroup
	group.Go(func() { first = try(false) })
	group.Go(func() { hedge = try(true) })
	group.Wait()
	v := verdict{yes: first && hedge}
	switch {
	case first && !hedge:
		v.note = "not if the hedge wins"
	case hedge && !first:
		v.note = "not if the first attempt wins"
	}
	return v
}

// duel is a base in memory for one request, of which the second attempt is the hedge.
type duel struct {
	first, hedge script.Step
	sent         atomic.Int64
	hedged       chan struct{} // closed when the hedge has come
}

func newDuel(first, hedge script.Step) *duel {
	return &duel{first: first, hedge: hedge, hedged: make(chan struct{})}
}

func (d *duel) RoundTrip(req *http.Request) (*http.Response, error) {
	switch d.sent.Add(1) {
	case 1:
		return d.first(req)
	case 2:
		close(d.hedged)
	}
	return d.hedge(req)
}

// awaited tries a hedge that fails before the first attempt succeeds.
func awaited(t *testing.T, p peer, fail script.Step) (v verdict) {
	outcome := func(successes bool) string {
		failed := make(chan struct{})
		base := newDuel(func(req *http.Request) (*http.Response, error) {
			<-failed
			if !waitFor(grace, req.Context().Done()) {
				return nil, req.Context().Err()
			}
			return script.Response(req, 200), nil
		}, func(req *http.Request) (*http.Response, error) {
			defer close(failed)
			return fail(req)
		})
		status, _, err := exchange(hedging(p, successes)(base), newGet(t))
		return outcomeOf(status, err)
	}
	const good = "a 200"
	got := outcome(false)
	if got == good {
		return verdict{yes: true}
	}
	if p.noFailure != "" && outcome(true) == good {
		return verdict{option: p.noFailure}
	}
	return verdict{note: got}
}

// halves is a server that answers one of two attempts, in two halves. Each channel is closed
// when its name comes true.
type halves struct {
	hedgeWins bool
	arrived   map[bool]chan struct{} // by whether it is the hedge
	returned  chan struct{}          // the caller has the response
}

const halfBody = 512 << 10

func (h *halves) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	hedge, over := isHedge(req), req.Context().Done()
	close(h.arrived[hedge])
	if hedge != h.hedgeWins {
		<-over
		return
	}
	half := bytes.Repeat([]byte("a"), halfBody)
	for _, signal := range []<-chan struct{}{h.arrived[!hedge], h.returned} {
		select {
		case <-signal:
		case <-over:
			return
		}
		_, _ = w.Write(half)
		_ = http.NewResponseController(w).Flush()
	}
}

// whole reports whether the winner's body is whole, most of which comes after the caller has
// the response.
func whole(t *testing.T, p peer, hedgeWins bool) bool {
	h := &halves{
		hedgeWins: hedgeWins,
		arrived:   map[bool]chan struct{}{false: make(chan struct{}), true: make(chan struct{})},
		returned:  make(chan struct{}),
	}
	s := serve(h)
	defer s.stop()
	req, err := newRequest(t.Context(), http.MethodGet, s.url, nil)
	if err != nil {
		t.Error(err)
		return false
	}
	resp, err := hedging(p, false)(&numbering{RoundTripper: s.base}).Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	waitFor(grace, nil)
	close(h.returned)
	n, err := io.Copy(io.Discard, resp.Body)
	return err == nil && n == 2*halfBody
}

// settled are channels, each closed when something has happened.
type settled struct {
	closed        <-chan struct{} // the loser's body
	loser, winner <-chan struct{} // the end of its context
}

func happens(signal <-chan struct{}) bool { return !waitFor(patience, signal) }

// settle has one attempt win, and the other answer all the same when it is canceled, or when
// the caller is done.
func settle(t *testing.T, p peer, hedgeWins bool) settled {
	contexts := make(chan context.Context, 2) // the winner's comes first
	closed, done := make(chan struct{}), make(chan struct{})
	winner := func(req *http.Request) (*http.Response, error) {
		contexts <- req.Context()
		return script.Response(req, 200), nil
	}
	loser := func(req *http.Request) (*http.Response, error) {
		select {
		case <-done:
		case <-req.Context().Done():
		}
		contexts <- req.Context()
		return answer(req, http.StatusOK, &signaling{strings.NewReader("too late"), closed}), nil
	}
	base := newDuel(loser, winner)
	if !hedgeWins {
		base.hedge = loser
		base.first = func(req *http.Request) (*http.Response, error) {
			<-base.hedged
			return winner(req)
		}
	}
	_, _, err := exchange(hedging(p, false)(base), newGet(t))
	close(done)
	if err != nil {
		t.Error(p.name, err)
	}
	return settled{closed: closed, winner: (<-contexts).Done(), loser: (<-contexts).Done()}
}

// signaling is a body that closes a channel when it is closed.
type signaling struct {
	io.Reader
	closed chan struct{}
}

func (s *signaling) Close() error {
	close(s.closed)
	return nil
}
