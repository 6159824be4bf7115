package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp"
)

// Soak is many clients of each Protocol that share a Transport, and a server and a network that
// fail them at random.
type Soak struct {
	Clients int // of each Protocol
	Seed    uint64
}

// Protocol is what clients of a Soak speak.
type Protocol int

// Protocols are all of them.
var Protocols = []Protocol{HTTP1, HTTP2, HTTP2GoAway}

const (
	HTTP1 Protocol = iota
	HTTP2          // without GOAWAYs
	// HTTP2GoAway is HTTP/2 with GOAWAYs, and with no caller that gives up an upload. If both met,
	// net/http would look at whether the body was read while it may still be reading it: in the
	// RoundTrip that resends the request, and in the stream's own goroutine. That is harmless, but
	// it is a data race, and not one of this package's.
	HTTP2GoAway
)

func (p Protocol) String() string {
	return [...]string{"HTTP/1", "HTTP/2", "HTTP/2 with GOAWAYs"}[p]
}

// Tally counts what came of requests.
type Tally struct {
	Requests  int
	Attempts  int
	Hedges    int // of the attempts
	Won       int // of the hedges
	Succeeded int
	Spoiled   int // a success whose body broke
	Responses int // that are not a success
	Errors    int

	Downloads int // of the requests
	Resumed   int // of the downloads
	Completed int // of the downloads that were resumed
}

func (t Tally) String() string {
	return fmt.Sprintf("%d requests, %d attempts, %d of them hedges, of which %d won: "+
		"%d succeeded, %d broke off in the answer, %d ended in another response, %d in an error; "+
		"%d downloads, %d resumed, %d of these came whole",
		t.Requests, t.Attempts, t.Hedges, t.Won, t.Succeeded, t.Spoiled, t.Responses, t.Errors,
		t.Downloads, t.Resumed, t.Completed)
}

func (t *Tally) add(r Result) {
	t.Requests++
	t.Attempts += r.Outcome.Attempts
	t.Hedges += r.Outcome.Hedges
	if r.Outcome.HedgeWon {
		t.Won++
	}
	switch {
	case r.Err != nil:
		t.Errors++
	case r.Whole:
		t.Succeeded++
	case r.Status == http.StatusOK, r.Status == http.StatusPartialContent:
		t.Spoiled++
	default:
		t.Responses++
	}
}

const (
	attemptTimeout = time.Second
	deadline       = 3 * time.Second
)

// patience is how long something hangs at most: for longer than anybody waits. With GOAWAYs nobody
// gives up an upload, and so the hang ends by itself.
func (p Protocol) patience() time.Duration {
	if p == HTTP2GoAway {
		return attemptTimeout
	}
	return 5 * time.Second
}

// Run soaks over all Protocols side by side until enough returns true for each, and returns what came of
// the requests, in the order of Protocols, and what was wrong. It asks a few times each second, with what
// there is so far.
func (s Soak) Run(enough func(Protocol, Tally) bool) ([]Tally, error) {
	// net/http logs answers that nobody asked for.
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	before := TakeInventory()
	tallies, errs := make([]Tally, len(Protocols)), make([]error, len(Protocols))
	var wg sync.WaitGroup
	for i, over := range Protocols {
		wg.Go(func() { tallies[i], errs[i] = s.over(over, enough) })
	}
	wg.Wait()
	return tallies, errors.Join(errors.Join(errs...), before.Leaked(20*time.Second))
}

