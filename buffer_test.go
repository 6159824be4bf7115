package retryhttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// buffers is a Policy that buffers bodies as long as the object, and retries at once.
var buffers = retryhttp.Policy{
	BufferBytes: int64(len(object)), Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{},
}

func TestBufferedBodyThatBreaksOffIsRetried(t *testing.T) {
	var retries, judged []retryhttp.Attempt
	p := buffers
	p.OnRetry = func(a retryhttp.Attempt) { retries = append(retries, a) }
	p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
		judged = append(judged, a)
		return retryhttp.Classify(a)
	}
	length := []string{"Content-Length", "36"}
	base := script.New(sends(200, object[:9], errLost), sends(200, "", errLost, length...), sends(200, object, io.EOF, length...))
	resp := opened(t, base, p)
	requireBodyIs(t, object, resp)
	assert.Equal(t, 3, retryhttp.OutcomeOf(resp).Attempts)
	require.Len(t, retries, 2)
	require.Len(t, judged, 3)
	for _, a := range append(retries, judged[:2]...) {
		assert.Equal(t, errLost, a.Err)
		assert.Nil(t, a.Response)
		assert.Nil(t, a.Body)
	}
	assert.Equal(t, object, string(judged[2].Body))
	assert.Same(t, resp, judged[2].Response)
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
	requireBodyIs(t, "<Result/>", opened(t, base, p))
	assert.Len(t, base.Requests(), 2)
}

