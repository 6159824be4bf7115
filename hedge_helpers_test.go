package retryhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
)

// lap is what an attempt meets.
type lap struct {
	after time.Duration
	code  int   // 0: hangs until its context ends, or fails with err
	err   error // in the place of a response
	proto int   // ProtoMajor
	asks  string
	deaf  bool                // it does not look at its context
	body  io.Reader           // nil: a short one
	do    func(*http.Request) // at its start

	closing func() // is called by the body's Close
}

// track is a base whose attempts meet one lap after the other, in the order in which they
// are sent. The last one is for all that follow.
type track struct {
	laps  []lap
	start time.Time

	mu   sync.Mutex
	sent []*sending
}

// sending is an attempt that a track saw.
type sending struct {
	number int // by AttemptOf
	at     time.Duration
	req    *http.Request
	body   *bodies.Hooked // of the response; nil: none
	over   time.Duration
}

func newTrack(laps ...lap) *track { return &track{laps: laps, start: time.Now()} }

func (r *track) RoundTrip(req *http.Request) (*http.Response, error) {
	s := &sending{number: retryhttp.AttemptOf(req.Context()).Number, at: time.Since(r.start), req: req}
	r.mu.Lock()
	l := r.laps[min(len(r.sent), len(r.laps)-1)]
	r.sent = append(r.sent, s)
	r.mu.Unlock()
	if l.do != nil {
		l.do(req)
	}
	if req.Body != nil {
		defer req.Body.Close()
	}
	resp, err := l.run(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	s.over = time.Since(r.start)
	if resp != nil {
		s.body = resp.Body.(*bodies.Hooked)
	}
	return resp, err
}

// run waits for the lap's time, and answers.
func (l lap) run(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if l.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	var due <-chan time.Time
	if l.code != 0 || l.err != nil {
		due = time.After(l.after)
	}
	select {
	case <-due:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.err != nil {
		return nil, l.err
	}
	header := make(http.Header)
	if l.asks != "" {
		header.Set("Retry-After", l.asks)
	}
	body := l.body
	if body == nil {
		body = strings.NewReader("whole")
	}
	return &http.Response{
		StatusCode: l.code, ProtoMajor: l.proto, Header: header, ContentLength: -1,
		Body: &bodies.Hooked{OnRead: body.Read, OnClose: l.closing}, Request: req,
	}, nil
}

func (r *track) attempts() []*sending {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[:len(r.sent):len(r.sent)]
}

// times returns when the attempts were sent.
func (r *track) times() (at []time.Duration) {
	for _, s := range r.attempts() {
		at = append(at, s.at)
	}
	return at
}

const hedgeAfter = 50 * time.Millisecond

// hedging hedges after 50 ms, and retries after a second.
func hedging() retryhttp.Policy {
	return retryhttp.Policy{
		Hedge:   &retryhttp.Hedge{After: hedgeAfter},
		Budget:  new(countingBudget),
		Backoff: retryhttp.Constant(time.Second),
	}
}

// finish is how a request ended for its caller.
type finish struct {
	at     time.Duration
	resp   *http.Response
	err    error
	out    retryhttp.Outcome
	body   string
	status int
}

// runOn makes a request through r, and reads the response.
func (r *track) runOn(t *testing.T, p retryhttp.Policy, req *http.Request) finish {
	t.Helper()
	f := r.begin(t, p, req)
	f.read(t)
	if f.out.Hedges > 0 {
		time.Sleep(time.Second) // which a hedge that has lost does not take
	}
	return f
}

// begin makes a request through r, and leaves the response's body to its caller.
func (r *track) begin(t *testing.T, p retryhttp.Policy, req *http.Request) finish {
	t.Helper()
	return r.through(t, r, p, req)
}

// through is begin with a base that r is a part of.
func (r *track) through(t *testing.T, base http.RoundTripper, p retryhttp.Policy, req *http.Request) finish {
	t.Helper()
	resp, err := retryhttp.New(base, p).RoundTrip(req)
	f := finish{at: time.Since(r.start), resp: resp, err: err, out: retryhttp.OutcomeOf(resp)}
	if e, ok := errors.AsType[*retryhttp.Error](err); ok {
		f.out = e.Outcome
	}
	if resp != nil {
		f.status = resp.StatusCode
	}
	return f
}

func (f *finish) read(t *testing.T) {
	t.Helper()
	if f.resp == nil {
		return
	}
	body, err := io.ReadAll(f.resp.Body)
	assert.NoError(t, err)
	f.body = string(body)
	assert.NoError(t, f.resp.Body.Close())
}

// dripping brings its text byte by byte, each after a pause.
type dripping struct {
	text  string
	pause time.Duration
}

func (d *dripping) Read(p []byte) (int, error) {
	time.Sleep(d.pause)
	if d.text == "" {
		return 0, io.EOF
	}
	n := copy(p[:1], d.text)
	d.text = d.text[n:]
	return n, nil
}

// foreign is a caller's context that package context does not know. Each context that is derived
// from it has a goroutine until one of the two ends, and a bubble does not end before. Its Err may
// be seen before its Done is closed, as with any context.
type foreign struct {
	context.Context
	done chan struct{}
	gone atomic.Bool
}

func newForeign(t *testing.T) *foreign {
	t.Helper()
	return &foreign{Context: t.Context(), done: make(chan struct{})}
}

func (f *foreign) Done() <-chan struct{} { return f.done }

func (f *foreign) Err() error {
	if f.gone.Load() {
		return context.Canceled
	}
	return nil
}

// requireClosed requires that every response body was closed once, and that the contexts of
// attempts side by side have ended.
func (r *track) requireClosed(t *testing.T) {
	t.Helper()
	attempts := r.attempts()
	for i, s := range attempts {
		beside := i > 0 && s.at-attempts[i-1].at == hedgeAfter || i+1 < len(attempts) && attempts[i+1].at-s.at == hedgeAfter
		if beside {
			require.Error(t, s.req.Context().Err(), "attempt %d", s.number)
		}
		if s.body != nil {
			require.EqualValues(t, 1, s.body.Closes.Load(), "attempt %d", s.number)
		}
	}
}
