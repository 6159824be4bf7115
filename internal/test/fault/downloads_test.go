package fault_test

import (
	"context"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
)

// stall is how long a Read may take, in virtual time. An attempt may take ten times as
// long, and a caller waits for longer than all attempts.
const stall = time.Second

// memory is a stage without sockets.
type memory struct {
	network *memnet.Network
	server  *fault.Server
	base    *http.Transport
	stop    func()
}

func newMemory(major int) *memory {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(major == 1)
	protocols.SetUnencryptedHTTP2(major == 2)
	m := &memory{network: memnet.New(), server: fault.NewServer(fault.NewLedger())}
	m.server.InBubble = true
	srv := &http.Server{
		Handler: m.server, Protocols: protocols, ConnContext: fault.WithConn, ErrorLog: log.New(io.Discard, "", 0),
	}
	m.base = &http.Transport{DialContext: m.network.Dial, Protocols: protocols}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(m.network)
	}()
	m.stop = func() {
		m.server.Close()
		_ = srv.Close()
		<-served
	}
	return m
}

// download makes a Download, and compares its result with its End. The bubble ends in a panic if a
// goroutine is left.
func download(t *testing.T, n uint64, d fault.Download, major int) {
	t.Helper()
	m := newMemory(major)
	defer m.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*stall)
	defer cancel()
	o := fault.NewObject(d, n)
	o.Pause = stall * 9 / 10 // so that no Read of it stalls
	m.server.Offer("object", o)
	var policy retryhttp.Policy
	d.Policy.Set(&policy, stall)
	start := time.Now()
	base := &bodies{RoundTripper: m.base}
	got := o.Fetch(ctx, retryhttp.New(base, policy), m.server.Ledger, "http://host", "object")
	took := time.Since(start)

	checkDownload(t, o, got, m.server.Ledger, major)
	if d.End(major).Waits {
		assert.GreaterOrEqual(t, took, fault.RetryAfter*time.Second)
	}
	assert.True(t, fault.Eventually(atRest, func() bool {
		m.base.CloseIdleConnections() // again, for one may become idle now
		synctest.Wait()
		return m.network.Conns() == 0
	}), "connections are left open")
	assert.Zero(t, base.open.Load(), "bodies are left open")
}

// bodies is a base that counts the responses whose bodies are not closed.
type bodies struct {
	http.RoundTripper
	open atomic.Int64
}

func (b *bodies) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil && resp.ContentLength != 0 { // else there is nothing to close
		b.open.Add(1)
		resp.Body = &countedBody{resp.Body, sync.OnceFunc(func() { b.open.Add(-1) })}
	}
	return resp, err
}

type countedBody struct {
	io.ReadCloser
	closed func()
}

func (b *countedBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// ClosableAs returns a body that may be closed while it is read, because b wraps a body of net/http.
func (*countedBody) ClosableAs() io.ReadCloser { return http.NoBody }

// checkDownload compares a Download, called "object", with its End.
func checkDownload(t *testing.T, o *fault.Object, got fault.Delivery, l *fault.Ledger, major int) {
	t.Helper()
	assert.NoError(t, o.Compare(got, major), "%v", got)
	assert.NoError(t, l.Check("object", got.Whole))
	if got.Err == nil {
		checkError(t, o.Download, got, major)
	}
}

// checkError compares the error with which a body ends with how the body was broken. If somebody
// has tried to resume it, the error says so.
func checkError(t *testing.T, d fault.Download, got fault.Delivery, major int) {
	t.Helper()
	if d.End(major).Shape != fault.Broken {
		return
	}
	if original := d.Original(major); original != nil {
		assert.ErrorIs(t, got.BodyErr, original)
	}
	refused, changed := errors.Is(got.BodyErr, retryhttp.ErrNotResumable), errors.Is(got.BodyErr, retryhttp.ErrChanged)
	var e *retryhttp.Error
	switch gaveUp := errors.As(got.BodyErr, &e); {
	case !d.GivesUp():
		assert.Equal(t, d.Unresumable(), refused)
		assert.False(t, changed)
	case assert.True(t, gaveUp):
		assert.Equal(t, e.Stop == retryhttp.StopFinal, refused != changed, "one of the two is why it was refused")
		assert.Equal(t, e.Stop == retryhttp.StopFinal, refused || changed)
		if d.Replaced && d.Resumed == fault.Honest {
			assert.True(t, changed)
		}
	}
}

func TestDownloadsOverHTTP1(t *testing.T) { runDownloads(t, 1) }
func TestDownloadsOverHTTP2(t *testing.T) { runDownloads(t, 2) }

func runDownloads(t *testing.T, major int) {
	t.Helper()
	var all []fault.Download
	possible, made := make(map[string]bool), make(map[string]bool)
	for n, d := range fault.Downloads(major) {
		words := possible
		if n%thinned == 0 {
			all = append(all, d)
			words = made
		}
		for word := range strings.SplitSeq(d.String(), "/") {
			words[word] = true
		}
	}
	for word := range possible {
		assert.True(t, made[word], "no download of %q is made", word)
	}
	fault.SideBySide(8, all, func(n int, d fault.Download) {
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { download(t, uint64(n), d, major) })
		})
	})
	t.Logf("%d downloads", len(all))
}

// unavailable is a base that has this body for each request.
type unavailable struct{ body io.Reader }

func (u unavailable) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: io.NopCloser(u.body)}, nil
}

func TestFetchHoldsLittleOfALongFailure(t *testing.T) {
	const long = 1 << 20
	rest := &io.LimitedReader{R: rand.NewChaCha8([32]byte{}), N: long}
	o := fault.NewObject(fault.Download{}, 1)
	o.Fetch(t.Context(), unavailable{rest}, fault.NewLedger(), "http://host", "object")
	assert.LessOrEqual(t, long-rest.N, int64(2*fault.ObjectSize+1))
}
