package zoo

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
	"sync"
)

// account holds what one request should be, and what came to the server.
type account struct {
	id         string
	want       []byte  // SHA-256 of the body
	repeatable bool    // the server may read it whole more than once
	fault      *mishap // for the first arrival
	challenges bool    // the server answers only requests with digest credentials

	mu       sync.Mutex
	arrivals []*arrival
	moved    chan struct{} // closed at the second arrival or GetBody, or once the client has a result
	once     sync.Once
}

// arrival is one time that a request reached the server.
type arrival struct {
	keys   []string
	sum    []byte // of the bytes that were read; nil: the end did not come
	status int    // of the answer
}

func (a *arrival) String() string {
	return fmt.Sprintf("{keys %q, sum %.4x, answered %d}", a.keys, a.sum, a.status)
}

func (acc *account) String() string {
	acc.mu.Lock()
	defer acc.mu.Unlock()
	return fmt.Sprint(acc.arrivals)
}

func newAccount(id string, content []byte, repeatable bool, f *mishap, challenges bool) *account {
	sum := sha256.Sum256(content)
	return &account{
		id: id, want: sum[:], repeatable: repeatable, fault: f, challenges: challenges, moved: make(chan struct{}),
	}
}

// arrive returns the arrival and its number, from 1.
func (acc *account) arrive(r *http.Request) (*arrival, int) {
	acc.mu.Lock()
	defer acc.mu.Unlock()
	a := &arrival{keys: r.Header["Idempotency-Key"]}
	acc.arrivals = append(acc.arrivals, a)
	if len(acc.arrivals) > 1 {
		acc.move()
	}
	return a, len(acc.arrivals)
}

// repeated reports whether the request has arrived more than once.
func (acc *account) repeated() bool {
	acc.mu.Lock()
	defer acc.mu.Unlock()
	return len(acc.arrivals) > 1
}

// move lets a server that has answered early read on.
func (acc *account) move() { acc.once.Do(func() { close(acc.moved) }) }

// receive reads the whole body, and reports whether its end came.
func (acc *account) receive(a *arrival, body io.Reader, sum hash.Hash) bool {
	if _, err := io.Copy(sum, body); err != nil {
		return false
	}
	acc.mu.Lock()
	defer acc.mu.Unlock()
	a.sum = sum.Sum(nil)
	return true
}

func (acc *account) answer(a *arrival, status int) {
	acc.mu.Lock()
	defer acc.mu.Unlock()
	a.status = status
}

// check returns what is wrong with how the request came, given whether the client
// saw a success.
func (acc *account) check(succeeded bool) error {
	acc.mu.Lock()
	defer acc.mu.Unlock()
	whole, received := 0, false
	for _, a := range acc.arrivals {
		switch {
		case a.sum != nil && !bytes.Equal(a.sum, acc.want):
			return fmt.Errorf("a body that is not the request's came as complete: %v", acc.arrivals)
		case !slices.Equal(a.keys, acc.arrivals[0].keys):
			return fmt.Errorf("the idempotency key changed: %v", acc.arrivals)
		case a.status == http.StatusBadRequest:
			return fmt.Errorf("a signature is not of this body: %v", acc.arrivals)
		}
		if a.sum != nil && a.status != http.StatusUnauthorized { // a challenge asks for it again
			whole++
		}
		received = received || a.sum != nil && a.status == http.StatusOK
	}
	switch {
	case succeeded && !received:
		return fmt.Errorf("the client saw a success, and the request did not come whole: %v", acc.arrivals)
	case whole > 1 && !acc.repeatable:
		return fmt.Errorf("a request that must not be repeated came whole %d times: %v", whole, acc.arrivals)
	}
	return nil
}
