package sockets_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// hedgedPair is a server that sees each request twice: its first attempt, and the hedge. Its
// handlers wait for each other, so that no order depends on the speed of the machine.
type hedgedPair struct {
	url    string
	base   *http.Transport
	dialed atomic.Int64
	rt     *retryhttp.Transport

	mu     sync.Mutex
	events map[string]chan struct{}
}

// attemptField is the field with an attempt's number: a hedge may arrive first.
const attemptField = "Attempt"

type pairHandler = func(*hedgedPair, http.ResponseWriter, *http.Request)

// newHedgedPair starts a server for HTTP/1 or HTTP/2 that answers first attempts with first,
// and hedges with hedge.
func newHedgedPair(t *testing.T, http2 bool, first, hedge pairHandler) *hedgedPair {
	t.Helper()
	p := &hedgedPair{events: make(map[string]chan struct{})}
	p.url, p.base = loopback.ServeTLS(t, http2, func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get(attemptField) {
		case "1":
			first(p, w, r)
		case "2":
			hedge(p, w, r)
		}
	})
	p.base.MaxIdleConnsPerHost = 100
	p.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		p.dialed.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	numbered := script.Step(func(req *http.Request) (*http.Response, error) {
		sent := req.Clone(req.Context())
		sent.Header.Set(attemptField, strconv.Itoa(retryhttp.AttemptOf(req.Context()).Number))
		return p.base.RoundTrip(sent)
	})
	p.rt = retryhttp.New(numbered, retryhttp.Policy{
		Hedge: &retryhttp.Hedge{Share: 1, After: time.Millisecond}, Budget: retryhttp.Unlimited{},
	})
	return p
}

// event is a channel that is closed when the named event has happened.
func (p *hedgedPair) event(name string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.events[name] == nil {
		p.events[name] = make(chan struct{})
	}
	return p.events[name]
}

func (p *hedgedPair) happens(name string) { close(p.event(name)) }

// await reports whether the event comes before the end of the request.
func (p *hedgedPair) await(r *http.Request, name string) bool {
	select {
	case <-p.event(name):
		return true
	case <-r.Context().Done():
		return false
	}
}

// stalls waits until the request's context ends. The end is an event of its own.
func stalls(p *hedgedPair, _ http.ResponseWriter, r *http.Request) {
	p.happens("the loser is there")
	<-r.Context().Done()
	p.happens("the loser's context has ended")
}

// get returns the whole body of a response to a GET, of which one attempt was a hedge.
func (p *hedgedPair) get(t *testing.T, ctx context.Context, path string) ([]byte, retryhttp.Outcome) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	require.NoError(t, err)
	return p.do(t, req)
}

func (p *hedgedPair) do(t *testing.T, req *http.Request) ([]byte, retryhttp.Outcome) {
	t.Helper()
	resp, err := p.rt.RoundTrip(req)
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	outcome := retryhttp.OutcomeOf(resp)
	require.Equal(t, 1, outcome.Hedges)
	require.Equal(t, 2, outcome.Attempts)
	return got, outcome
}

// overBothProtocols runs a test over HTTP/1 and HTTP/2, after which no goroutine is left.
func overBothProtocols(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	t.Run("warm-up", func(t *testing.T) { // what the process opens for its first socket stays open
		url, base := loopback.ServeTLS(t, true, func(http.ResponseWriter, *http.Request) {})
		resp, err := base.RoundTrip(get(t, url))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		base.CloseIdleConnections()
	})
	before := fault.TakeInventory()
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) { test(t, http2) })
	}
	assert.NoError(t, before.Leaked(time.Minute))
}

func TestHedgesThatLoseKeepTheirConnections(t *testing.T) {
	overBothProtocols(t, func(t *testing.T, http2 bool) {
		for name, cancels := range map[string]bool{"its caller waits": false, "its caller cancels": true} {
			t.Run(name, func(t *testing.T) {
				p := newHedgedPair(t, http2, answersAfterHedge, answersAfterCaller)
				defer p.base.CloseIdleConnections()
				open := int64(10)
				if http2 {
					open = 1
					p.connect(t)
				}
				for n := range 200 {
					p.loseHedge(t, "/"+strconv.Itoa(n), cancels)
				}
				assert.LessOrEqual(t, p.dialed.Load(), open)
			})
		}
	})
}

func answersAfterHedge(p *hedgedPair, w http.ResponseWriter, r *http.Request) {
	if p.await(r, "hedge of "+r.URL.Path) {
		_, _ = io.WriteString(w, "first")
	}
}

