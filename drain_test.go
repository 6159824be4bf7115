package retryhttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDrainIsBounded(t *testing.T) {
	type testCase struct {
		interval time.Duration // between bytes of the failed response
		length   int64         // that is declared; 0: none
		took     time.Duration // by the failed attempt
		backoff  time.Duration
		elapsed  time.Duration // MaxElapsed
		wait     time.Duration // that came of it
		bytes    int64         // that were read, at most
		stuck    bool          // a Read is under way at the end
	}
	inBubbles(t, map[string]testCase{
		"an endless body costs 64 KiB":          {0, 0, 0, time.Second, 0, time.Second, 64 << 10, false},
		"64 KiB are read":                       {0, 64 << 10, 0, 0, 0, 0, 64 << 10, false},
		"a longer body is not":                  {0, 64<<10 + 1, 0, 0, 0, 0, 0, false},
		"nothing is read without a moment left": {0, 0, time.Second, 0, time.Second, time.Second, 0, false},
		"a stall costs nothing of a long wait":  {time.Hour, 0, 0, time.Second, 0, time.Second, 1, true},
		"a stall costs 250 ms of a short one":   {time.Hour, 0, 0, ms, 0, 250 * ms, 1, true},
		"a stall does not use up the deadline":  {time.Hour, 0, 0, ms, 100 * ms, 10 * ms, 1, true},
		// The Read that is under way then brings the ninth byte.
		"a trickle ends after 250 ms": {30 * ms, 0, 0, time.Second, 0, time.Second, 9, false},
	}, func(t *testing.T, c testCase) {
		body := bodies.NewSlow(c.interval)
		base := script.New(func(req *http.Request) (*http.Response, error) {
			time.Sleep(c.took)
			resp, err := script.Respond(503, body)(req)
			if c.length > 0 {
				resp.ContentLength = c.length
			}
			return resp, err
		}, script.Status(200))
		p := retryhttp.Policy{Backoff: retryhttp.Constant(c.backoff), MaxElapsed: c.elapsed}
		resp := opened(t, base, p)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, []time.Duration{c.wait}, base.Waits())
		synctest.Wait()
		if c.stuck {
			assert.Zero(t, body.Closes.Load(), "not beside a Read")
			time.Sleep(c.interval)
		}
		assert.Equal(t, int32(1), body.Closes.Load())
		assert.Equal(t, c.bytes, body.Bytes.Load())
	})
}

// A retry without a backoff waits for the end of a drain, and no longer.
func TestDrainEndsTheWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &bodies.Hooked{OnRead: func([]byte) (int, error) { time.Sleep(100 * ms); return 0, io.EOF }}
		base := script.New(script.Respond(503, body), script.Status(200))
		require.NoError(t, opened(t, base, noWait).Body.Close())
		assert.Equal(t, []time.Duration{100 * ms}, base.Waits())
	})
}

// The server of a stalled response sees that the connection was closed.
func TestDrainClosesNetHTTPsBodyBesideItsRead(t *testing.T) {
	zipped := new(bytes.Buffer)
	w := gzip.NewWriter(zipped)
	_, _ = io.WriteString(w, "all of the answer, and then nothing more comes")
	_ = w.Flush()
	for name, c := range map[string]struct {
		encoding string
		body     string
		timeout  time.Duration
	}{
		"plain":               {"identity", "a part", 0},
		"with AttemptTimeout": {"identity", "a part", time.Hour},
		"gzip":                {"gzip", zipped.String(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var ended time.Time
			answers := play(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", c.encoding)
				stalls(503, c.body)(w, r)
				ended = time.Now()
			}, 200)
			overBoth(t, answers, func(t *testing.T, base http.RoundTripper, srv *server) {
				began := time.Now()
				p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second), AttemptTimeout: c.timeout}
				_, err := download(t, base, p)
				require.NoError(t, err)
				assert.Len(t, srv.got, 2)
				time.Sleep(time.Minute) // what net/http keeps for a closed stream
				synctest.Wait()
				assert.Equal(t, 250*ms, ended.Sub(began))
			})
		})
	}
}

func TestDrainSurvivesAPanicOfRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &bodies.Hooked{OnRead: func([]byte) (int, error) { panic("a decoder's bug") }}
		late := &bodies.Hooked{OnRead: func([]byte) (int, error) { time.Sleep(time.Minute); panic("a decoder's bug") }}
		base := script.New(script.Respond(503, body), script.Respond(503, late), script.Status(200))
		resp := opened(t, base, noWait)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 200, resp.StatusCode)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 1, body.Closes.Load())
		assert.EqualValues(t, 1, late.Closes.Load())
	})
}

// A Close that frees no Read may hang itself. So does net/http's own over a channel of x/crypto/ssh whose other
// end is gone.
func TestDrainOfABodyThatHangsDoesNotHoldUpTheCaller(t *testing.T) {
	inBubbles(t, map[string]bool{"closable": true, "not closable": false}, func(t *testing.T, closable bool) {
		body := &mayClose{closable: closable, freed: make(chan struct{})}
		body.OnRead = func([]byte) (int, error) { <-body.freed; return 0, io.EOF }
		body.OnClose = func() { <-body.freed }
		base := script.New(script.Respond(503, body), script.Respond(503, body), script.Status(200))
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Second)}
		resp := opened(t, base, p)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, []time.Duration{time.Second, time.Second}, base.Waits())
		close(body.freed)
	})
}

func TestResponseBodyIsWrappedOnlyWithAttemptTimeout(t *testing.T) {
	body := bodies.NewSlow(0)
	resp := opened(t, script.New(script.Respond(200, body)), retryhttp.Policy{})
	assert.Same(t, body, resp.Body)

	p := retryhttp.Policy{AttemptTimeout: time.Minute}
	resp = opened(t, script.New(script.Respond(200, body)), p)
	assert.NotSame(t, body, resp.Body)
	_, writes := resp.Body.(io.Writer)
	assert.False(t, writes)
	require.NoError(t, resp.Body.Close())

	// Callers compare a body with http.NoBody.
	for _, p := range []retryhttp.Policy{{AttemptTimeout: time.Minute}, {StallTimeout: time.Minute}, {Resume: true}} {
		resp = opened(t, script.New(script.Respond(200, http.NoBody)), p)
		assert.Equal(t, http.NoBody, resp.Body)
	}
}

// conn is a body that is a connection, as a 101's is.
type conn struct {
	io.Reader
	strings.Builder
	closed bool
}

func (c *conn) Close() error { c.closed = true; return nil }

// At the end of a Read, the server may have closed its half alone.
func TestResponseBodyOfA101StaysAConnection(t *testing.T) {
	for _, p := range []retryhttp.Policy{{}, {AttemptTimeout: time.Minute}, {Resume: true}} {
		c := &conn{Reader: strings.NewReader("from the server")}
		base := script.New(script.Respond(101, c))
		resp := opened(t, base, p)
		rwc, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok)
		read, err := io.ReadAll(rwc)
		require.NoError(t, err)
		assert.Equal(t, "from the server", string(read))
		assert.NoError(t, base.Requests()[0].Context().Err())
		_, err = io.WriteString(rwc, "to the server")
		require.NoError(t, err)
		assert.Equal(t, "to the server", c.String())
		require.NoError(t, rwc.Close())
		assert.True(t, c.closed)
		assert.Equal(t, p.AttemptTimeout > 0, base.Requests()[0].Context().Err() != nil)
	}
}

