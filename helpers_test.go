package retryhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

var noWait = retryhttp.Policy{Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}}

var errBroken = errors.New("connection broken")

var discardLog = log.New(io.Discard, "", 0)

// These errors are made as net/http makes them.
var (
	dialRefused  = dialError(syscall.ECONNREFUSED)
	socksRefused = &net.OpError{Op: "socks connect", Net: "tcp", Err: errors.New("host unreachable")}
	tlsAlert     = &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	wrongHost    = x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}
)

func dialError(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

func untrusted(err error) error { return &tls.CertificateVerificationError{Err: err} }

func http1Error(err error) error {
	return fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
}

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

func errorOf(t *testing.T, err error) *retryhttp.Error {
	t.Helper()
	var e *retryhttp.Error
	require.ErrorAs(t, err, &e)
	return e
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

// hangUp reads the request and closes the connection without an answer.
func hangUp(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }

// hang never answers.
func hang(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// received is what the server saw of one attempt.
type received struct {
	at     time.Time
	method string
	header http.Header
	body   string
}

// server plays answers, and the last one for all attempts that follow.
type server struct {
	answers []http.HandlerFunc

	mu  sync.Mutex
	got []received
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

// seconds makes durations, for the waits between attempts.
func seconds(list ...float64) (durations []time.Duration) {
	for _, s := range list {
		durations = append(durations, time.Duration(s*float64(time.Second)))
	}
	return durations
}

// serve is memnet.Serve, over HTTP/2 if asked for.
func serve(h http.HandlerFunc, http2 bool) (*memnet.Network, *http.Transport, func()) {
	n := memnet.New()
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	base := &http.Transport{Protocols: new(http.Protocols)}
	for _, p := range []*http.Protocols{srv.Protocols, base.Protocols} {
		p.SetHTTP1(!http2)
		p.SetUnencryptedHTTP2(http2)
	}
	return n, base, n.Run(srv, base)
}

// endsConnection makes the response the last one of its HTTP/1 connection. From Go 1.27 on,
// net/http drains a body that is closed early, unless its connection ends anyway. The drain waits
// for a Read in flight with a mutex, and such a wait stops the clock of a bubble.
func endsConnection(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// listen serves h on a loopback socket.
func listen(t *testing.T, h http.HandlerFunc) (url string) {
	t.Helper()
	return listenOn(t, httptest.NewUnstartedServer(h))
}

func listenOn(t *testing.T, srv *httptest.Server) (url string) {
	t.Helper()
	srv.Config.ErrorLog = discardLog
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

// listenTLS is listen over TLS, with HTTP/2 if asked for. base trusts the server.
func listenTLS(t *testing.T, http2 bool, h http.HandlerFunc) (url string, base *http.Transport) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = discardLog
	srv.EnableHTTP2 = http2
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL, srv.Client().Transport.(*http.Transport)
}

// listenTCP hands each connection to the next of serve, and the last of serve gets
// all that follow. A connection is closed when serve returns.
func listenTCP(t *testing.T, serve ...func(net.Conn)) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", ownLoopback())
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				defer context.AfterFunc(t.Context(), func() { _ = c.Close() })()
				serve[min(i, len(serve)-1)](c)
			})
		}
	})
	return l
}

// rawServer reads each connection's request, and leaves the rest to the next of
// answers.
func rawServer(t *testing.T, answers ...func(net.Conn)) (url string) {
	t.Helper()
	serve := make([]func(net.Conn), len(answers))
	for i, answer := range answers {
		serve[i] = func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			answer(c)
		}
	}
	return "http://" + listenTCP(t, serve...).Addr().String()
}

// readRequest reads a request to its end. It returns nil if there is none.
func readRequest(r *bufio.Reader) *http.Request {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, req.Body)
	return req
}

