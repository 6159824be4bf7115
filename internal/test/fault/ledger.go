package fault

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// Want is what a request should be when it comes to the server.
type Want struct {
	Method     string
	Body       []byte
	Trailer    string // of the field TrailerField; "" is none
	Repeatable bool   // it may come more than once
}

// TrailerField is the trailer that an [Upload] may have.
const TrailerField = "Fault-Sum"

// An Arrival is one time that a request reached the server's handler.
type Arrival struct {
	method  string
	key     []string
	read    int
	whole   bool // its end was met, by its framing
	exact   bool // the bytes read so far are the wanted bytes
	trailer string
	status  int // of an answer by a server that knew the whole request; 0 is none
}

func (a *Arrival) String() string {
	return fmt.Sprintf("%s, %d bytes, whole %t, exact %t, trailer %q, answered %d",
		a.method, a.read, a.whole, a.exact, a.trailer, a.status)
}

// Ledger is an account of all requests. It is safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	requests map[string]*account
	detours  atomic.Int64
}

type account struct {
	want     Want
	arrivals []*Arrival
	underWay int
	atOnce   int // were under way, at most
}

func NewLedger() *Ledger {
	return &Ledger{requests: make(map[string]*account)}
}

// Expect opens the account of the request that is called id.
func (l *Ledger) Expect(id string, w Want) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests[id] = &account{want: w}
}

// arrive records that a handler was reached, and returns how often it was reached before.
func (l *Ledger) arrive(id string, r *http.Request) (a *Arrival, want Want, before int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acc := l.requests[id]
	if acc == nil {
		acc = &account{}
		l.requests[id] = acc
	}
	a = &Arrival{method: r.Method, key: r.Header["Idempotency-Key"], exact: true}
	acc.arrivals = append(acc.arrivals, a)
	return a, acc.want, len(acc.arrivals) - 1
}

// receive reads r's body, or the first limit bytes of it, and compares it with
// what is wanted. It reports whether the body's end was met.
func (l *Ledger) receive(a *Arrival, want Want, r *http.Request, limit int) bool {
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	p := buffer[:]
	for limit > 0 {
		n, err := r.Body.Read(p[:min(len(p), limit)])
		limit -= n
		l.took(a, want, p[:n])
		if err == io.EOF {
			l.end(a, want, r.Trailer.Get(TrailerField))
			return true
		}
		if err != nil {
			return false
		}
	}
	return false
}

func (l *Ledger) took(a *Arrival, want Want, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.exact = a.exact && a.read+len(p) <= len(want.Body) && bytes.Equal(want.Body[a.read:a.read+len(p)], p)
	a.read += len(p)
}

func (l *Ledger) end(a *Arrival, want Want, trailer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.whole, a.trailer = true, trailer
	a.exact = a.exact && a.method == want.Method && a.read == len(want.Body) && trailer == want.Trailer
}

func (l *Ledger) answered(a *Arrival, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.status = status
}

func (l *Ledger) Arrivals(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if acc := l.requests[id]; acc != nil {
		return len(acc.arrivals)
	}
	return 0
}

// Check returns what is wrong with how the request came to the server, given whether its client
// saw a success.
func (l *Ledger) Check(id string, succeeded bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	acc := l.requests[id]
	if acc == nil {
		return errors.New("nobody expects this request")
	}
	return acc.check(succeeded)
}

// Forget closes the account of a request, and returns what is wrong with it whatever its client saw.
func (l *Ledger) Forget(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	acc := l.requests[id]
	delete(l.requests, id)
	if acc == nil {
		return nil
	}
	return acc.checked(id)
}

// Detours is how many attempts took one.
func (l *Ledger) Detours() int { return int(l.detours.Load()) }

// CheckAll checks every request for what must hold whatever its client saw. It returns the number
// of requests.
func (l *Ledger) CheckAll() (requests int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for id, acc := range l.requests {
		errs = append(errs, acc.checked(id))
	}
	return len(l.requests), errors.Join(errs...)
}

func (acc *account) checked(id string) error {
	if err := acc.check(false); err != nil {
		return fmt.Errorf("request %s: %w", id, err)
	}
	return nil
}

func (acc *account) check(succeeded bool) error {
	received := func(a *Arrival) bool { return a.whole && a.exact && a.status == http.StatusOK }
	if succeeded && !slices.ContainsFunc(acc.arrivals, received) {
		return fmt.Errorf("the client saw a success, and the request was not received whole: %v", acc.arrivals)
	}
	if !acc.want.Repeatable && len(acc.arrivals) > 1 {
		return fmt.Errorf("a request that may not be repeated came %d times: %v", len(acc.arrivals), acc.arrivals)
	}
	if err := acc.checkUnderWay(); err != nil {
		return err
	}
	for _, a := range acc.arrivals {
		switch {
		case acc.want.Method == "":
			return fmt.Errorf("a request came that nobody sent: %v", a)
		case a.whole && !a.exact:
			return fmt.Errorf("a body that is not the request's was taken for complete: %v", a)
		case !slices.Equal(a.key, acc.arrivals[0].key):
			return fmt.Errorf("the idempotency key changed from %q to %q", acc.arrivals[0].key, a.key)
		}
	}
	return nil
}