// Over HTTP/2 a server may end its answer, and still read the request. A base may send the request's own body or a
// copy that GetBody returns, and signers look at a body before another is sent. Each case is what happens in turn:
// the context lives until the last of it.
func TestAttemptContextLastsAsLongAsTheResponseAndTheUpload(t *testing.T) {
	reader := func() *strings.Reader { return strings.NewReader("upload") }
	requests := map[string]func(*http.Request){
		"large":                          func(req *http.Request) { req.ContentLength = 64 << 10 },
		"small, of unknown length":       func(req *http.Request) { req.ContentLength = -1 },
		"small, from a stream":           func(req *http.Request) { req.GetBody = nil },
		"small, from elsewhere":          func(req *http.Request) { req.Body = io.NopCloser(io.LimitReader(reader(), 6)) },
		"small, from elsewhere, WriteTo": func(req *http.Request) { req.Body = io.NopCloser(bufio.NewReader(reader())) },
		"small, of another type":         func(req *http.Request) { req.Body = struct{ io.ReadCloser }{req.Body} },
	}
	for name, happens := range map[string]string{
		"the response is read first":                           "resp-read own-close",
		"the response is closed first":                         "resp-close own-close",
		"the upload is sent first":                             "own-close resp-close",
		"sent first, and then read":                            "own-close resp-read",
		"the last bytes wait to be sent":                       "resp-read own-read own-close",
		"they wait for the response":                           "own-read resp-read own-close",
		"a signer opens copies in vain":                        "open open copy-close resp-read own-close",
		"a signer closes what it has read":                     "open copy-read copy-close own-read resp-read own-close",
		"a signer closes it when the other has been read":      "open copy-read own-read copy-close resp-read own-close",
		"a signer forgets it":                                  "open copy-read copy-read own-read resp-read own-close",
		"a signer closes what it has read, and a copy is sent": "open copy-read copy-close open copy-read resp-read copy-close",
		"a copy is sent, and the own body is closed before":    "open own-close copy-read resp-read copy-close",
		"a copy is sent, and the own body is closed meanwhile": "open copy-read own-close copy-read resp-read copy-close",
		"it is sent again":                                     "own-begin own-close open copy-read resp-read copy-close",
		"it is sent again, and the own body is closed twice":   "own-begin own-close open copy-read own-close resp-read copy-close",
		"a signer closes its copy when another was sent":       "open sign own-begin own-close open copy-read sign-close resp-read copy-close",
		"it is sent again, from a copy that was opened before": "own-begin open own-close copy-read resp-read copy-close",
		"it is sent again, and the own body is closed late":    "own-begin open copy-begin own-close resp-read copy-close",
		"a copy is sent, and the own body forgotten":           "open copy-read copy-close resp-close",
		"a copy is opened in vain meanwhile":                   "own-begin open copy-close own-close resp-close",
	} {
		for kind, set := range requests {
			if strings.Contains(happens, "copy-read") && kind != "large" {
				continue // a stream that has been read to its end gives no copy
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				base := script.New(script.Respond(200, io.NopCloser(strings.NewReader("answer"))))
				req := uploadOf(t, reader())
				set(req)
				resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}).RoundTrip(req)
				require.NoError(t, err)
				attempt := base.Requests()[0]
				var body, signed io.ReadCloser // the newest copy, and a copy that a signer reads
				read := func(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
				steps := map[string]func(){
					"resp-read":  func() { read(resp.Body) },
					"resp-close": func() { _ = resp.Body.Close() },
					"own-begin":  func() { _, _ = attempt.Body.Read(make([]byte, 1)) },
					"own-read":   func() { read(attempt.Body) },
					"own-close":  func() { _ = attempt.Body.Close() },
					"open": func() {
						require.NotNil(t, attempt.GetBody)
						body, err = attempt.GetBody()
						require.NoError(t, err)
					},
					"sign": func() {
						signed = body
						read(signed)
					},
					"sign-close": func() { _ = signed.Close() },
					"copy-begin": func() { _, _ = body.Read(make([]byte, 1)) },
					"copy-read":  func() { read(body) },
					"copy-close": func() { _ = body.Close() },
				}
				for step := range strings.FieldsSeq(happens) {
					assert.NoError(t, attempt.Context().Err(), "before %s", step)
					steps[step]()
				}
				assert.Error(t, attempt.Context().Err())
			})
		}
	}
}
