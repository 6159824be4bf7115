package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

var noWait = retryhttp.Policy{Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}}

var errBroken = errors.New("connection broken")

// withoutDetours hides an http.Transport from New. All attempts take its pool.
type withoutDetours struct{ http.RoundTripper }

func get(t *testing.T, ctx context.Context) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host.example/path", nil)
	require.NoError(t, err)
	return req
}

func getURL(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

func requestTo(host string) *http.Request {
	return &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: host, Path: "/"}}
}

func errorOf(t *testing.T, err error) *retryhttp.Error {
	t.Helper()
	var e *retryhttp.Error
	require.ErrorAs(t, err, &e)
	return e
}

// server plays answers, and the last one for all attempts that follow.
type server struct {
	answers []http.HandlerFunc

	mu  sync.Mutex
	got []received
}

// received is what the server saw of one attempt.
type received struct {
	at     time.Time
	method string
	header http.Header
	body   string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte(err.Error())
	}
	s.mu.Lock()
	answer := s.answers[min(len(s.got), len(s.answers)-1)]
	s.got = append(s.got, received{time.Now(), r.Method, r.Header.Clone(), string(body)})
	s.mu.Unlock()
	answer(w, r)
}

func (s *server) waits() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var waits []time.Duration
	for i := 1; i < len(s.got); i++ {
		waits = append(waits, s.got[i].at.Sub(s.got[i-1].at))
	}
	return waits
}

// play makes answers of status codes and handlers.
func play(answers ...any) []http.HandlerFunc {
	handlers := make([]http.HandlerFunc, len(answers))
	for i, answer := range answers {
		switch answer := answer.(type) {
		case int:
			handlers[i] = status(answer)
		case func(http.ResponseWriter, *http.Request):
			handlers[i] = answer
		case http.HandlerFunc:
			handlers[i] = answer
		}
	}
	return handlers
}

// status answers with code and a header of alternating names and values.
func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Add(header[i], header[i+1])
		}
		w.WriteHeader(code)
		if code != http.StatusNotModified {
			_, _ = io.WriteString(w, "answer "+http.StatusText(code))
		}
	}
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }

func hang(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func seconds(list ...float64) (durations []time.Duration) {
	for _, s := range list {
		durations = append(durations, time.Duration(s*float64(time.Second)))
	}
	return durations
}

// countingBudget counts its calls. It grants everything, or nothing if refuse is
// set, in which case nothing waits in line.
type countingBudget struct {
	mu                           sync.Mutex
	withdrawn, refunded, deposit int
	refuse                       bool
}

func (b *countingBudget) Withdraw(r retryhttp.Retry) (cost float64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case r.Stop != "":
		return 0, false
	case b.refuse:
		return math.Inf(1), false
	}
	b.withdrawn++
	return 1, true
}

func (b *countingBudget) Refund(_ *http.Request, cost float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refunded++
}

func (b *countingBudget) Deposit(*http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deposit++
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// addRandom adds n seeds of at least so many bytes and fewer than most, and the extremes.
func addRandom(f *testing.F, n, least, most int) {
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{255}, most))
	f.Add(make([]byte, most))
	rng := rand.New(rand.NewPCG(1, 2))
	for range n {
		data := make([]byte, least+rng.IntN(most-least))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
}

// withdraw asks b for a retry of which nothing is known but the request.
func withdraw(b retryhttp.Budget, req *http.Request) bool {
	_, ok := b.Withdraw(retryhttp.Retry{Request: req})
	return ok
}

// countFailure tells b of a failure that no retry follows.
func countFailure(b retryhttp.Budget, req *http.Request, failed retryhttp.Attempt) {
	b.Withdraw(retryhttp.Retry{Request: req, Failed: failed, Stop: retryhttp.StopNotIdempotent})
}
