package retryhttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/httperr"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// buffers is a Policy that buffers bodies as long as the object, and retries at once.
var buffers = retryhttp.Policy{
	BufferBytes: int64(len(object)), Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{},
}

func TestBufferedBodyThatBreaksOffIsRetried(t *testing.T) {
	for name, header := range map[string][]string{
		"length known":   {"Content-Length", "36"},
		"length unknown": nil,
	} {
		t.Run(name, func(t *testing.T) {
			var retries, judged []retryhttp.Attempt
			p := buffers
			p.OnRetry = func(a retryhttp.Attempt) { retries = append(retries, a) }
			p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
				judged = append(judged, a)
				return retryhttp.Classify(a)
			}
			base := script.New(sends(200, object[:9], errLost, header...), sends(200, "", errLost, header...),
				sends(200, object, io.EOF, header...))
			resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, object, string(got))
			assert.Equal(t, 3, retryhttp.OutcomeOf(resp).Attempts)

			require.Len(t, retries, 2)
			for _, a := range append(retries, judged[:2]...) {
				assert.Equal(t, errLost, a.Err)
				assert.Nil(t, a.Response)
				assert.Nil(t, a.Body)
			}
			require.Len(t, judged, 3)
			assert.Equal(t, object, string(judged[2].Body))
			assert.Same(t, resp, judged[2].Response)
		})
	}
}

func TestClassifyLooksIntoABufferedBody(t *testing.T) {
	p := buffers
	p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		if strings.Contains(string(a.Body), "SlowDown") {
			return retryhttp.Retryable
		}
		return retryhttp.Classify(a)
	}
	p.OnRetry = func(a retryhttp.Attempt) {
		assert.Equal(t, "<Error>SlowDown</Error>", string(a.Body))
		read, err := io.ReadAll(a.Response.Body)
		assert.NoError(t, err)
		assert.Equal(t, string(a.Body), string(read))
	}
	base := script.New(sends(200, "<Error>SlowDown</Error>", io.EOF), sends(200, "<Result/>", io.EOF))
	got, err := download(t, base, p)
	require.NoError(t, err)
	assert.Equal(t, "<Result/>", got)
	assert.Len(t, base.Requests(), 2)
}

// The caller gets as much as without BufferBytes: the response, what came, and the error.
func TestBufferedBodyThatBreaksOffIsHandedOverAtTheEnd(t *testing.T) {
	gone := errors.New("gone")
	for name, tc := range map[string]struct {
		method   string
		edit     func(*retryhttp.Policy)
		stop     retryhttp.Stop
		attempts int
		failure  error
	}{
		"attempts": {"GET", func(p *retryhttp.Policy) { p.MaxAttempts = 3 }, retryhttp.StopAttempts, 3, errLost},
		"once":     {"GET", func(p *retryhttp.Policy) { p.MaxAttempts = 1 }, retryhttp.StopAttempts, 1, errLost},
		"POST":     {"POST", func(p *retryhttp.Policy) { p.RetryUnprocessed = true }, retryhttp.StopNotIdempotent, 1, errLost},
		"budget":   {"GET", func(p *retryhttp.Policy) { p.Budget = &countingBudget{refuse: true} }, retryhttp.StopBudget, 1, errLost},
		"final": {"GET", func(p *retryhttp.Policy) {
			p.Classify = func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Final }
		}, retryhttp.StopFinal, 1, errLost},
		"a refused stream": {"POST", func(p *retryhttp.Policy) {
			p.RetryUnprocessed = true
			p.Classify = func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Unprocessed }
		}, retryhttp.StopNotIdempotent, 1, httperr.HTTP2{StreamID: 1, Code: 7}},
		"permanent": {"GET", func(p *retryhttp.Policy) {}, retryhttp.StopFinal, 1, retryhttp.Permanent(gone)},
	} {
		t.Run(name, func(t *testing.T) {
			budget := &countingBudget{}
			p := buffers
			p.Budget = budget
			tc.edit(&p)
			var done retryhttp.Attempt
			p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
				done = a
				assert.Equal(t, tc.stop, o.Stop)
			}
			base := script.New(sends(200, object[:9], tc.failure, "Content-Length", "36", "Custom", "kept"))
			req := get(t, t.Context())
			req.Method = tc.method
			resp, err := retryhttp.New(base, p).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, "kept", resp.Header.Get("Custom"))
			assert.EqualValues(t, 36, resp.ContentLength)
			for range 2 {
				got, err := io.ReadAll(resp.Body)
				assert.Equal(t, tc.failure, err)
				assert.Contains(t, []string{object[:9], ""}, string(got))
			}
			require.NoError(t, resp.Body.Close())
			o := retryhttp.OutcomeOf(resp)
			assert.Equal(t, tc.stop, o.Stop)
			assert.Equal(t, tc.attempts, o.Attempts)
			assert.Len(t, base.Requests(), tc.attempts)
			assert.Equal(t, tc.failure, done.Err)
			assert.Nil(t, done.Response)
			assert.Zero(t, budget.deposit)
		})
	}
}