// The caller gets as much as without BufferBytes: the response, what came, and the error.
func TestBufferedBodyThatBreaksOffIsHandedOverAtTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		method   string
		classify func(retryhttp.Attempt) retryhttp.Class
		stop     retryhttp.Stop
		attempts int
		failure  error
	}{
		"attempts":         {"GET", nil, retryhttp.StopAttempts, 3, errLost},
		"final":            {"GET", always(retryhttp.Final), retryhttp.StopFinal, 1, errLost},
		"a refused stream": {"POST", always(retryhttp.Unprocessed), retryhttp.StopNotIdempotent, 1, resetStream(7)},
		"permanent":        {"GET", nil, retryhttp.StopFinal, 1, retryhttp.Permanent(errors.New("gone"))},
		"budget":           {"GET", nil, retryhttp.StopBudget, 1, errLost},
	} {
		t.Run(name, func(t *testing.T) {
			budget := &countingBudget{refuse: tc.stop == retryhttp.StopBudget}
			p := buffers
			p.Backoff = retryhttp.Constant(ms) // in which a refused request keeps its response
			p.MaxAttempts, p.RetryUnprocessed, p.Classify, p.Budget = 3, true, tc.classify, budget
			var done retryhttp.Attempt
			p.OnDone = func(a retryhttp.Attempt, o retryhttp.Outcome) {
				done = a
				assert.Equal(t, tc.stop, o.Stop)
			}
			base := script.New(sends(200, object[:9], tc.failure, "Content-Length", "36", "Custom", "kept"))
			resp := responseTo(t, base, p, requestOf(t, tc.method, nil))
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, "kept", resp.Header.Get("Custom"))
			assert.EqualValues(t, 36, resp.ContentLength)
			for _, want := range []string{object[:9], ""} {
				got, err := io.ReadAll(resp.Body)
				assert.Equal(t, tc.failure, err)
				assert.Equal(t, want, string(got))
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

// Nothing of a stream is read before the caller reads it. Some responses resemble a stream or a redirect,
// and are neither.
func TestBufferLeavesStreamsAlone(t *testing.T) {
	type answer struct {
		method string
		step   script.Step
		read   bool
	}
	answers := map[string]answer{
		"HEAD":                         {"HEAD", sends(200, object, errLost), false},
		"CONNECT":                      {"CONNECT", sends(200, object, errLost), false},
		"101":                          {"GET", sends(101, object, errLost), false},
		"204":                          {"GET", sends(204, "", errLost), false},
		"304":                          {"GET", sends(304, "", errLost), false},
		"declared too long":            {"GET", sends(200, object, errLost, "Content-Length", "37"), false},
		"a redirect":                   {"POST", sends(308, "", errLost, "Location", "/elsewhere"), false},
		"a choice":                     {"GET", sends(300, object, io.EOF), true},
		"a creation with its Location": {"POST", sends(201, object, io.EOF, "Location", "/new"), true},
	}
	for read, types := range map[bool][]string{
		false: {
			"Text/Event-Stream ; charset=utf-8", "multipart/x-mixed-replace", "application/vnd.amazon.eventstream",
			"application/grpc", "application/grpc+proto", "application/grpc-web-text", "application/connect+json",
			"application/x-ndjson", "application/ndjson", "application/jsonl; charset=utf-8", "application/jsonlines",
			"application/x-jsonlines", "application/json-seq", "application/cbor-seq", "application/stream+json",
			"application/geo+json-seq", "application/sensml+cbor-seq", `application/json; charset=x; Stream = "Watch"`,
			"application/vnd.docker.raw-stream", "application/vnd.docker.multiplexed-stream",
			`multipart/mixed; boundary="-"; deferSpec=20220824`, "multipart/mixed; boundary=a==; deferSpec=20220824",
			"application/json;stream=watch;x", "application/json; stream=watch; stream=list",
		},
		true: {
			"application/json;stream=list", "application/json;list=watch", "multipart/mixed; boundary=deferSpec",
			"application/json; deferSpec=20220824",
			"application/vnd.docker.distribution.manifest.v2+json",
		},
	} {
		for _, media := range types {
			answers[media] = answer{"GET", sends(200, object, io.EOF, "Content-Type", media), read}
		}
	}
	for name, a := range answers {
		t.Run(name, func(t *testing.T) {
			p := buffers
			p.MaxAttempts = 1
			p.OnDone = func(done retryhttp.Attempt, _ retryhttp.Outcome) { assert.Equal(t, a.read, done.Body != nil) }
			resp := responseTo(t, script.New(a.step), p, requestOf(t, a.method, nil))
			_, left := resp.Body.(*piece)
			assert.Equal(t, a.read, !left)
		})
	}
}

// The caller of a longer body gets the bytes that were read, then the rest as it comes.
func TestBufferHandsALongerBodyOn(t *testing.T) {
	for _, more := range []int{1, 2, 100_000} {
		text := strings.Repeat("x", len(object)+more)
		for end, want := range map[error]error{io.EOF: nil, errLost: errLost} {
			body := &piece{text: text, err: end}
			p := buffers
			p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) {
				assert.Nil(t, a.Body)
				assert.Equal(t, more-1, len(body.text), "as much was left as BufferBytes and a byte leave")
			}
			base := script.New(script.Respond(200, body))
			resp := opened(t, base, p)
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, want, err)
			assert.Equal(t, text, string(got))
			assert.Len(t, base.Requests(), 1)
			require.NoError(t, resp.Body.Close())
			assert.EqualValues(t, 1, body.closes.Load())
			_, err = resp.Body.Read(make([]byte, 1))
			assert.Equal(t, http.ErrBodyReadAfterClose, err)
		}
	}
}

// memoryOf returns how many bytes it takes to receive a response with BufferBytes.
func memoryOf(t *testing.T, base http.RoundTripper, limit int64) int {
	t.Helper()
	p := buffers
	p.BufferBytes, p.MaxAttempts = limit, 1
	rt, req := retryhttp.New(base, p), get(t, t.Context())
	var resp *http.Response
	taken := allocated(func() { resp, _ = rt.RoundTrip(req) })
	require.NoError(t, resp.Body.Close())
	return int(taken)
}

func TestBufferTakesNoMoreMemoryThanAllowed(t *testing.T) {
	endless := script.Respond(200, bodies.NewSlow(0))
	assert.Less(t, memoryOf(t, endless, 1<<20), 5<<19, "a buffer that doubled")
}

// A few KiB of gzip may be 8 MiB of zeros. The bound is on the decompressed bytes.
func TestBufferTakesNoMoreOfWhatGzipHidesThanAllowed(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.CopyN(z, zeros{}, 8<<20)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "gzip", r.Header.Get("Accept-Encoding"), "net/http undoes it")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}))
	defer stop()
	assert.Less(t, memoryOf(t, base, 64<<10), 1<<20)
}