// refusing returns an address that nothing listens on.
func refusing(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", ownLoopback())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// ownLoopback returns an address of the loopback network that others hardly use, where there
// is more than one. A port of 127.0.0.1 that a test has let go may soon be another program's.
func ownLoopback() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1:0"
	}
	return fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

func say(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// reset sends text and resets the connection.
func reset(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).SetLinger(0)
	}
}

// respond answers with code and body, and leaves the request alone.
func respond(code int, body io.ReadCloser) script.Step {
	return func(req *http.Request) (*http.Response, error) {
		resp := script.Response(req, code)
		resp.Body = body
		return resp, nil
	}
}

// stub is a base that plays statuses over and over. Its own allocations are the
// floor that Transports are compared with.
type stub struct {
	statuses []int
	body     bool   // give each failure a body to drain
	closed   func() // called when that body is closed
	n        int
}

func (s *stub) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	code := s.statuses[s.n%len(s.statuses)]
	if len(s.statuses) > 1 {
		s.n++
	}
	resp := &http.Response{StatusCode: code, Body: http.NoBody, Request: req, ContentLength: -1}
	if s.body && code >= 400 {
		resp.Body = &stubBody{*strings.NewReader("a failure's body"), s.closed}
	}
	return resp, nil
}

type stubBody struct {
	strings.Reader
	closed func()
}

func (b *stubBody) Close() error {
	if b.closed != nil {
		b.closed()
	}
	return nil
}

// transports are the Transports whose first-attempt success is measured.
func transports(base http.RoundTripper) map[string]http.RoundTripper {
	return map[string]http.RoundTripper{
		"default policy": retryhttp.New(base, retryhttp.Policy{}),
		"shared budget":  retryhttp.New(base, retryhttp.Policy{Budget: &retryhttp.TokenBucket{}}),
	}
}

var requestKinds = []struct {
	name string
	make func() *http.Request
}{
	{"GET", func() *http.Request {
		req, _ := http.NewRequest("GET", "http://host.example/", nil)
		return req
	}},
	{"64 KiB POST", func() *http.Request {
		req, _ := http.NewRequest("POST", "http://host.example/", bytes.NewReader(make([]byte, 64<<10)))
		return req
	}},
}