// Nothing of a stream is read before the caller reads it.
func TestBufferLeavesStreamsAlone(t *testing.T) {
	ok := func(header ...string) script.Step { return sends(200, object[:9], errLost, header...) }
	of := func(media string) script.Step { return ok("Content-Type", media) }
	for name, tc := range map[string]struct {
		method string
		answer script.Step
	}{
		"HEAD":                     {"HEAD", ok()},
		"CONNECT":                  {"CONNECT", ok()},
		"204":                      {"GET", sends(204, "", errLost)},
		"304":                      {"GET", sends(304, "", errLost)},
		"declared too long":        {"GET", ok("Content-Length", "37")},
		"server-sent events":       {"GET", of("Text/Event-Stream ; charset=utf-8")},
		"motion JPEG":              {"GET", of("multipart/x-mixed-replace; boundary=x")},
		"gRPC":                     {"POST", of("application/grpc")},
		"gRPC with protobuf":       {"POST", of("application/grpc+proto")},
		"gRPC-Web":                 {"POST", of("application/grpc-web-text")},
		"Connect":                  {"POST", of("application/connect+json")},
		"JSON by lines":            {"GET", of("application/x-ndjson")},
		"ndjson":                   {"GET", of("application/ndjson")},
		"jsonl":                    {"GET", of("application/jsonl; charset=utf-8")},
		"text/jsonl":               {"GET", of("text/jsonl")},
		"json-seq":                 {"GET", of("application/json-seq")},
		"stream+json":              {"GET", of("application/stream+json")},
		"jsonlines":                {"GET", of("application/jsonlines")},
		"x-jsonlines":              {"GET", of("application/x-jsonlines")},
		"GeoJSON in sequence":      {"GET", of("application/geo+json-seq")},
		"CBOR in sequence":         {"GET", of("application/cbor-seq")},
		"with a suffix of CBOR":    {"GET", of("application/sensml+cbor-seq")},
		"an event stream of AWS":   {"POST", of("application/vnd.amazon.eventstream")},
		"a terminal of Docker":     {"POST", of("application/vnd.docker.raw-stream")},
		"a log of Docker":          {"GET", of("application/vnd.docker.multiplexed-stream")},
		"a watch of Kubernetes":    {"GET", of("application/json;stream=watch")},
		"a watch, written freely":  {"GET", of(`application/vnd.kubernetes.protobuf; charset=x; Stream = "Watch"`)},
		"GraphQL in parts":         {"POST", of(`multipart/mixed; boundary="-"; deferSpec=20220824`)},
		"a redirect":               {"GET", sends(302, "", errLost, "Location", "/elsewhere", "Content-Length", "9")},
		"a redirect of a method":   {"POST", sends(308, "", errLost, "Location", "/elsewhere")},
		"BufferBytes is negative":  {"GET", ok()},
		"a 200 from POST of a SSE": {"POST", of("text/event-stream")},
	} {
		t.Run(name, func(t *testing.T) {
			p := buffers
			p.MaxAttempts = 1
			if strings.HasPrefix(name, "BufferBytes") {
				p.BufferBytes = -1
			}
			p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { assert.Nil(t, a.Body) }
			req := get(t, t.Context())
			req.Method = tc.method
			resp, err := retryhttp.New(script.New(tc.answer), p).RoundTrip(req)
			require.NoError(t, err)
			assert.IsType(t, &piece{}, resp.Body)
		})
	}
}