// A body of a declared length costs itself, and the 32 KiB that are allocated before the length is believed.
// A server may declare any length, and send little of it.
func TestBufferBelievesADeclaredLengthStepByStep(t *testing.T) {
	const first = 32<<10 + 16<<10 // with what a page and a call take
	for _, c := range []struct {
		declared   int64
		sent, most int
		end        error
	}{
		{1 << 10, 1 << 10, 1<<10 + first, io.EOF},
		{200_000, 200_000, 200_000 + first, io.EOF},
		{10 << 20, 10 << 20, 10<<20 + first, io.EOF},
		{1 << 62, 1000, first, errLost},
		{1 << 62, 40 << 10, 66 << 20, errLost},
	} {
		base := sends(200, strings.Repeat("x", c.sent), c.end, "Content-Length", strconv.FormatInt(c.declared, 10))
		taken := memoryOf(t, base, math.MaxInt64)
		for range 2 { // somebody else's goroutine may allocate beside one
			taken = min(taken, memoryOf(t, base, math.MaxInt64))
		}
		assert.Less(t, taken, c.most, "%d bytes of %d", c.sent, c.declared)
	}
}

// The buffer begins with what is declared, and grows with what comes. A body that fits is whole, however
// its end comes.
func TestBufferReadsWhatFits(t *testing.T) {
	const limit = 1 << 20
	readers := []func(io.Reader) io.Reader{iotest.HalfReader, iotest.DataErrReader}
	sizes := []int{0, 1, 4095, 4096, 4097, 8192, 32<<10 - 1, 32 << 10, 32<<10 + 1, 300_000, limit - 1, limit, limit + 1}
	for _, size := range sizes {
		text := strings.Repeat("0123456789", size/10+1)[:size]
		for _, declared := range []int64{-1, int64(size)} {
			for i, reader := range readers {
				body := &bodies.Hooked{OnRead: reader(strings.NewReader(text)).Read}
				p := buffers
				p.BufferBytes = limit
				whole := false
				p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) { whole = a.Body != nil && string(a.Body) == text }
				got, err := download(t, edited(script.Respond(200, body), func(resp *http.Response) {
					resp.ContentLength = declared
				}), p)
				require.NoError(t, err)
				about := fmt.Sprintf("%d bytes, declared %d, reader %d", size, declared, i)
				assert.True(t, text == got, about)
				assert.Equal(t, size <= limit, whole, about)
				assert.EqualValues(t, 1, body.Closes.Load(), about)
			}
		}
	}
}

// A 206 without a length ends where its range does, and not before.
func TestBufferedRangeThatEndsEarlyIsRetried(t *testing.T) {
	part := func(text string) script.Step { return sends(206, text, io.EOF, "Content-Range", "bytes 5-14/36") }
	base := script.New(part(object[5:14]), part(object[5:15]))
	requireBodyIs(t, object[5:15], opened(t, base, buffers))
	assert.Len(t, base.Requests(), 2)

	once := buffers
	once.MaxAttempts = 1
	_, err := download(t, script.New(sends(206, object[5:14], errLost, "Content-Range", "bytes 5-14/36")), once)
	assert.Equal(t, errLost, err, "the cause of the break")

	for _, whole := range []script.Step{
		sends(206, "", io.EOF), // it does not say where it ends
		sends(200, "", io.EOF, "Content-Range", "bytes 5-14/36"),
		func(req *http.Request) (*http.Response, error) { // it has fewer bytes than were sent
			resp, err := sends(206, "", io.EOF, "Content-Range", "bytes 5-14/36")(req)
			resp.Uncompressed = true
			return resp, err
		},
	} {
		requireBodyIs(t, "", opened(t, script.New(whole), once))
	}
}

