package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp"
)

const (
	attemptTimeout = time.Second
	deadline       = 3 * time.Second
)

// soaking is the clients of one Protocol.
type soaking struct {
	over   *Protocol
	server *Server
	world  *World
	rt     *retryhttp.Transport
	hedge  retryhttp.Hedge

	mu    sync.Mutex
	tally Tally
	ended []settled
	err   error
}

func (s Soak) start(over *Protocol) (*soaking, error) {
	run := &soaking{over: over, server: NewServer(NewLedger())}
	run.hedge.Share, run.hedge.After = 1, HedgeAfter
	run.server.Patience = over.patience()
	var err error
	if run.world, err = over.Start(s, over, run.server); err != nil {
		return nil, err
	}
	run.rt = retryhttp.New(run.server.Ledger.Watch(run.world.Base), retryhttp.Policy{
		Budget:  cmp.Or[retryhttp.Budget](s.Budget, retryhttp.Unlimited{}),
		Backoff: retryhttp.FullJitter(10*time.Millisecond, time.Second),
	})
	return run, nil
}

// context is for the requests of the c-th client. Half of the clients hedge.
func (s *soaking) context(c int) context.Context {
	if c%2 > 0 {
		return context.Background()
	}
	return retryhttp.WithPolicy(context.Background(), func(p *retryhttp.Policy) { p.Hedge = &s.hedge })
}

// client makes requests one after the other.
func (s *soaking) client(ctx context.Context, random *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		n := random.Uint64() >> 1
		id := strconv.FormatUint(n, 16)
		if random.IntN(3) == 0 {
			s.download(ctx, random, id, n)
			continue
		}
		m, k := HedgedMethods[random.IntN(len(HedgedMethods))], Kinds[random.IntN(len(Kinds))]
		if m.Name == "GET" {
			k = Kinds[0]
		}
		s.server.Order(id, s.orders(random)...)
		r := s.send(ctx, random, id, n, m, k)
		s.note(r, s.server.Ledger.Check(id, r.Succeeded()), id, m, k)
		s.server.Order(id)
	}
}

// orders are the faults that a request's attempts meet.
func (s *soaking) orders(random *rand.Rand) []*Fault {
	var faults []*Fault
	for random.IntN(3) == 0 {
		answers := Answers
		if s.over.Major == 1 && random.IntN(2) == 0 {
			answers = WireAnswers
		}
		if f := answers[random.IntN(len(answers))]; s.over.Major == 1 || s.over.Drops || !f.GoesAway {
			faults = append(faults, f)
		}
	}
	return faults
}

func (s *soaking) send(ctx context.Context, random *rand.Rand, id string, n uint64, m Method, k Kind) Result {
	if s.over.Drops && k.Size > 0 {
		return Send(context.Background(), s.rt, s.server.Ledger, s.world.URL(n), id, n, m, k)
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	switch random.IntN(10) {
	case 0: // its caller goes at any moment
		time.AfterFunc(time.Duration(random.ExpFloat64()*float64(100*time.Millisecond)), cancel)
	case 1, 2, 3, 4:
		peeked := random.Int64N(2) * peek
		ctx = retryhttp.WithPolicy(ctx, func(p *retryhttp.Policy) { p.AttemptTimeout, p.PeekBytes = attemptTimeout, peeked })
	}
	return Send(ctx, s.rt, s.server.Ledger, s.world.URL(n), id, n, m, k)
}

// note records a request's result, after its body has been closed.
func (s *soaking) note(r Result, wrong error, id string, m Method, k Kind) {
	wrong = errors.Join(wrong, s.closed(r.Upload))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.add(r)
	s.settle(id)
	if wrong != nil {
		s.err = errors.Join(s.err, fmt.Errorf("%v, %s, request %s: %w; %v", m, k.Name, id, wrong, r))
	}
}

// closed waits until the bodies of an Upload are closed.
func (s *soaking) closed(u *Upload) (wrong error) {
	Eventually(20*time.Second, func() bool {
		wrong = u.Closed(s.over.Major > 1)
		return wrong == nil
	})
	if s.over.Twice && u.Unclosed() == 0 {
		return nil
	}
	return wrong
}

// straggles is for how long a request that has ended may still come to the server.
const straggles = time.Minute

// settled is a request that has ended.
type settled struct {
	id string
	at time.Time
}

// settle has the Ledger forget requests that ended long ago, and checks them again before. A request that
// comes even later is one that nobody sent. s.mu is locked.
func (s *soaking) settle(id string) {
	now := time.Now()
	s.ended = append(s.ended, settled{id, now})
	for now.Sub(s.ended[0].at) > straggles {
		s.err = errors.Join(s.err, s.server.Ledger.Forget(s.ended[0].id))
		s.ended = s.ended[1:]
	}
}

func (s *soaking) sofar() Tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tally
	t.Detours = s.server.Ledger.Detours()
	return t
}

// end waits until everything has ended, and checks all of it again: requests that came late to the
// server are seen now.
func (s *soaking) end() error {
	ended := Eventually(20*time.Second, func() bool {
		s.rt.CloseIdleConnections()
		return s.world.Conns() == 0
	})
	if !ended {
		return fmt.Errorf("%d connections are left", s.world.Conns())
	}
	s.server.Close()
	s.world.Close()
	_, err := s.server.Ledger.CheckAll()
	return err
}