// These responses resemble a stream or a redirect, and are neither.
func TestBufferReadsWhatOnlyResemblesAStream(t *testing.T) {
	for name, answer := range map[string]script.Step{
		"JSON":                         sends(200, object, io.EOF, "Content-Type", "application/json"),
		"a list of Kubernetes":         sends(200, object, io.EOF, "Content-Type", "application/json;stream=list"),
		"parts of a mail":              sends(200, object, io.EOF, "Content-Type", "multipart/mixed; boundary=deferSpec"),
		"a manifest of Docker":         sends(200, object, io.EOF, "Content-Type", "application/vnd.docker.distribution.manifest.v2+json"),
		"a choice":                     sends(300, object, io.EOF),
		"a creation with its Location": sends(201, object, io.EOF, "Location", "/new"),
		"without a type":               sends(200, object, io.EOF),
	} {
		t.Run(name, func(t *testing.T) {
			p := buffers
			p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { assert.Equal(t, object, string(a.Body)) }
			_, err := download(t, script.New(answer), p)
			require.NoError(t, err)
		})
	}
}

func TestBufferLeavesA101Alone(t *testing.T) {
	c := &conn{Reader: strings.NewReader("x")}
	resp, err := retryhttp.New(script.New(script.Respond(101, c)), buffers).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.Same(t, c, resp.Body)
}

// The caller of a longer body gets the bytes that were read, then the rest as it comes.
func TestBufferHandsALongerBodyOn(t *testing.T) {
	for _, more := range []int{1, 2, 100_000} {
		text := strings.Repeat("x", len(object)+more)
		for _, end := range []error{io.EOF, errLost} {
			body := &piece{text: text, err: end}
			p := buffers
			p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) {
				assert.Nil(t, a.Body)
				assert.Equal(t, more-1, len(body.text), "as much was left as BufferBytes and a byte leave")
			}
			base := script.New(script.Respond(200, body))
			resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			if end == io.EOF {
				assert.NoError(t, err)
			} else {
				assert.Equal(t, end, err)
			}
			assert.Equal(t, text, string(got))
			assert.Len(t, base.Requests(), 1)
			require.NoError(t, resp.Body.Close())
			assert.EqualValues(t, 1, body.closes.Load())
			_, err = resp.Body.Read(make([]byte, 1))
			assert.Equal(t, http.ErrBodyReadAfterClose, err)
		}
	}
}

// A decompression bomb, and a server that declares much, cost no more than was allowed.
func TestBufferTakesNoMoreMemoryThanAllowed(t *testing.T) {
	const limit = 1 << 20
	p := buffers
	p.BufferBytes = limit
	p.MaxAttempts = 1
	for name, answer := range map[string]script.Step{
		"endless": script.Respond(200, bodies.NewSlow(0)),
		"declared, and not sent": func(req *http.Request) (*http.Response, error) {
			resp, _ := sends(200, "x", errLost)(req)
			resp.ContentLength = limit
			return resp, nil
		},
	} {
		rt := retryhttp.New(script.New(answer), p)
		taken := allocated(func() {
			resp, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		})
		if name == "endless" {
			assert.Less(t, taken, uint64(2.5*limit), "a buffer that doubled")
		} else {
			assert.Less(t, taken, uint64(64<<10))
		}
	}
	p.BufferBytes = 1<<63 - 1
	got, err := download(t, script.New(sends(200, object, io.EOF)), p)
	require.NoError(t, err)
	assert.Equal(t, object, got)
}