// A body that came whole is closed at once if that cannot take long, and otherwise by the drain.
func TestBufferedBodyIsClosed(t *testing.T) {
	inBubbles(t, map[string]bool{"at once": true, "by the drain": false}, func(t *testing.T, closable bool) {
		body := &mayClose{Hooked: bodies.Hooked{OnRead: strings.NewReader("busy").Read}, closable: closable}
		p := buffers
		p.OnRetry = func(retryhttp.Attempt) { assert.Equal(t, closable, body.Closes.Load() == 1) }
		_, err := download(t, script.New(script.Respond(503, body), script.Status(200)), p)
		require.NoError(t, err)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

// requireGivenUp requires that an attempt ends whose body brings nothing, again and again.
func requireGivenUp(t *testing.T, p retryhttp.Policy) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		body := &bodies.Hooked{OnRead: func([]byte) (int, error) { reads++; return 0, nil }}
		p.MaxAttempts = 1
		got, err := download(t, script.New(script.Respond(200, body)), p)
		assert.Empty(t, got)
		assert.Equal(t, io.ErrNoProgress, err)
		assert.Equal(t, 100, reads)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

func TestBufferGivesUpOnABodyOfEmptyReads(t *testing.T) { requireGivenUp(t, buffers) }

func TestPeekGivesUpOnABodyOfEmptyReads(t *testing.T) { requireGivenUp(t, peeks) }

// A base may lose the attempt's context. Its body is net/http's all the same.
func TestAttemptTimeoutEndsTheBufferingOfABaseThatLostTheContext(t *testing.T) {
	overBoth(t, play(stalls(200, "a part")), func(t *testing.T, base http.RoundTripper, _ *server) {
		var attempt context.Context
		forgetful := script.Step(func(req *http.Request) (*http.Response, error) {
			attempt = req.Context()
			return base.RoundTrip(req.WithContext(context.WithoutCancel(attempt)))
		})
		p := buffers
		p.AttemptTimeout, p.MaxAttempts = time.Second, 2
		began := time.Now()
		resp := opened(t, forgetful, p)
		assert.Equal(t, 2*time.Second, time.Since(began))
		assert.Equal(t, retryhttp.StopAttempts, retryhttp.OutcomeOf(resp).Stop)
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, "a part", string(got))
		assert.EqualError(t, err, "no whole response body within 1s")
		assert.EqualError(t, context.Cause(attempt), "no whole response body within 1s")
		require.NoError(t, resp.Body.Close())
	})
}

// A base may end the body of an attempt that has timed out as if it were whole. Only a length proves that it is.
func TestBodyThatEndsWithTheAttemptTimeoutIsWholeIfItsLengthSaysSo(t *testing.T) {
	for length, attempts := range map[int64]int{-1: 2, 5: 1} {
		synctest.Test(t, func(t *testing.T) {
			base := script.Step(func(req *http.Request) (*http.Response, error) {
				end := &bodies.Hooked{OnRead: func([]byte) (int, error) { <-req.Context().Done(); return 0, io.EOF }}
				resp := script.Response(req, 200)
				resp.Body, resp.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("whole"), end)), length
				return resp, nil
			})
			p := buffers
			p.AttemptTimeout, p.MaxAttempts = time.Second, 2
			assert.Equal(t, attempts, retryhttp.OutcomeOf(opened(t, base, p)).Attempts, length)
		})
	}
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

func TestWholeBodyIsNotWrappedForResume(t *testing.T) {
	p := buffers
	whole := sends(200, object, io.EOF, "Content-Length", "36", "Etag", `"v1"`)
	bare := opened(t, script.New(whole), p)
	p.Resume = true
	resp := opened(t, script.New(whole), p)
	assert.IsType(t, bare.Body, resp.Body)
}

// A 429 is not ambiguous, though its body breaks off.
func TestRefusalThatBreaksOffIsNotAmbiguous(t *testing.T) {
	for code, ambiguous := range map[int]bool{429: false, 408: false, 503: true, 200: true} {
		base := script.New(sends(code, "x", errLost), script.Status(404))
		req := requestOf(t, http.MethodDelete, nil)
		resp := answerTo(t, retryhttp.New(base, buffers), req)
		assert.Equal(t, ambiguous, retryhttp.OutcomeOf(resp).Ambiguous, code)
	}
}

// stalls answers with code and a part of a body, after which nothing comes.
func stalls(code int, part string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		memnet.EndConnection(w, r)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, part)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// A failed response that says no more does not hold up the retry. The moment is over when the retry's
// wait begins: a wait that is shorter does not begin another moment.
func TestFailedResponseIsBufferedForAMoment(t *testing.T) {
	for _, c := range []struct {
		code             int
		timeout, backoff time.Duration
	}{{408, 0, 300 * ms}, {429, 0, 300 * ms}, {503, time.Hour, 300 * ms}, {503, 0, 10 * ms}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			whole := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, object) }
			overBoth(t, play(stalls(c.code, "a part"), whole), func(t *testing.T, base http.RoundTripper, _ *server) {
				p := buffers
				p.Backoff = retryhttp.Constant(c.backoff)
				p.AttemptTimeout, p.StallTimeout = c.timeout, c.timeout
				var judged []retryhttp.Attempt
				p.Classify = func(a retryhttp.Attempt) retryhttp.Class {
					judged = append(judged, a)
					return retryhttp.Classify(a)
				}
				began := time.Now()
				requireBodyIs(t, object, opened(t, base, p))
				assert.Equal(t, 250*ms+c.backoff, time.Since(began))
				require.Len(t, judged, 2)
				assert.NoError(t, judged[0].Err)
				assert.Equal(t, c.code, judged[0].Response.StatusCode)
				assert.Nil(t, judged[0].Body)
				assert.Equal(t, 250*ms, judged[0].Elapsed)
			})
		})
	}
}

