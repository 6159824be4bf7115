package replicas_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// request is what a client sends, and how it behaves.
type request struct {
	method   string
	key      bool
	sent     int // bytes of the body
	asked    int // bytes of the response
	body     int // how the body is made
	deadline time.Duration
	cancel   time.Duration // 0: never
	read     bool          // to the end
}

func anyRequest(r *rand.Rand) request {
	q := request{
		method: http.MethodGet, deadline: time.Duration(500+r.IntN(4000)) * time.Millisecond,
		asked: size(r), read: r.IntN(10) > 0,
	}
	if r.IntN(8) == 0 {
		q.cancel = time.Duration(1 + r.IntN(int(300*time.Millisecond)))
	}
	if r.IntN(5) < 2 {
		return q
	}
	q.method, q.sent, q.body = http.MethodPut, size(r), r.IntN(4)
	if r.IntN(2) == 0 {
		q.method, q.key = http.MethodPost, r.IntN(2) == 0
	}
	return q
}

// size is mostly small: large bodies take the race detector long.
func size(r *rand.Rand) int {
	if r.IntN(4) > 0 {
		return r.IntN(3 << 10)
	}
	return r.IntN(200 << 10)
}

// counted is a request body that must be closed, and is of no use afterwards, as a file.
type counted struct {
	io.Reader
	open   *atomic.Int64
	counts sync.Once
	closed atomic.Bool
	pause  time.Duration
}

// counted returns a body. With lazy, it need not be closed before it is read.
func (l *ledger) counted(content []byte, pause time.Duration, lazy bool) *counted {
	c := &counted{Reader: bytes.NewReader(content), open: &l.open, pause: pause}
	if !lazy {
		c.count()
	}
	return c
}

func (c *counted) count() { c.counts.Do(func() { c.open.Add(1) }) }

func (c *counted) Read(p []byte) (int, error) {
	if c.closed.Load() {
		return 0, os.ErrClosed
	}
	c.count()
	if c.pause > 0 {
		time.Sleep(c.pause)
		p = p[:min(len(p), 16<<10)]
	}
	return c.Reader.Read(p)
}

func (c *counted) Close() error {
	if !c.closed.Swap(true) {
		c.count()
		c.open.Add(-1)
	}
	return nil
}

// make returns the request with its body.
func (l *ledger) make(ctx context.Context, url string, q request) *http.Request {
	url += fmt.Sprintf("?id=%d&sent=%d&asked=%d", l.numbers.Add(1), q.sent, q.asked)
	req, err := http.NewRequestWithContext(ctx, q.method, url, nil)
	if err != nil {
		panic(err)
	}
	if q.key {
		req.Header.Set("Idempotency-Key", req.URL.Query().Get("id"))
	}
	if q.sent == 0 {
		return req
	}
	content := part(req, "sent")
	var pause time.Duration
	if q.body == 3 {
		pause = 5 * time.Millisecond
	}
	req.Body, req.ContentLength = l.counted(content, pause, false), int64(len(content))
	switch q.body {
	case 1: // a stream of known length
	case 2:
		req.ContentLength = -1
	default:
		// net/http opens a body to send a request again over HTTP/2, and forgets it if the context ends.
		lazy := l.http2
		req.GetBody = func() (io.ReadCloser, error) { return l.counted(content, pause, lazy), nil }
	}
	return req
}

// exchange sends q, and returns the status of a response whose body was as it should be.
func (m *model) exchange(q request, r *rand.Rand) int {
	ctx, cancel := context.WithTimeout(context.Background(), q.deadline)
	defer cancel()
	if q.cancel > 0 {
		defer time.AfterFunc(q.cancel, cancel).Stop()
	}
	m.requests.Add(1)
	req := m.make(ctx, m.w.URL(), q)
	begin := time.Now()
	resp, err := m.client.RoundTrip(req)
	if time.Since(begin) > q.deadline+time.Second {
		m.accuse("RoundTrip took "+time.Since(begin).String(), req)
	}
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if !q.read {
		_, _ = io.CopyN(io.Discard, resp.Body, r.Int64N(32<<10))
		return 0
	}
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	want := part(req, "asked")
	if resp.StatusCode != http.StatusOK {
		want = []byte("sorry")
	}
	if resp.StatusCode == http.StatusBadRequest {
		want = nil
	}
	if !bytes.Equal(content, want) {
		m.accuse(fmt.Sprintf("the client read %d other bytes of %d, status %d", len(content), len(want), resp.StatusCode), req)
	}
	if resp.StatusCode == http.StatusOK {
		m.succeeded.Add(1)
	}
	return resp.StatusCode
}
