package zoo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

const (
	atRest   = 20 * time.Second // within which all that a request began must end
	patience = time.Second      // with a response header that does not come
	together = 64               // cases at a time, in each lane
)

func TestZoo(t *testing.T) { visit(t, scenes(methods)) }

// A response that is buffered, or may be resumed, must be no worse either.
func TestZooWithResponseBodiesRead(t *testing.T) {
	all := scenes(methods)
	for i := range all {
		all[i].bodies = true
	}
	visit(t, slices.DeleteFunc(all, func(s scene) bool { return s.fault.hangs || s.fault.stalls }))
}

func visit(t *testing.T, all []scene) {
	t.Helper()
	srv := newServer(t)
	before := fault.TakeInventory()
	fault.InLanes(together, together, all, func(s scene) bool { return s.fault.hangs }, func(n int, s scene) {
		t.Run(s.String(), func(t *testing.T) { s.run(t, srv, n) })
	})
	assert.NoError(t, before.Leaked(atRest))
	t.Logf("%d cases", len(all))
}

// run sends the request without the Transport and with it, and compares.
func (s scene) run(t *testing.T, srv *server, n int) {
	t.Helper()
	bare := s.send(t, srv, n, false)
	ours := s.send(t, srv, n, true)

	success := ours.success(s.animal.encodes)
	lucky := s.animal.hedges && bare.account.repeated()
	if bare.success(false) && !lucky || s.fault.mended && s.repeatable() {
		assert.True(t, success, "ours %v\nbare %v", ours, bare)
	}
	if bare.err == nil {
		assert.NoError(t, ours.err, "bare %v", bare)
	}
	if !success && !lucky {
		assert.Equal(t, bare.status, ours.status, "ours %v\nbare %v", ours, bare)
		assert.Equal(t, bare.readable, ours.readable, "ours %v\nbare %v", ours, bare)
	}
	if !s.fault.hangs { // else a busy machine may take more
		assert.LessOrEqual(t, ours.outcome.Attempts-ours.outcome.Hedges, 2, "ours %v", ours)
	}
	assert.NoError(t, ours.account.check(success), "%v", ours)
	if s.hedging != nil && s.fault.hangs && s.sentBeside() {
		sent := func() bool { return s.hedging.sent.Load() > 0 }
		assert.True(t, fault.Eventually(atRest, sent), "no hedge of %v", ours)
	}

	first, all := s.closes()
	if first {
		bare.requireClosed(t, all)
	}
	if first || s.wrapped() {
		ours.requireClosed(t, all)
	}
}

func (r *result) requireClosed(t *testing.T, all bool) {
	t.Helper()
	closed := func() bool { return r.upload.closed(all) }
	require.True(t, fault.Eventually(atRest, closed), "bodies were closed %v times, %v", r.upload.closes(), r)
}

// result is what a request's client saw.
type result struct {
	upload   *upload
	account  *account
	err      error
	status   int // 0: an error
	header   http.Header
	body     []byte // of a success
	readable bool   // a failed response's body is open
	outcome  retryhttp.Outcome
}

func (r *result) String() string {
	return fmt.Sprintf("{%d, error %v, %d bytes, %+v, arrivals %v}",
		r.status, r.err, len(r.body), r.outcome, r.account)
}

// success reports whether the whole good answer came. It may be encoded if encoded is set.
func (r *result) success(encoded bool) bool {
	if r.status != http.StatusOK || r.err != nil {
		return false
	}
	body := r.body
	if encoded && r.header.Get("Content-Encoding") == "gzip" {
		var err error
		body, err = io.ReadAll(&decodedBody{encoded: io.NopCloser(bytes.NewReader(body))})
		if err != nil {
			return false
		}
	}
	return bytes.Equal(body, answerTo(r.account.id))
}

// send makes the scene's request, with the Transport in the chain or without.
func (s scene) send(t *testing.T, srv *server, n int, with bool) *result {
	t.Helper()
	b := newBase(s.animal.http2)
	defer b.rest(t)
	ctx := context.Background()
	if with && s.animal.wraps && s.fault.stalls {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	rt := s.chain(t, b, srv, with)
	defer closeIdle(rt)
	return s.through(ctx, t, rt, srv, fmt.Sprintf("%d-%t", n, with), n)
}

// through sends the scene's request through rt, with the n-th content.
func (s scene) through(
	ctx context.Context, t *testing.T, rt http.RoundTripper, srv *server, id string, n int,
) *result {
	t.Helper()
	content := fault.Content(uint64(n), s.size())
	acc := newAccount(id, content, s.method.repeatable, s.fault, s.animal.challenged)
	srv.accounts.Store(id, acc)
	defer acc.move()
	req, up := s.kind.request(ctx, t, s.method.name, srv.URL+"/"+id, content)
	up.again = acc.move
	if s.method.key != "" {
		req.Header.Set("Idempotency-Key", s.method.key)
	}
	r := &result{upload: up, account: acc}
	r.read(rt.RoundTrip(req))
	return r
}

// chain puts the animal on the base, and the Transport beside it.
func (s scene) chain(t *testing.T, b *base, srv *server, with bool) http.RoundTripper {
	t.Helper()
	target, err := url.Parse(srv.URL)
	require.NoError(t, err)
	p := s.animal.policy()
	if s.bodies {
		p.BufferBytes, p.Resume, p.StallTimeout = 1<<20, true, atRest
	}
	if s.hedging != nil {
		s.hedging.join(&p)
	}
	if s.hedging != nil || s.animal.hedges {
		b.IdleConnTimeout = time.Second // a hedge that was late to lose may dial after rest
	}
	if s.fault.hangs {
		// On a busy machine, an attempt that is well may take longer than patience.
		p.AttemptTimeout, p.MaxAttempts, p.Budget = patience, -1, retryhttp.Unlimited{}
	}
	switch {
	case with && s.animal.above:
		return s.animal.wrap(retryhttp.New(b, p), target)
	case with:
		return retryhttp.New(s.animal.wrap(b, target), p)
	case s.fault.hangs:
		b.ResponseHeaderTimeout = 10 * time.Millisecond // the result is the same
	}
	return s.animal.wrap(b, target)
}

func (r *result) read(resp *http.Response, err error) {
	if err != nil {
		r.err = err
		if e, ok := errors.AsType[*retryhttp.Error](err); ok {
			r.outcome = e.Outcome
		}
		return
	}
	defer resp.Body.Close()
	r.status, r.header, r.outcome = resp.StatusCode, resp.Header, retryhttp.OutcomeOf(resp)
	if r.status == http.StatusOK {
		r.body, r.err = io.ReadAll(resp.Body)
		return
	}
	n, _ := resp.Body.Read(make([]byte, 1)) // it may never end
	r.readable = n == 1
}