// A Read sets the Trailer, and the caller may look at the Trailer while it does not read.
func TestTrailerOfAFailedResponseComesWithTheEndThatTheCallerReads(t *testing.T) {
	answers := play(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A")
		w.WriteHeader(503)
		_, _ = io.WriteString(w, object)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Second)
		w.Header().Set("A", "announced")
		w.Header().Set(http.TrailerPrefix+"B", "not announced")
	})
	overBoth(t, answers, func(t *testing.T, base http.RoundTripper, _ *server) {
		p := buffers
		p.MaxAttempts = 1
		resp := opened(t, base, p)
		time.Sleep(time.Minute)
		assert.Equal(t, http.Header{"A": nil}, resp.Trailer)
		requireBodyIs(t, object, resp)
		assert.Equal(t, http.Header{"A": {"announced"}, "B": {"not announced"}}, resp.Trailer)
	})
}

// trickles is a body that brings the object in pieces, and then end, each after a pause.
func trickles(pause time.Duration, end error) *bodies.Hooked {
	rest := strings.NewReader(object)
	return &bodies.Hooked{OnRead: func(p []byte) (int, error) {
		time.Sleep(pause)
		if rest.Len() == 0 {
			err := end
			end = errBroken // of a Read after the end
			return 0, err
		}
		return rest.Read(p[:min(5, len(p))])
	}}
}

// The Read that is under way when the moment is over brings bytes, and perhaps an end, that are not lost.
// The attempt's result does not change.
func TestLastFailedResponseIsHandedOverWhole(t *testing.T) {
	for pause := 10 * ms; pause <= 300*ms; pause += 10 * ms {
		for _, late := range []time.Duration{0, 20 * ms, time.Hour} {
			for end, want := range map[error]error{io.EOF: nil, errLost: errLost} {
				for _, reader := range []func(io.Reader) io.Reader{iotest.HalfReader, iotest.DataErrReader} {
					inBubbles(t, map[string]retryhttp.Policy{
						"buffered": buffers, "peeked": {PeekBytes: 100},
					}, func(t *testing.T, p retryhttp.Policy) {
						body := &bodies.Hooked{OnRead: reader(trickles(pause, end)).Read}
						p.MaxAttempts = 1
						p.OnDone = func(a retryhttp.Attempt, _ retryhttp.Outcome) {
							assert.True(t, pause <= 250*ms || a.Peek == nil && a.Elapsed == 250*ms, "nothing has come")
						}
						began := time.Now()
						resp := opened(t, script.New(script.Respond(503, body)), p)
						assert.LessOrEqual(t, time.Since(began), 250*ms)
						time.Sleep(late)
						got, err := io.ReadAll(resp.Body)
						assert.Equal(t, object, string(got))
						assert.Equal(t, want, err)
						require.NoError(t, resp.Body.Close())
						assert.EqualValues(t, 1, body.Closes.Load())
					})
				}
			}
		}
	}
}