func (s Soak) over(over Protocol, enough func(Protocol, Tally) bool) (Tally, error) {
	run, err := s.start(over)
	if err != nil {
		return Tally{}, err
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for c := range s.Clients {
		wg.Go(func() { run.client(run.context(c), rand.New(rand.NewPCG(s.Seed, uint64(c))), stop) })
	}
	for !enough(over, run.sofar()) {
		time.Sleep(200 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	if err = errors.Join(run.err, run.end()); err != nil {
		err = fmt.Errorf("%v: %w", over, err)
	}
	return run.sofar(), err
}

// soaking is a Soak that runs.
type soaking struct {
	over   Protocol
	server *Server
	http   *httptest.Server
	proxy  *Proxy
	base   *http.Transport
	rt     *retryhttp.Transport
	hedge  retryhttp.Hedge

	mu    sync.Mutex
	tally Tally
	err   error
}

func (s Soak) start(over Protocol) (*soaking, error) {
	run := &soaking{over: over, server: NewServer(NewLedger())}
	run.hedge.Share, run.hedge.After = 1, HedgeAfter
	run.server.Patience = over.patience()
	run.http = httptest.NewUnstartedServer(run.server)
	run.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	run.http.Config.ConnContext = WithConn
	run.http.Config.Protocols = new(http.Protocols)
	run.http.Config.Protocols.SetHTTP1(over == HTTP1)
	run.http.Config.Protocols.SetUnencryptedHTTP2(over != HTTP1)
	run.http.Start()
	var err error
	run.proxy, err = NewProxy(run.http.Listener.Addr().String(), &chance{random: rand.New(rand.NewPCG(s.Seed, 1<<63))})
	if err != nil {
		run.http.Close()
		return nil, err
	}
	run.proxy.Patience = over.patience()
	run.base = &http.Transport{
		DialContext:            run.proxy.DialContext,
		Protocols:              run.http.Config.Protocols,
		MaxIdleConnsPerHost:    s.Clients,
		MaxResponseHeaderBytes: 64 << 10,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: attemptTimeout, PingTimeout: attemptTimeout},
	}
	run.rt = retryhttp.New(run.server.Ledger.Watch(run.base), retryhttp.Policy{
		Budget:  retryhttp.Unlimited{},
		Backoff: retryhttp.FullJitter(10*time.Millisecond, time.Second),
	})
	return run, nil
}

// chance orders what the connections of a soak meet.
type chance struct{ random *rand.Rand }

func (c *chance) Refuse() bool { return c.random.IntN(20) == 0 }

func (c *chance) Next() *Link {
	if c.random.IntN(2) == 0 {
		return nil
	}
	cut := func() Cut {
		return Cut{After: int64(c.random.ExpFloat64() * 200_000), How: How(c.random.IntN(int(Stall) + 1))}
	}
	return &Link{Up: cut(), Down: cut(), Reused: c.random.IntN(4) == 0, Trickle: c.random.IntN(50) == 0}
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
		if s.over == HTTP1 && random.IntN(2) == 0 {
			answers = WireAnswers
		}
		if f := answers[random.IntN(len(answers))]; s.over != HTTP2 || !f.GoesAway {
			faults = append(faults, f)
		}
	}
	return faults
}

func (s *soaking) send(ctx context.Context, random *rand.Rand, id string, n uint64, m Method, k Kind) Result {
	if s.over == HTTP2GoAway && k.Size > 0 {
		return Send(context.Background(), s.rt, s.server.Ledger, s.http.URL, id, n, m, k)
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
	return Send(ctx, s.rt, s.server.Ledger, s.http.URL, id, n, m, k)
}

// note records a request's result, after its body has been closed.
func (s *soaking) note(r Result, wrong error, id string, m Method, k Kind) {
	for end := time.Now().Add(20 * time.Second); r.Upload.Closed(s.over != HTTP1) != nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	wrong = errors.Join(wrong, r.Upload.Closed(s.over != HTTP1))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.add(r)
	if wrong != nil {
		s.err = errors.Join(s.err, fmt.Errorf("%v, %s, request %s: %w; %v", m, k.Name, id, wrong, r))
	}
}

func (s *soaking) sofar() Tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tally
}

// end waits until everything has ended, and checks all of it again: requests that came late to the
// server are seen now.
func (s *soaking) end() error {
	for end := time.Now().Add(20 * time.Second); s.proxy.Conns() > 0; time.Sleep(time.Millisecond) {
		s.rt.CloseIdleConnections()
		if time.Now().After(end) {
			return fmt.Errorf("%d connections are left", s.proxy.Conns())
		}
	}
	s.server.Close()
	s.proxy.Close()
	s.http.Close()
	_, err := s.server.Ledger.CheckAll()
	return err
}