// A few KiB of gzip may be 8 MiB of zeros. The bound is on the decompressed bytes.
func TestBufferTakesNoMoreOfWhatGzipHidesThanAllowed(t *testing.T) {
	const limit, zeros = 64 << 10, 8 << 20
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.CopyN(z, zeroReader{}, zeros)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}))
	defer stop()
	p := buffers
	p.BufferBytes = limit
	rt := retryhttp.New(base, p)
	taken := allocated(func() {
		resp, err := rt.RoundTrip(getURL(t, "http://server.example/"))
		require.NoError(t, err)
		require.True(t, resp.Uncompressed)
		require.NoError(t, resp.Body.Close())
	})
	assert.Less(t, taken, uint64(1<<20))
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// The object fits, however it is cut into Reads, and however the end comes.
func TestBufferReadsWhatFits(t *testing.T) {
	for size := range len(object) + 3 {
		for _, together := range []bool{false, true} {
			text := strings.Repeat("x", size)
			rest := text
			body := &bodies.Hooked{OnRead: func(b []byte) (int, error) {
				n := copy(b[:min(len(b), 5)], rest)
				if rest = rest[n:]; rest == "" && together || n == 0 {
					return n, io.EOF
				}
				return n, nil
			}}
			p := buffers
			var whole bool
			p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { whole = a.Body != nil && string(a.Body) == text }
			got, err := download(t, script.New(script.Respond(200, body)), p)
			require.NoError(t, err)
			assert.Equal(t, text, got)
			assert.Equal(t, size <= len(object), whole)
			assert.EqualValues(t, 1, body.Closes.Load())
		}
	}
}

// A 206 without a length ends where its range does, and not before.
func TestBufferedRangeThatEndsEarlyIsRetried(t *testing.T) {
	part := func(text string) script.Step { return sends(206, text, io.EOF, "Content-Range", "bytes 5-14/36") }
	base := script.New(part(object[5:14]), part(object[5:15]))
	got, err := download(t, base, buffers)
	require.NoError(t, err)
	assert.Equal(t, object[5:15], got)
	assert.Len(t, base.Requests(), 2)

	base = script.New(part(object[5:14]))
	got, err = download(t, base, buffers)
	assert.Equal(t, io.ErrUnexpectedEOF, err)
	assert.Equal(t, object[5:14], got)
	assert.Len(t, base.Requests(), 4)
}

// The buffer grows with what comes, and begins with what is declared.
func TestBufferGrows(t *testing.T) {
	for _, size := range []int{4095, 4096, 4097, 8192, 32<<10 - 1, 32 << 10, 32<<10 + 1, 300_000, 1 << 20} {
		text := strings.Repeat("0123456789", size/10+1)[:size]
		for _, declared := range []bool{false, true} {
			p := buffers
			p.BufferBytes = 1 << 20
			p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { assert.Equal(t, text, string(a.Body)) }
			var header []string
			if declared {
				header = []string{"Content-Length", strconv.Itoa(size)}
			}
			got, err := download(t, script.New(sends(200, text, io.EOF, header...)), p)
			require.NoError(t, err)
			assert.Equal(t, text, got)
		}
	}
}

// A body of a declared length costs itself, and the 32 KiB that are allocated before it is believed.
func TestBufferOfADeclaredLengthIsMadeOnce(t *testing.T) {
	for _, size := range []int{1 << 10, 200_000, 1 << 20, 10 << 20} {
		p := buffers
		p.BufferBytes = int64(2 * size)
		answer := sends(200, strings.Repeat("x", size), io.EOF, "Content-Length", strconv.Itoa(size))
		rt := retryhttp.New(script.New(answer), p)
		req := get(t, t.Context())
		var resp *http.Response
		bytes := allocated(func() { resp, _ = rt.RoundTrip(req) })
		t.Logf("%d bytes: %.3f of them", size, float64(bytes)/float64(size))
		assert.Less(t, bytes, uint64(size)+(32<<10)+(16<<10), size) // and what a page and a call take
		if size >= 1<<20 {
			assert.Less(t, bytes, uint64(1.05*float64(size)), size)
		}
		require.NoError(t, resp.Body.Close())
	}
}