// Only the body's own Read or the attempt's context ends a Read of a body that is not net/http's.
func TestCloseOfAFailedResponseIsNotBesideARead(t *testing.T) {
	for _, closable := range []bool{false, true} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var reading atomic.Bool
				body := &mayClose{closable: closable, freed: make(chan struct{})}
				body.OnRead = func([]byte) (int, error) {
					reading.Store(true)
					defer reading.Store(false)
					select {
					case <-time.After(time.Minute):
					case <-body.freed:
					}
					return 0, io.EOF
				}
				body.OnClose = func() {
					assert.Equal(t, closable, reading.Load())
					close(body.freed)
				}
				p := buffers
				p.MaxAttempts = 1
				resp := opened(t, script.New(script.Respond(503, body)), p)
				began := time.Now()
				if waits {
					time.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
					_, err := resp.Body.Read(make([]byte, 1))
					assert.Equal(t, time.Second, time.Since(began))
					assert.Equal(t, http.ErrBodyReadAfterClose, err)
				} else {
					require.NoError(t, resp.Body.Close())
				}
				synctest.Wait()
				if !closable {
					assert.Zero(t, body.Closes.Load())
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				assert.EqualValues(t, 1, body.Closes.Load())
			})
		}
	}
}

// mayClose is a body that says whether it may be closed while it is read.
type mayClose struct {
	bodies.Hooked
	closable bool
	freed    chan struct{}
}

func (b *mayClose) ClosableAs() io.ReadCloser {
	if b.closable {
		return http.NoBody
	}
	return nil
}

// A test's double may end its goroutine, as t.FailNow does. A failed response is read in another one, and fails.
func TestPanicOrGoexitOfAReadReachesItsCaller(t *testing.T) {
	for how, end := range map[string]func(){"panics: boom": boom, "exits": runtime.Goexit} {
		for after, status := range map[time.Duration]int{0: 503, 1: 200, time.Second: 503} {
			t.Run(fmt.Sprint(how, " after ", after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					body := &bodies.Hooked{OnRead: func([]byte) (int, error) { time.Sleep(after); end(); return 0, nil }}
					p := buffers
					p.MaxAttempts = 1
					var resp *http.Response
					got := endOfCall(func() {
						resp, _ = retryhttp.New(script.New(script.Respond(status, body)), p).RoundTrip(get(t, t.Context()))
						_, err := resp.Body.Read(make([]byte, 1))
						assert.Error(t, err)
					})
					synctest.Wait()
					if how == "exits" && status == 503 {
						assert.Equal(t, "returns", got)
						assert.NotNil(t, resp)
					} else {
						assert.Equal(t, how, got)
						assert.Equal(t, after == time.Second, resp != nil, "a Read after the moment is the caller's")
					}
					if resp != nil {
						require.NoError(t, resp.Body.Close())
					}
					assert.EqualValues(t, 1, body.Closes.Load())
				})
			})
		}
	}
}

