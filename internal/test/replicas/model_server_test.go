package replicas_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/test/replicas"
)

// noise is what all bodies are cut from.
var noise = sync.OnceValue(func() []byte {
	p := make([]byte, 1<<19)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p)
	return p
})

// ledger records what clients and servers see of each other.
type ledger struct {
	http2 bool
	mu    sync.Mutex
	once  map[string]int // how often a POST without a key has arrived
	wrong []string

	numbers, requests, succeeded, detours atomic.Int64
	open                                  atomic.Int64 // request bodies
}

func newLedger(p replicas.Protocol) *ledger {
	return &ledger{http2: p == replicas.HTTP2 || p == replicas.HTTP2TLS, once: map[string]int{}}
}

func (l *ledger) accuse(what string, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, what+": "+r.Method+" "+r.URL.String()+" "+r.Proto)
}

func (l *ledger) check(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(t, l.wrong)
	assert.Zero(t, l.open.Load(), "request bodies are open")
	for id, n := range l.once {
		assert.Equal(t, 1, n, "POST %s without a key has arrived more than once", id)
	}
}

// answer is how a replica answers, once the whole body has come if reads is set.
type answer struct {
	reads bool
	serve http.HandlerFunc
}

func after(takes time.Duration, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(takes)
		serve(w, r)
	}
}

var troubles = []answer{
	{false, broken},
	{true, broken},
	{true, replicas.Hang},
	{false, replicas.Reset},
	{true, replicas.Reset},
	{true, after(30*time.Millisecond, broken)},
	{false, replicas.Status(http.StatusTooManyRequests)},
	{true, after(300*time.Millisecond, send(1))},
	{true, send(0.5)},
	{true, leaving},
	{false, readsSome},
}

// leaving ends its connection after the response, over HTTP/2 by GOAWAY.
func leaving(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	send(1)(w, r)
}

// readsSome fails once it has seen the start of the body.
func readsSome(w http.ResponseWriter, r *http.Request) {
	_, _ = io.CopyN(io.Discard, r.Body, 4<<10)
	broken(w, r)
}

func (m *model) well(r *replicas.Replica) {
	m.serve(r, answer{true, after(10*time.Millisecond, send(1))})
}

func (m *model) serve(to *replicas.Replica, a answer) {
	to.Serve(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Header.Get("Idempotency-Key") == "" {
			m.mu.Lock()
			m.once[r.URL.Query().Get("id")]++
			m.mu.Unlock()
		}
		if a.reads && !m.readsAll(r) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		a.serve(w, r)
	})
}

// readsAll reports whether the whole body has come. A body that seems whole is the body.
func (m *model) readsAll(r *http.Request) bool {
	content, err := io.ReadAll(r.Body)
	if err == nil && !bytes.Equal(content, part(r, "sent")) {
		m.accuse("the server read "+strconv.Itoa(len(content))+" other bytes", r)
	}
	return err == nil
}

// part returns the piece of noise that a request names: its offset is its size.
func part(r *http.Request, name string) []byte {
	n, _ := strconv.Atoi(r.URL.Query().Get(name))
	return noise()[n : 2*n]
}

// send sends the body that the request asks for, in pieces. It breaks off after a part of it.
func send(share float64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		content := part(r, "asked")
		if len(content)%2 == 0 {
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		}
		left := content[:int(share*float64(len(content)))]
		for len(left) > 0 {
			n := min(len(left), 16<<10)
			if _, err := w.Write(left[:n]); err != nil {
				return
			}
			left = left[n:]
			_ = http.NewResponseController(w).Flush()
		}
		if share < 1 {
			panic(http.ErrAbortHandler)
		}
	}
}