// A server may declare any length, and send little of it.
func TestBufferBelievesADeclaredLengthStepByStep(t *testing.T) {
	p := buffers
	p.BufferBytes = 1<<63 - 1
	p.MaxAttempts = 1
	for _, tc := range []struct {
		sent, most int
	}{{1000, 48 << 10}, {40 << 10, 66 << 20}} {
		answer := func(req *http.Request) (*http.Response, error) {
			resp, _ := sends(200, strings.Repeat("x", tc.sent), errLost)(req)
			resp.ContentLength = 1 << 62
			return resp, nil
		}
		rt := retryhttp.New(script.New(answer), p)
		req := get(t, t.Context())
		var resp *http.Response
		bytes := allocated(func() { resp, _ = rt.RoundTrip(req) })
		assert.Less(t, bytes, uint64(tc.most), tc.sent)
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, errLost, err)
		assert.Len(t, got, tc.sent)
	}
}

// closable is a body that may be closed while it is read, as net/http's own may.
type closable struct{ piece }

func (*closable) ClosableWhileRead() bool { return true }

// A body that has broken off is closed before the next attempt. A body that came whole is closed
// at once if that cannot take long, and otherwise by the drain or the caller.
func TestBufferedBodyIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, foreign := &closable{piece{text: "busy", err: io.EOF}}, &piece{text: "busy", err: io.EOF}
		broken := &piece{text: "half", err: errLost}
		p := buffers
		p.OnRetry = func(a retryhttp.Attempt) {
			switch a.Number {
			case 1:
				assert.EqualValues(t, 1, whole.closes.Load())
			case 2:
				assert.EqualValues(t, 0, foreign.closes.Load())
			case 3:
				assert.EqualValues(t, 1, foreign.closes.Load())
				assert.EqualValues(t, 1, broken.closes.Load())
			}
		}
		last := &piece{text: "done", err: io.EOF}
		base := script.New(
			script.Respond(503, whole), script.Respond(503, foreign), script.Respond(200, broken), script.Respond(200, last),
		)
		got, err := download(t, base, p)
		require.NoError(t, err)
		assert.Equal(t, "done", got)
		for _, closes := range []*atomic.Int32{&whole.closes, &foreign.closes, &broken.closes, &last.closes} {
			assert.EqualValues(t, 1, closes.Load())
		}
	})
}

// More than a hundred Reads bring nothing, and no two in a row.
func TestBufferTakesEmptyReads(t *testing.T) {
	text := strings.Repeat("x", 200)
	rest, empty := text, true
	body := &bodies.Hooked{OnRead: func(b []byte) (int, error) {
		if rest == "" {
			return 0, io.EOF
		}
		if empty = !empty; empty {
			return 0, nil
		}
		n := copy(b[:1], rest)
		rest = rest[n:]
		return n, nil
	}}
	p := buffers
	p.BufferBytes = 200
	p.MaxAttempts = 1
	got, err := download(t, script.New(script.Respond(200, body)), p)
	require.NoError(t, err)
	assert.Equal(t, text, got)
}

func TestAttemptTimeoutEndsWithABufferedBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := buffers
		p.AttemptTimeout = 2500 * time.Millisecond
		p.MaxAttempts = 2
		base := script.New(func(req *http.Request) (*http.Response, error) {
			body, n := &bodies.Hooked{}, 0
			body.OnRead = func(b []byte) (int, error) {
				select {
				case <-time.After(time.Second):
					n++
					return copy(b, object[n-1:n]), nil
				case <-req.Context().Done():
					assert.EqualError(t, context.Cause(req.Context()), "no whole response body within 2.5s")
					return 0, req.Context().Err()
				}
			}
			return script.Respond(200, body)(req)
		})
		began := time.Now()
		resp, err := retryhttp.New(base, p).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 5*time.Second, time.Since(began))
		assert.Equal(t, retryhttp.StopAttempts, retryhttp.OutcomeOf(resp).Stop)
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, "01", string(got))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualError(t, err, "no whole response body within 2.5s")
		var timeout interface{ Timeout() bool }
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout())
	})
}