// roundTripper returns a function that sends req and reads the response.
func roundTripper(rt http.RoundTripper, req *http.Request) func() {
	return func() {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// sendStream POSTs content as a body that can be read only once.
func sendStream(rt http.RoundTripper, content []byte) {
	req, _ := http.NewRequest("POST", "http://host.example/", struct{ io.Reader }{bytes.NewReader(content)})
	resp, err := rt.RoundTrip(req)
	if err != nil {
		panic(err)
	}
	_ = resp.Body.Close()
}

// consuming is a base that reads the request's body.
type consuming struct{}

func (consuming) RoundTrip(req *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, req.Body)
	_ = req.Body.Close()
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, err
}

// bodyKinds are the ways to hand over content. Each call makes a new request.
func bodyKinds(t *testing.T) map[string]func(content []byte) *http.Request {
	t.Helper()
	put := func(body io.Reader) *http.Request {
		req, err := http.NewRequest("PUT", "http://server/", body)
		require.NoError(t, err)
		return req
	}
	return map[string]func([]byte) *http.Request{
		"bytes.Reader with GetBody": func(c []byte) *http.Request { return put(bytes.NewReader(c)) },
		"reader at":                 func(c []byte) *http.Request { return put(readAtBody{bytes.NewReader(c)}) },
		"seeker":                    func(c []byte) *http.Request { return put(seekBody{bytes.NewReader(c)}) },
		"stream":                    func(c []byte) *http.Request { return put(io.MultiReader(bytes.NewReader(c))) },
		"stream with a length": func(c []byte) *http.Request {
			req := put(io.MultiReader(bytes.NewReader(c)))
			req.ContentLength = int64(len(c))
			return req
		},
		"file": func(c []byte) *http.Request {
			f, err := os.Create(filepath.Join(t.TempDir(), "body"))
			require.NoError(t, err)
			_, err = f.WriteString("skipped")
			require.NoError(t, err)
			_, err = f.Write(c)
			require.NoError(t, err)
			_, err = f.Seek(int64(len("skipped")), io.SeekStart)
			require.NoError(t, err)
			return put(f)
		},
	}
}

// seekBody can be rewound, and has no random access.
type seekBody struct{ io.ReadSeeker }

func (seekBody) Close() error { return nil }

// readAtBody can be rewound, and has a ReadAt that no attempt must use.
type readAtBody struct{ *bytes.Reader }

func (readAtBody) ReadAt([]byte, int64) (int, error) { panic("ReadAt may return what Read leaves out") }
func (readAtBody) Close() error                      { return nil }

// fileWith returns a file that can be a body.
func fileWith(t *testing.T, content string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// trackedBody is a request body that counts its closes, and its reads after a
// close.
type trackedBody struct {
	io.Reader
	closes atomic.Int32
	misuse atomic.Int32
}

func (b *trackedBody) Read(p []byte) (int, error) {
	if b.closes.Load() > 0 {
		b.misuse.Add(1)
	}
	return b.Reader.Read(p)
}

func (b *trackedBody) Close() error {
	b.closes.Add(1)
	return nil
}

// hookedBody is a body that does what its hooks do.
type hookedBody struct {
	read   func([]byte) (int, error)
	close  func() // may be nil
	closes atomic.Int32
}

func (b *hookedBody) Read(p []byte) (int, error) { return b.read(p) }

func (b *hookedBody) Close() error {
	b.closes.Add(1)
	if b.close != nil {
		b.close()
	}
	return nil
}

// slowBody is a response body that gives a byte every interval, without end.
type slowBody struct {
	interval time.Duration
	closed   chan struct{}
	closes   atomic.Int32
	bytes    atomic.Int64
}

func (b *slowBody) Read(p []byte) (int, error) {
	select {
	case <-b.closed:
		return 0, errors.New("read of a closed body")
	case <-time.After(b.interval):
	}
	n := 1
	if b.interval == 0 {
		n = len(p)
	}
	b.bytes.Add(int64(n))
	return n, nil
}

func (b *slowBody) Close() error {
	if b.closes.Add(1) == 1 {
		close(b.closed)
	}
	return nil
}

func newSlowBody(interval time.Duration) *slowBody {
	return &slowBody{interval: interval, closed: make(chan struct{})}
}

// countingBudget counts its calls. It grants everything, or nothing if refuse is
// set.
type countingBudget struct {
	mu                           sync.Mutex
	withdrawn, refunded, deposit int
	refuse                       bool
}

func (b *countingBudget) Withdraw(*http.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse {
		return false
	}
	b.withdrawn++
	return true
}

func (b *countingBudget) Refund(*http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refunded++
}

func (b *countingBudget) Deposit(*http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deposit++
}

func requestTo(host string) *http.Request {
	return &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: host, Path: "/"}}
}

// drawAll withdraws for req until b refuses, and returns how often b did not.
func drawAll(t *testing.T, b *retryhttp.TokenBucket, req *http.Request) int {
	t.Helper()
	for n := 0; ; n++ {
		if !b.Withdraw(req) {
			return n
		}
		require.Less(t, n, 1_000_000, "it never refuses")
	}
}

func deposit(b *retryhttp.TokenBucket, req *http.Request, times int) {
	for range times {
		b.Deposit(req)
	}
}