// A panic that nobody waits for does not end the process.
func TestPanicOfAFailedResponseThatIsRetriedIsDropped(t *testing.T) {
	inBubbles(t, map[string]int{"closed": 1, "retried": 2}, func(t *testing.T, attempts int) {
		body := &bodies.Hooked{
			OnRead:  func([]byte) (int, error) { time.Sleep(time.Minute); panic("a decoder's bug") },
			OnClose: func() { panic("another") },
		}
		p := buffers
		p.MaxAttempts = attempts
		base := script.New(script.Respond(503, body), script.Respond(200, http.NoBody))
		resp := opened(t, base, p)
		require.NoError(t, resp.Body.Close())
		assert.Len(t, base.Requests(), attempts)
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}

// An upload needs the attempt no more once the caller has closed the response.
func TestCloseOfAFailedResponseEndsTheAttemptBesideAnUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.WriteHeader(http.StatusTooManyRequests)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(io.Discard, r.Body)
			gone.Store(true)
		}))
		defer stop()
		upload := &bodies.Hooked{OnRead: func(p []byte) (int, error) { time.Sleep(ms); return 1, nil }}
		p := buffers
		p.AttemptTimeout = time.Minute
		resp := responseTo(t, wrapped(base), p, requestOf(t, http.MethodPost, upload))
		require.NoError(t, resp.Body.Close())
		time.Sleep(time.Second)
		assert.True(t, gone.Load())
	})
}

// wrapped is a base whose response bodies are of a type of its own.
func wrapped(base http.RoundTripper) script.Step {
	return func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil {
			resp.Body = struct{ io.ReadCloser }{resp.Body}
		}
		return resp, err
	}
}

// The body ignores its context. Nobody looks at what the late Read of the Transport below writes.
func TestAttemptTimeoutDuringALateReadOfATransportBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := trickles(600*ms, io.EOF)
		p := buffers
		p.MaxAttempts = 1
		below := retryhttp.New(script.New(script.Respond(503, slow)), p)
		p.AttemptTimeout = 400 * ms
		require.NoError(t, opened(t, below, p).Body.Close())
		time.Sleep(time.Second)
	})
}

// The time of a StallTimeout runs while somebody waits.
func TestStallTimeoutBesideTheMomentOfAFailedResponse(t *testing.T) {
	type testCase struct {
		stall   time.Duration
		silent  time.Duration
		caller  time.Duration // takes its time before it reads
		err     error
		elapsed time.Duration // of the Read
	}
	inBubbles(t, map[string]testCase{
		"within the moment":            {100 * time.Millisecond, time.Minute, 0, context.DeadlineExceeded, 0},
		"a caller that reads at once":  {time.Second, time.Minute, 0, context.DeadlineExceeded, time.Second},
		"a caller that takes its time": {time.Second, 3 * time.Second, time.Minute, nil, 0},
		"and for which nothing comes":  {time.Second, time.Hour, time.Minute, context.DeadlineExceeded, time.Second},
	}, func(t *testing.T, tc testCase) {
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			body := &lapBody{strings.NewReader(object), req.Context(), time.Now().Add(tc.silent)}
			return script.Respond(503, &bodies.Hooked{OnRead: body.Read})(req)
		})
		p := buffers
		p.MaxAttempts, p.StallTimeout = 1, tc.stall
		resp := opened(t, base, p)
		time.Sleep(tc.caller)
		began := time.Now()
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, tc.elapsed, time.Since(began))
		assert.ErrorIs(t, err, tc.err)
		assert.Equal(t, tc.err == nil, string(got) == object)
		require.NoError(t, resp.Body.Close())
	})
}

// The Read of a closed body that still goes on is not waited for, and is no stall.
func TestStallTimeoutEndsWithTheCloseOfAFailedResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		body := &bodies.Hooked{}
		base := script.New(func(req *http.Request) (*http.Response, error) {
			body.OnRead = func([]byte) (int, error) {
				<-req.Context().Done()
				cause = context.Cause(req.Context())
				return 0, cause
			}
			return script.Respond(503, body)(req)
		})
		p := buffers
		p.MaxAttempts, p.StallTimeout = 1, time.Minute
		resp := opened(t, base, p)
		require.NoError(t, resp.Body.Close())
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, context.Canceled, cause)
		assert.EqualValues(t, 1, body.Closes.Load())
	})
}