func TestBufferedSuccessIsDepositedIfItCameWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		answer    script.Step
		deposited int
	}{
		"whole":  {sends(200, object, io.EOF), 1},
		"longer": {sends(200, object+object, errLost), 1},
		"broken": {sends(200, object, errLost), 0},
	} {
		budget := &countingBudget{}
		p := buffers
		p.Budget = budget
		_, _ = download(t, script.New(tc.answer), p)
		assert.Equal(t, tc.deposited, budget.deposit, name)
	}
}

func TestBufferGivesUpOnABodyOfEmptyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := buffers
		p.MaxAttempts = 1
		body := &bodies.Hooked{OnRead: func([]byte) (int, error) { return 0, nil }}
		_, err := download(t, script.New(script.Respond(200, body)), p)
		assert.Equal(t, io.ErrNoProgress, err)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

func TestPanicOfABufferedBodySurfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, timeout := range []time.Duration{0, time.Minute} {
			body := &bodies.Hooked{OnRead: func([]byte) (int, error) { panic("no") }}
			p := buffers
			p.AttemptTimeout = timeout
			var sent *http.Request
			base := script.Step(func(req *http.Request) (*http.Response, error) {
				sent = req
				return script.Respond(200, body)(req)
			})
			ctx, cancel := context.WithCancel(t.Context())
			assert.PanicsWithValue(t, "no", func() { _, _ = retryhttp.New(base, p).RoundTrip(get(t, ctx)) })
			assert.EqualValues(t, 1, body.Closes.Load())
			if timeout > 0 {
				assert.Error(t, sent.Context().Err())
			}
			cancel()
		}
	})
}

// The bytes that a resumption has brought are not lost if it breaks off.
func TestWholeBodyIsNotWrappedForResume(t *testing.T) {
	p := buffers
	whole := sends(200, object, io.EOF, "Content-Length", "36", "Etag", `"v1"`)
	bare, err := retryhttp.New(script.New(whole), p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	p.Resume = true
	resp, err := retryhttp.New(script.New(whole), p).RoundTrip(get(t, t.Context()))
	require.NoError(t, err)
	assert.IsType(t, bare.Body, resp.Body)
}

func TestResumptionIsNotBuffered(t *testing.T) {
	p := resumes
	p.BufferBytes = 30
	p.OnRetry = func(a retryhttp.Attempt) { assert.Nil(t, a.Body) }
	base := script.New(cutAfter(10), restUntil(10, 20, errLost), script.Status(503), rest(20))
	got, err := download(t, base, p)
	require.NoError(t, err)
	assert.Equal(t, object, got)
	assert.Equal(t, []string{"", "bytes=10-35", "bytes=20-35", "bytes=20-35"}, ranges(base))
}

func TestAttemptTimeoutEndsTheBufferingOfABaseThatLostTheContext(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, base, stop := memnet.ServeProtocol(stalling(9), http2)
			defer stop()
			forgetful := script.Step(func(req *http.Request) (*http.Response, error) {
				return base.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
			})
			p := buffers
			p.AttemptTimeout, p.MaxAttempts = time.Second, 1
			began := time.Now()
			got, err := download(t, forgetful, p)
			assert.Equal(t, time.Second, time.Since(began))
			assert.EqualError(t, err, "no whole response body within 1s")
			assert.Equal(t, object[:9], got)
		})
	}
}

// A 429 is not ambiguous, though its body breaks off.
func TestRefusalThatBreaksOffIsNotAmbiguous(t *testing.T) {
	for code, ambiguous := range map[int]bool{429: false, 408: false, 503: true, 200: true} {
		base := script.New(sends(code, "x", errLost), script.Status(404))
		req := get(t, t.Context())
		req.Method = http.MethodDelete
		resp, err := retryhttp.New(base, buffers).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, ambiguous, retryhttp.OutcomeOf(resp).Ambiguous, code)
	}
}