func answersAfterCaller(p *hedgedPair, w http.ResponseWriter, r *http.Request) {
	p.happens("hedge of " + r.URL.Path)
	if p.await(r, "caller has "+r.URL.Path) {
		_, _ = io.WriteString(w, "hedge")
	}
}

// connect makes sure that there is an HTTP/2 connection: net/http may dial twice for the first two
// requests.
func (p *hedgedPair) connect(t *testing.T) {
	t.Helper()
	resp, err := p.base.RoundTrip(get(t, p.url))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

// loseHedge makes a request whose first attempt wins. The hedge is answered after that.
func (p *hedgedPair) loseHedge(t *testing.T, path string, cancels bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	got, outcome := p.get(t, ctx, path)
	require.Equal(t, "first", string(got))
	require.False(t, outcome.HedgeWon)
	if cancels {
		cancel()
	}
	p.happens("caller has " + path)
}

func TestStalledFirstAttemptIsAnsweredByTheHedge(t *testing.T) {
	overBothProtocols(t, func(t *testing.T, http2 bool) {
		p := newHedgedPair(t, http2, stalls, func(p *hedgedPair, w http.ResponseWriter, r *http.Request) {
			if p.await(r, "the loser is there") {
				_, _ = io.WriteString(w, "hedge")
			}
		})
		defer p.base.CloseIdleConnections()
		got, outcome := p.get(t, t.Context(), "/")
		assert.Equal(t, "hedge", string(got))
		assert.True(t, outcome.HedgeWon)
		<-p.event("the loser's context has ended")
	})
}

func TestBodyOfTheWinnerIsWholeThoughTheLoserIsCanceled(t *testing.T) {
	content := bytes.Repeat([]byte("8 bytes."), 1<<20)
	wins := func(p *hedgedPair, w http.ResponseWriter, r *http.Request) {
		if !p.await(r, "the loser is there") {
			return
		}
		_, _ = w.Write(content[:len(content)/2])
		_ = http.NewResponseController(w).Flush()
		if p.await(r, "the loser's context has ended") {
			_, _ = w.Write(content[len(content)/2:])
		}
	}
	overBothProtocols(t, func(t *testing.T, http2 bool) {
		for name, hedgeWins := range map[string]bool{"the hedge wins": true, "the first attempt wins": false} {
			t.Run(name, func(t *testing.T) {
				first, hedge := wins, stalls
				if hedgeWins {
					first, hedge = stalls, wins
				}
				p := newHedgedPair(t, http2, first, hedge)
				defer p.base.CloseIdleConnections()
				got, outcome := p.get(t, t.Context(), "/")
				assert.True(t, bytes.Equal(content, got), "%d bytes of %d", len(got), len(content))
				assert.Equal(t, hedgeWins, outcome.HedgeWon)
			})
		}
	})
}

func TestFileIsReadWholeByBothAttempts(t *testing.T) {
	content, _ := upload()
	name := filepath.Join(t.TempDir(), "query")
	require.NoError(t, os.WriteFile(name, content, 0o600))
	overBothProtocols(t, func(t *testing.T, http2 bool) {
		sums := make(chan [sha256.Size]byte, 2)
		first := func(p *hedgedPair, w http.ResponseWriter, r *http.Request) {
			sums <- p.readBeside(r, "first", "hedge")
			p.await(r, "hedge has read all")
		}
		hedge := func(p *hedgedPair, w http.ResponseWriter, r *http.Request) {
			sums <- p.readBeside(r, "hedge", "first")
			p.happens("hedge has read all")
			<-r.Context().Done()
		}
		p := newHedgedPair(t, http2, first, hedge)
		defer p.base.CloseIdleConnections()
		file, err := os.Open(name)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), "QUERY", p.url, file)
		require.NoError(t, err)
		_, outcome := p.do(t, req)
		assert.False(t, outcome.HedgeWon)
		want := sha256.Sum256(content)
		assert.Equal(t, want, <-sums)
		assert.Equal(t, want, <-sums)
	})
}

// readBeside reads a request's body once the other attempt is there as well. The body is
// longer than what is on its way until then.
func (p *hedgedPair) readBeside(r *http.Request, self, other string) [sha256.Size]byte {
	p.happens(self + " is there")
	p.await(r, other+" is there")
	sum := sha256.New()
	_, _ = io.Copy(sum, r.Body)
	return [sha256.Size]byte(sum.Sum(nil))
}