// outage sends one GET to a server that answers 503 at once. It returns when each
// attempt started, counted from the first. It must run in a bubble.
func outage(t *testing.T, p retryhttp.Policy) ([]time.Duration, retryhttp.Outcome) {
	t.Helper()
	began := time.Now()
	var starts []time.Duration
	rt := retryhttp.New(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		starts = append(starts, time.Since(began))
		return script.Status(http.StatusServiceUnavailable)(req)
	}), p)
	req, err := http.NewRequest("GET", "http://example.test/", nil)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	outcome := retryhttp.OutcomeOf(resp)
	require.Equal(t, len(starts), outcome.Attempts)
	require.Equal(t, starts[len(starts)-1], outcome.Elapsed)
	require.Equal(t, time.Since(began), outcome.Elapsed)
	return starts, outcome
}

// requireUniform draws many times. It requires that all values are within [lo, hi],
// and that some are close to both ends. The mean and the quarters must be within 7
// standard deviations of their expectation.
func requireUniform(t *testing.T, lo, hi time.Duration, draw func() time.Duration) {
	t.Helper()
	const samples = 20000
	width := float64(hi) - float64(lo)
	least, greatest := hi, lo
	sum, quarters := 0.0, [4]int{}
	for range samples {
		d := draw()
		if d < lo || d > hi { // testify's comparisons are slow, and this one runs a million times
			require.FailNowf(t, "out of range", "%v is not within [%v, %v]", d, lo, hi)
		}
		least, greatest = min(least, d), max(greatest, d)
		share := (float64(d) - float64(lo)) / width
		sum += share
		quarters[min(int(4*share), 3)]++
	}
	// That none of the samples is within 0.2 % of an end has odds of e^-40.
	require.Less(t, float64(least)-float64(lo), width*0.002, "the low end is never drawn")
	require.Less(t, float64(hi)-float64(greatest), width*0.002, "the high end is never drawn")
	require.InDelta(t, 0.5, sum/samples, 7/math.Sqrt(12*samples), "mean, as a share of the range")
	for i, n := range quarters {
		require.InDelta(t, samples/4, n, 7*math.Sqrt(samples*3.0/16), "quarter %d", i)
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

const (
	maxWait = time.Duration(math.MaxInt64)
	minWait = time.Duration(math.MinInt64)
)

// http2Error is like net/http's own error for a stream, whose type is not
// exported: it converts to any struct of the same fields.
type http2Error struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e http2Error) Error() string {
	return fmt.Sprintf("stream error: stream ID %d; code %d", e.StreamID, e.Code)
}

func (e http2Error) As(target any) bool {
	dst, src := reflect.ValueOf(target).Elem(), reflect.ValueOf(e)
	if dst.Kind() != reflect.Struct || !src.CanConvert(dst.Type()) {
		return false
	}
	dst.Set(src.Convert(dst.Type()))
	return true
}

// serverAnswering starts a server that answers with these statuses in turn, and
// then with the last one forever.
func serverAnswering(statuses ...int) *httptest.Server {
	var requests atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1))
		w.WriteHeader(statuses[min(n, len(statuses))-1])
	}))
}

// serverLimiting starts a server that answers a first request with this credential, and
// has then nothing left for the credential for a second. It refuses what comes sooner.
func serverLimiting(credential string) *httptest.Server {
	var until atomic.Pointer[time.Time]
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != credential {
			return
		}
		if end := until.Load(); end != nil && time.Now().Before(*end) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		end := time.Now().Add(time.Second)
		until.Store(&end)
		w.Header().Set("RateLimit", `"default";r=0;t=1`)
	}))
}

// serverCutting starts a server that has a million bytes. It breaks off in the middle of its
// first answers.
func serverCutting(answers int64) *httptest.Server {
	content := strings.NewReader(strings.Repeat("0123456789", 100_000))
	var requests atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) <= answers {
			w = &cutWriter{w, content.Size() / 2}
		}
		w.Header().Set("Etag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(content, 0, content.Size()))
	}))
	srv.Config.ErrorLog = discardLog
	srv.Start()
	return srv
}

// cutWriter breaks the connection off instead of writing more than left bytes.
type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (w *cutWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p[:min(int64(len(p)), w.left)])
	w.left -= int64(n)
	if n < len(p) {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
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
