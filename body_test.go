package retryhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/replay"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// seekBody can be rewound, and has no random access.
type seekBody struct{ io.ReadSeeker }

func (seekBody) Close() error { return nil }

// sectionBody has random access and a size.
type sectionBody struct{ *bytes.Reader }

func (sectionBody) Close() error { return nil }

// bodyKinds are the ways to hand over content. Each call makes a new one.
func bodyKinds(t *testing.T) map[string]func(content []byte) *http.Request {
	t.Helper()
	put := func(body io.Reader) *http.Request {
		req, err := http.NewRequest("PUT", "http://server/", body)
		require.NoError(t, err)
		return req
	}
	return map[string]func([]byte) *http.Request{
		"bytes.Reader with GetBody": func(c []byte) *http.Request { return put(bytes.NewReader(c)) },
		"section":                   func(c []byte) *http.Request { return put(sectionBody{bytes.NewReader(c)}) },
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

func TestEveryAttemptSendsTheWholeBody(t *testing.T) {
	for name, request := range bodyKinds(t) {
		for _, size := range []int{0, 1, 4096, 64 << 10} {
			t.Run(name, func(t *testing.T) {
				content := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
				bubble(t, func(t *testing.T) {
					srv := &server{answers: []answer{status(503), hangUp, status(200)}}
					_, base, stop := memnet.Serve(srv)
					defer stop()
					resp, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(request(content))
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Equal(t, 200, resp.StatusCode)
					require.Len(t, srv.got, 3)
					for _, got := range srv.got {
						require.Equal(t, string(content), got.body)
					}
				})
			})
		}
	}
}

func TestAStreamPastTheLimitIsSentOnceAndWhole(t *testing.T) {
	cases := []struct {
		name     string
		limit    int64
		size     int
		attempts int
		stop     retryhttp.Stop
	}{
		{"at the default limit", 0, 64 << 10, 2, retryhttp.StopFinal},
		{"past the default limit", 0, 64<<10 + 1, 1, retryhttp.StopBody},
		{"at a limit", 10, 10, 2, retryhttp.StopFinal},
		{"past a limit", 10, 11, 1, retryhttp.StopBody},
		{"nothing is kept", -1, 1, 1, retryhttp.StopBody},
		{"nothing needs to be kept", -1, 0, 2, retryhttp.StopFinal},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				srv := &server{answers: []answer{status(503), status(200)}}
				_, base, stop := memnet.Serve(srv)
				defer stop()
				content := strings.Repeat("x", tc.size)
				body := &trackedBody{Reader: strings.NewReader(content)}
				req, err := http.NewRequest("PUT", "http://server/", body)
				require.NoError(t, err)
				resp, err := retryhttp.New(base, retryhttp.Policy{MaxBodyBytes: tc.limit}).RoundTrip(req)
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.NotEmpty(t, got, "the response is returned with its body")
				o := retryhttp.OutcomeOf(resp)
				assert.Equal(t, tc.attempts, o.Attempts)
				assert.Equal(t, tc.stop, o.Stop)
				assert.Len(t, srv.got, tc.attempts)
				for _, got := range srv.got {
					assert.Equal(t, content, got.body)
				}
				synctest.Wait()
				assert.Equal(t, int32(1), body.closes.Load())
				assert.Zero(t, body.misuse.Load())
			})
		})
	}
}

func TestAStreamThatWasNotReadCanBeSentAgain(t *testing.T) {
	// Whether it can depends on what was read, not on its length.
	bubble(t, func(t *testing.T) {
		base := script.New(script.Fail(errBroken), func(req *http.Request) (*http.Response, error) {
			defer req.Body.Close()
			got, err := io.ReadAll(req.Body)
			assert.NoError(t, err)
			assert.Len(t, got, 1<<20)
			return script.Response(req, 200), nil
		})
		req, err := http.NewRequest("PUT", "http://server/", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20))))
		require.NoError(t, err)
		req.ContentLength = 1 << 20
		resp, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		assert.Equal(t, int64(1<<20), base.Requests()[1].ContentLength)
	})
}

func TestGetBodyThatFailsEndsTheRetries(t *testing.T) {
	errGone := errors.New("the file is gone")
	cases := []struct {
		name string
		step script.Step
		body func() (io.ReadCloser, error)
		err  error
	}{
		{"after a response", script.Status(503), func() (io.ReadCloser, error) { return nil, errGone }, nil},
		{"after an error", script.Fail(errBroken), func() (io.ReadCloser, error) { return nil, errGone }, errGone},
		{"neither a body nor an error", script.Fail(errBroken), func() (io.ReadCloser, error) { return nil, nil }, errBroken},
	}
	unprocessed := func(retryhttp.Attempt) retryhttp.Class { return retryhttp.Unprocessed }
	for _, method := range []string{"PUT", "POST"} {
		for _, tc := range cases {
			t.Run(method+" "+tc.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					budget := &countingBudget{}
					retried := 0
					p := retryhttp.Policy{Budget: budget, Classify: unprocessed, RetryUnprocessed: true, OnRetry: func(retryhttp.Attempt) { retried++ }}
					req, err := http.NewRequest(method, "http://host.example/", strings.NewReader("x"))
					require.NoError(t, err)
					req.GetBody = tc.body
					start := time.Now()
					resp, err := retryhttp.New(script.New(tc.step), p).RoundTrip(req)
					assert.Zero(t, time.Since(start), "no wait")
					assert.Zero(t, retried)
					assert.Equal(t, 1, budget.withdrawn)
					assert.Equal(t, 1, budget.refunded)
					if tc.err == nil {
						require.NoError(t, err)
						got, err := io.ReadAll(resp.Body)
						require.NoError(t, err)
						assert.Equal(t, "body of 503", string(got), "the body comes unread")
						assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
						return
					}
					assert.Nil(t, resp)
					assert.ErrorIs(t, err, errBroken)
					assert.ErrorIs(t, err, tc.err)
					assert.Equal(t, retryhttp.StopBody, errorOf(t, err).Stop)
				})
			})
		}
	}
}

func TestBodiesAreOpenedBeforeTheWaitAndClosedOnCancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		opened := &trackedBody{Reader: strings.NewReader("x")}
		original := &trackedBody{Reader: strings.NewReader("x")}
		start := time.Now()
		var openedAt time.Time
		req, err := http.NewRequestWithContext(ctx, "PUT", "http://host.example/", original)
		require.NoError(t, err)
		req.GetBody = func() (io.ReadCloser, error) { openedAt = time.Now(); return opened, nil }
		time.AfterFunc(time.Second, cancel)
		_, err = retryhttp.New(script.New(script.Status(503)), retryhttp.Policy{Backoff: retryhttp.Constant(time.Minute)}).RoundTrip(req)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, start, openedAt)
		assert.Equal(t, int32(1), opened.closes.Load())
		assert.Equal(t, int32(1), original.closes.Load())
	})
}

func TestABodyThatFailsToReadIsFinalWithoutGetBody(t *testing.T) {
	errRead := errors.New("disk error")
	broken := func() io.ReadCloser {
		return &trackedBody{Reader: io.MultiReader(strings.NewReader("half"), errReader{errRead})}
	}
	for _, tc := range []struct {
		name     string
		getBody  bool
		attempts int
	}{{"without", false, 1}, {"with", true, 4}} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, base, stop := memnet.Serve(http.HandlerFunc(status(200)))
				defer stop()
				body := broken().(*trackedBody)
				req, err := http.NewRequest("PUT", "http://server/", body)
				require.NoError(t, err)
				if tc.getBody {
					req.GetBody = func() (io.ReadCloser, error) { return broken(), nil }
				}
				_, err = retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
				assert.ErrorIs(t, err, errRead)
				assert.Equal(t, tc.attempts, errorOf(t, err).Attempts)
				synctest.Wait()
				assert.GreaterOrEqual(t, body.closes.Load(), int32(1))
			})
		})
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestTheBodyIsNotClosedWhileTheLastAttemptReadsIt(t *testing.T) {
	// A server may answer before it has read the request. RoundTrip returns
	// then, and the transport goes on sending.
	bubble(t, func(t *testing.T) {
		for _, code := range []int{200, 503} {
			body := &trackedBody{Reader: strings.NewReader("0123456789")}
			goOn, sent := make(chan struct{}), make(chan string)
			req, err := http.NewRequest("PUT", "http://host.example/", body)
			require.NoError(t, err)
			rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
				go func() {
					<-goOn
					all, _ := io.ReadAll(req.Body)
					_ = req.Body.Close()
					sent <- string(all)
				}()
				return script.Response(req, code), nil
			}), retryhttp.Policy{MaxAttempts: 1})
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			assert.Zero(t, body.closes.Load())
			close(goOn)
			assert.Equal(t, "0123456789", <-sent)
			assert.Equal(t, int32(1), body.closes.Load())
			assert.Zero(t, body.misuse.Load())
			require.NoError(t, resp.Body.Close())
		}
	})
}

func TestTheBodyIsClosedWhereAFailingBaseForgetsIt(t *testing.T) {
	body := &trackedBody{Reader: strings.NewReader("x")}
	req, err := http.NewRequest("PUT", "http://host.example/", body)
	require.NoError(t, err)
	_, err = retryhttp.New(script.New(func(*http.Request) (*http.Response, error) { return nil, errBroken }), noWait).RoundTrip(req)
	assert.Equal(t, 4, errorOf(t, err).Attempts)
	assert.Equal(t, int32(1), body.closes.Load())
}

func TestAnAttemptThatIsOverCannotReadOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var old io.ReadCloser
		var oldGetBody func() (io.ReadCloser, error)
		base := script.New(
			func(req *http.Request) (*http.Response, error) {
				old, oldGetBody = req.Body, req.GetBody
				_, err := io.ReadFull(old, make([]byte, 3))
				assert.NoError(t, err)
				return script.Response(req, 503), nil
			},
			func(req *http.Request) (*http.Response, error) {
				_, err := old.Read(make([]byte, 3))
				assert.Error(t, err, "the old reader is cut off")
				_, err = oldGetBody()
				assert.Error(t, err)
				all, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				assert.Equal(t, "0123456789", string(all))
				assert.NoError(t, old.Close())
				assert.NoError(t, req.Body.Close())
				return script.Response(req, 200), nil
			})
		body := &trackedBody{Reader: strings.NewReader("0123456789")}
		req, err := http.NewRequest("PUT", "http://host.example/", body)
		require.NoError(t, err)
		req.ContentLength = 10
		resp, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, int32(1), body.closes.Load())
	})
}

func TestAResponseThatComesBackKeepsItsUpload(t *testing.T) {
	// The old reader is cut off only when the retry is certain: here the
	// budget refuses it, and the server may still want the rest.
	bubble(t, func(t *testing.T) {
		var reader io.ReadCloser
		rt := retryhttp.New(script.New(func(req *http.Request) (*http.Response, error) {
			reader = req.Body
			return script.Response(req, 503), nil
		}), retryhttp.Policy{Budget: &countingBudget{refuse: true}})
		req, err := http.NewRequest("PUT", "http://host.example/", io.MultiReader(strings.NewReader("0123456789")))
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		all, err := io.ReadAll(reader)
		require.NoError(t, err)
		assert.Equal(t, "0123456789", string(all))
		require.NoError(t, reader.Close())
		require.NoError(t, resp.Body.Close())
	})
}

func TestAttemptsCarryGetBody(t *testing.T) {
	// net/http needs it to send a request again that a server refused on
	// HTTP/2, or that met a dead connection.
	for name, request := range bodyKinds(t) {
		if name == "stream" {
			continue // it may outgrow what is kept: see below
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				resend := func(code int) script.Step {
					return func(req *http.Request) (*http.Response, error) {
						_, _ = io.ReadFull(req.Body, make([]byte, 5))
						_ = req.Body.Close()
						again, err := req.GetBody()
						require.NoError(t, err)
						all, err := io.ReadAll(again)
						assert.NoError(t, err)
						assert.Equal(t, "0123456789", string(all))
						assert.NoError(t, again.Close())
						return script.Response(req, code), nil
					}
				}
				resp, err := retryhttp.New(script.New(resend(503), resend(200)), retryhttp.Policy{}).RoundTrip(request([]byte("0123456789")))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, 200, resp.StatusCode)
			})
		})
	}
}

// A base that finds a GetBody counts on it (a signer that hashes the body, say) and
// buffers otherwise. So a stream has one only if all of it will be kept.
func TestAttemptsOfAStreamCarryGetBodyIfItIsKept(t *testing.T) {
	for _, tc := range []struct {
		name           string
		length         int64
		limit          int64
		attemptTimeout time.Duration
		maxAttempts    int
		want           bool
	}{
		{name: "length unknown", length: -1},
		{name: "length unknown, as zero", length: 0},
		{name: "at the default limit", length: 64 << 10, want: true},
		{name: "past the default limit", length: 64<<10 + 1},
		{name: "at a limit", length: 10, limit: 10, want: true},
		{name: "past a limit", length: 11, limit: 10},
		{name: "nothing is kept", length: 1, limit: -1},
		{name: "nothing is kept without retries", length: 1, attemptTimeout: time.Hour, maxAttempts: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := script.New(script.Fail(errBroken), script.Status(503))
			p := noWait
			p.MaxBodyBytes, p.AttemptTimeout, p.MaxAttempts = tc.limit, tc.attemptTimeout, tc.maxAttempts
			req, err := http.NewRequest("PUT", "http://host.example/", io.MultiReader(strings.NewReader("x")))
			require.NoError(t, err)
			req.ContentLength = tc.length
			resp, err := retryhttp.New(base, p).RoundTrip(req)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			require.NotEmpty(t, base.Requests())
			for _, r := range base.Requests() {
				assert.Equal(t, tc.want, r.GetBody != nil)
			}
		})
	}
}

func TestTrailersOfABodyGoWithEveryAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var trailers []http.Header
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			trailers = append(trailers, r.Trailer.Clone())
			if len(trailers) < 3 {
				w.WriteHeader(503)
			}
		}))
		defer stop()
		req, err := http.NewRequest("PUT", "http://server/", nil)
		require.NoError(t, err)
		req.Trailer = http.Header{"X-Sum": nil}
		req.Body = &trailerBody{strings.NewReader("content"), req}
		req.ContentLength = -1
		resp, err := retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		want := http.Header{"X-Sum": {"sum of content"}}
		assert.Equal(t, []http.Header{want, want, want}, trailers)
	})
}

func TestAttemptsHaveTrailersOfTheirOwn(t *testing.T) {
	// An attempt looks at the keys of its map while the body of the one before
	// may still set values.
	bubble(t, func(t *testing.T) {
		step := func(code int) script.Step {
			return func(req *http.Request) (*http.Response, error) {
				assert.Equal(t, http.Header{"X-Sum": nil}, req.Trailer, "before the body was read")
				resp, err := script.Status(code)(req)
				assert.Equal(t, http.Header{"X-Sum": {"sum of content"}}, req.Trailer)
				return resp, err
			}
		}
		req, err := http.NewRequest("PUT", "http://server/", nil)
		require.NoError(t, err)
		req.Trailer = http.Header{"X-Sum": nil}
		req.Body = &trailerBody{strings.NewReader("content"), req}
		resp, err := retryhttp.New(script.New(step(503), step(200)), retryhttp.Policy{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	})
}

func TestTrailerThatWasNotAnnouncedIsNotSent(t *testing.T) {
	req, err := http.NewRequest("PUT", "http://server/", nil)
	require.NoError(t, err)
	req.Body = &lateTrailerBody{strings.NewReader("content"), req}
	base := script.New(script.Status(200))
	_, err = retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
	require.NoError(t, err)
	assert.Empty(t, base.Requests()[0].Trailer)
}

// lateTrailerBody adds a trailer, which it did not announce, when it has been
// read.
type lateTrailerBody struct {
	io.Reader
	req *http.Request
}

func (b *lateTrailerBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.req.Trailer = http.Header{"X-Sum": {"sum of content"}}
	}
	return n, err
}

func (b *lateTrailerBody) Close() error { return nil }

// trailerBody sets a trailer when it has been read.
type trailerBody struct {
	io.Reader
	req *http.Request
}

func (b *trailerBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.req.Trailer.Set("X-Sum", "sum of content")
	}
	return n, err
}

func (b *trailerBody) Close() error { return nil }

func TestCancelFreesAStalledUpload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		}))
		defer stop()
		r, w := io.Pipe() // nobody ever writes
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "PUT", "http://server/", r)
		require.NoError(t, err)
		_, err = retryhttp.New(base, retryhttp.Policy{}).RoundTrip(req)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		_, err = w.Write([]byte("x"))
		assert.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

func TestAttemptTimeoutEndsAStalledUpload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, body := range map[string]func(io.Reader) io.Reader{
			"stream": func(r io.Reader) io.Reader { return r },
			"seeker": func(r io.Reader) io.Reader { return stalledSeeker{r, strings.NewReader("")} },
		} {
			_, base, stop := memnet.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
			}))
			r, w := io.Pipe() // nobody ever writes
			req, err := http.NewRequest("PUT", "http://server/", body(r))
			require.NoError(t, err)
			start := time.Now()
			_, err = retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Second, MaxAttempts: 2, Backoff: retryhttp.Constant(time.Second)}).RoundTrip(req)
			assert.ErrorIs(t, err, context.DeadlineExceeded, name)
			assert.Equal(t, 2, errorOf(t, err).Attempts, name)
			assert.Equal(t, 3*time.Second, time.Since(start), name)
			stop()
			assert.NoError(t, w.Close())
		}
	})
}

// stalledSeeker has a position, and reads from elsewhere.
type stalledSeeker struct {
	io.Reader
	io.Seeker
}

func TestASecondAttemptWaitsForAStalledUpload(t *testing.T) {
	// The first attempt's Read is in flight when its time is up. What it gets
	// belongs to the second attempt.
	bubble(t, func(t *testing.T) {
		srv := &server{answers: []answer{status(200)}}
		_, base, stop := memnet.Serve(srv)
		defer stop()
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write([]byte("first "))
			time.Sleep(3 * time.Second)
			_, _ = w.Write([]byte("second"))
			_ = w.Close()
		}()
		req, err := http.NewRequest("PUT", "http://server/", r)
		require.NoError(t, err)
		resp, err := retryhttp.New(base, retryhttp.Policy{AttemptTimeout: 2 * time.Second, Backoff: retryhttp.Constant(500 * time.Millisecond)}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 2, retryhttp.OutcomeOf(resp).Attempts)
		assert.Equal(t, "first second", srv.got[len(srv.got)-1].body)
	})
}

// A GET with a body is safe to net/http, which sends it again if it has a GetBody.
func TestAttemptsOfARefusedMethodCarryNoGetBody(t *testing.T) {
	for _, p := range []retryhttp.Policy{{AttemptTimeout: time.Hour}, {RetryUnprocessed: true}} {
		p.Idempotent = func(*http.Request) bool { return false }
		base := script.New(script.Fail(errBroken))
		req, err := http.NewRequest("GET", "http://host.example/", sectionBody{bytes.NewReader([]byte("x"))})
		require.NoError(t, err)
		_, err = retryhttp.New(base, p).RoundTrip(req)
		require.Error(t, err)
		require.Len(t, base.Requests(), 1)
		assert.Nil(t, base.Requests()[0].GetBody)
	}
}

// net/http sends a request that has a key and a GetBody again by itself, unseen.
func TestAttemptsOfAnUnacceptedKeyCarryNoGetBody(t *testing.T) {
	byMethod := func(req *http.Request) bool { return retryhttp.Idempotent(&http.Request{Method: req.Method}) }
	unprocessed := func(a retryhttp.Attempt) retryhttp.Class {
		if a.Response != nil && a.Response.StatusCode == 429 {
			return retryhttp.Unprocessed
		}
		return retryhttp.Classify(a)
	}
	for name, body := range map[string]func() (io.Reader, func() (io.ReadCloser, error)){
		"in memory": func() (io.Reader, func() (io.ReadCloser, error)) { return strings.NewReader("x"), nil },
		"stream":    func() (io.Reader, func() (io.ReadCloser, error)) { return io.MultiReader(strings.NewReader("x")), nil },
		"section": func() (io.Reader, func() (io.ReadCloser, error)) {
			return sectionBody{bytes.NewReader([]byte("x"))}, nil
		},
		"custom GetBody": func() (io.Reader, func() (io.ReadCloser, error)) {
			get := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
			return io.MultiReader(strings.NewReader("x")), get
		},
	} {
		for _, p := range []retryhttp.Policy{
			{RetryUnprocessed: true},
			{RetryUnprocessed: true, AttemptTimeout: time.Hour},
			{},
			{MaxAttempts: 1},
		} {
			t.Run(name, func(t *testing.T) {
				p.Idempotent, p.Classify, p.Backoff = byMethod, unprocessed, retryhttp.Constant(0)
				base := script.New(script.Status(429), script.Status(429), script.Status(200))
				reader, getBody := body()
				req, err := http.NewRequest("POST", "http://host.example/", reader)
				require.NoError(t, err)
				req.ContentLength = 1
				if getBody != nil {
					req.GetBody = getBody
				}
				had := req.GetBody != nil
				req.Header.Set("Idempotency-Key", "17")
				resp, err := retryhttp.New(base, p).RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				attempts := 1
				if p.RetryUnprocessed {
					attempts = 3
				}
				require.Len(t, base.Requests(), attempts)
				for _, r := range base.Requests() {
					assert.Nil(t, r.GetBody)
				}
				assert.Equal(t, had, req.GetBody != nil, "the caller's request is left alone")
			})
		}
	}
}

func TestRequestThatNoRetryCanFollowIsSentAsItIs(t *testing.T) {
	for _, tc := range []struct {
		name    string
		method  string
		key     bool
		getBody bool
		policy  retryhttp.Policy
		asItIs  bool
	}{
		{"not idempotent", "POST", false, false, retryhttp.Policy{}, true},
		{"not idempotent, GetBody", "POST", false, true, retryhttp.Policy{}, true},
		{"one attempt", "PUT", false, false, retryhttp.Policy{MaxAttempts: 1}, true},
		{"one attempt of a keyed request", "POST", true, false, retryhttp.Policy{MaxAttempts: 1}, true},
		{"not idempotent, GetBody, AttemptTimeout", "POST", false, true, retryhttp.Policy{AttemptTimeout: time.Hour}, true},
		{"not idempotent, AttemptTimeout", "POST", false, false, retryhttp.Policy{AttemptTimeout: time.Hour}, false},
		{"idempotent", "PUT", false, false, retryhttp.Policy{}, false},
		{"idempotent, GetBody", "PUT", false, true, retryhttp.Policy{}, false},
		{"keyed", "POST", true, false, retryhttp.Policy{}, false},
		{"retried if unprocessed", "POST", false, false, retryhttp.Policy{RetryUnprocessed: true}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := &trackedBody{Reader: strings.NewReader("x")}
			req, err := http.NewRequest(tc.method, "http://host.example/", body)
			require.NoError(t, err)
			if tc.key {
				req.Header.Set("Idempotency-Key", "17")
			}
			if tc.getBody {
				req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
			}
			var sent *http.Request
			base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				sent = req
				return script.Status(200)(req)
			})
			resp, err := retryhttp.New(base, tc.policy).RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			if tc.policy.AttemptTimeout == 0 {
				assert.Equal(t, tc.asItIs, sent == req)
			}
			assert.Equal(t, tc.getBody, sent.GetBody != nil)
			assert.EqualValues(t, 1, body.closes.Load())
		})
	}
}

// An Idempotent that changes its mind finds no body that could be sent again.
func TestBodyThatWasSentAsItIsIsNotSentAgain(t *testing.T) {
	for _, getBody := range []func() (io.ReadCloser, error){nil, func() (io.ReadCloser, error) { return nil, nil }} {
		asked := 0
		p := noWait
		p.Idempotent = func(*http.Request) bool { asked++; return asked > 1 }
		req, err := http.NewRequest("POST", "http://host.example/", io.MultiReader(strings.NewReader("x")))
		require.NoError(t, err)
		req.GetBody = getBody
		base := script.New(script.Status(503), script.Status(200))
		resp, err := retryhttp.New(base, p).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 503, resp.StatusCode)
		assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
	}
}

// As connect-go does: GetBody rewinds one reader. The server answers before it has
// read the request, so net/http still sends it.
func TestGetBodyThatRewindsOneReaderIsSentWhole(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 1<<14)
	for range 20 {
		var got string
		first := true
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				_ = http.NewResponseController(w).EnableFullDuplex()
				w.WriteHeader(503)
				_ = http.NewResponseController(w).Flush()
				_, _ = io.Copy(io.Discard, r.Body)
				return
			}
			all, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			got = string(all)
		}))
		base := &http.Transport{}
		shared := strings.NewReader(content)
		req, err := http.NewRequest("PUT", srv.URL, io.NopCloser(shared))
		require.NoError(t, err)
		req.ContentLength = int64(len(content))
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := shared.Seek(0, io.SeekStart)
			return io.NopCloser(shared), err
		}
		resp, err := retryhttp.New(base, noWait).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		base.CloseIdleConnections()
		srv.Close()
		require.Equal(t, 200, resp.StatusCode)
		require.True(t, content == got)
	}
}

// trackedSection has random access and a size, and counts its closes.
type trackedSection struct {
	*bytes.Reader
	io.Closer
}

// Some bases send only what GetBody returns, and some read it to sign and forget it.
func TestBodyIsClosedThoughTheBaseForgetsAReader(t *testing.T) {
	for name, base := range map[string]script.Step{
		"sends a clone and never looks at the first": func(req *http.Request) (*http.Response, error) {
			clone := req.Clone(req.Context())
			clone.Body, _ = req.GetBody()
			return script.Status(200)(clone)
		},
		"reads a clone to its end": func(req *http.Request) (*http.Response, error) {
			clone, _ := req.GetBody()
			_, _ = io.Copy(io.Discard, clone)
			return script.Status(200)(req)
		},
		"reads to the end": func(req *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, req.Body)
			return script.Response(req, 200), nil
		},
	} {
		for kind, getBody := range map[string]bool{"section": false, "GetBody": true} {
			t.Run(name+", "+kind, func(t *testing.T) {
				closes := &trackedBody{Reader: strings.NewReader("content")}
				req, err := http.NewRequest("PUT", "http://host.example/", trackedSection{bytes.NewReader([]byte("content")), closes})
				require.NoError(t, err)
				if getBody {
					req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("content")), nil }
				}
				resp, err := retryhttp.New(script.New(base), retryhttp.Policy{}).RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.EqualValues(t, 1, closes.closes.Load())
			})
		}
	}
}

// closePanics is a body that can be read once.
type closePanics struct{ io.Reader }

func (closePanics) Close() error { panic("close") }

func TestBodyWhoseClosePanicsDoesNotEndTheProcess(t *testing.T) {
	req, err := http.NewRequest("PUT", "http://host.example/", closePanics{strings.NewReader("x")})
	require.NoError(t, err)
	rt := retryhttp.New(script.New(func(*http.Request) (*http.Response, error) { return nil, errBroken }), noWait)
	assert.PanicsWithValue(t, "close", func() { _, _ = rt.RoundTrip(req) })
}

// Neither net/http nor we resend a stream that was sent in part, and the error
// says what happened, not that the body could not be had again.
func TestErrorOfAStreamThatCannotBeSentAgainNamesItsCause(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for n := 1; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(conn)
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_, _ = in.Peek(1000) // of the next request's
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	rt := retryhttp.New(base, retryhttp.Policy{MaxBodyBytes: 100})
	for range 2 {
		req, err := http.NewRequest("POST", "http://"+listener.Addr().String(), io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20))))
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", "17")
		resp, err := rt.RoundTrip(req)
		if err == nil {
			require.NoError(t, resp.Body.Close())
			continue
		}
		assert.Equal(t, retryhttp.StopBody, errorOf(t, err).Stop)
		assert.NotErrorIs(t, err, replay.ErrSpent)
		return
	}
	t.Fatal("the second request went through")
}

// No retry can follow, and yet the body is wrapped: an attempt's time may end in a
// Read of it that hangs.
func TestAttemptTimeoutEndsAReadOfABodyThatIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, w := io.Pipe()
		base := script.New(func(req *http.Request) (*http.Response, error) {
			_, err := req.Body.Read(make([]byte, 1))
			_ = req.Body.Close()
			return nil, err
		})
		req, err := http.NewRequest("POST", "http://host.example/", pipe)
		require.NoError(t, err)
		start := time.Now()
		_, err = retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Second}).RoundTrip(req)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		_ = w.Close()
	})
}

// The server sends the rest of its failed answer when it has read the request, which
// pauses while OnRetry reads that answer.
func TestOnRetryThatReadsWhileTheUploadPausesEnds(t *testing.T) {
	first := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !first {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		first = false
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(503)
		_, _ = io.WriteString(w, "busy")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer srv.Close()
	content := make([]byte, 32<<20)
	req, err := http.NewRequest("PUT", srv.URL, bytes.NewReader(content))
	require.NoError(t, err)
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	p := noWait
	p.OnRetry = func(a retryhttp.Attempt) { _, _ = io.ReadAll(a.Response.Body) }
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	resp, err := retryhttp.New(base, p).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 200, resp.StatusCode)
}

// stalledUpload is a PUT whose body has a GetBody and stalls, and a base that still
// reads it when it returns an error.
func stalledUpload(t *testing.T, ctx context.Context) (*http.Request, *script.Transport, func()) {
	t.Helper()
	release := make(chan struct{})
	get := func() (io.ReadCloser, error) {
		return io.NopCloser(readerFunc(func([]byte) (int, error) { <-release; return 0, io.EOF })), nil
	}
	body, _ := get()
	req, err := http.NewRequestWithContext(ctx, "PUT", "http://host.example/", body)
	require.NoError(t, err)
	req.GetBody = get
	base := script.New(func(req *http.Request) (*http.Response, error) {
		go func() { _, _ = io.ReadAll(req.Body); _ = req.Body.Close() }()
		synctest.Wait()
		return nil, errBroken
	})
	return req, base, func() { close(release) }
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestGetBodyWaitsForAStalledReadWithinTheTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, base, release := stalledUpload(t, t.Context())
		defer release()
		p := retryhttp.Policy{MaxElapsed: 100 * time.Millisecond, Backoff: retryhttp.Constant(10 * time.Millisecond), MaxAttempts: 2}
		_, err := retryhttp.New(base, p).RoundTrip(req)
		require.Error(t, err)
		assert.Equal(t, []time.Duration{10 * time.Millisecond}, base.Waits())
	})
}

func TestCancelWhileGetBodyWaitsIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		req, base, release := stalledUpload(t, ctx)
		defer release()
		time.AfterFunc(100*time.Millisecond, cancel)
		start := time.Now()
		budget := &countingBudget{}
		_, err := retryhttp.New(base, retryhttp.Policy{Budget: budget, Backoff: retryhttp.Constant(time.Second)}).RoundTrip(req)
		assert.Equal(t, retryhttp.StopCanceled, errorOf(t, err).Stop)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Equal(t, budget.withdrawn, budget.refunded)
	})
}

// An attempt that is over may still read its body to the end, which sets the trailer.
func TestAttemptsOfAGetBodyHaveTrailersOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, err := http.NewRequest("PUT", "http://server/", nil)
		require.NoError(t, err)
		req.Trailer = http.Header{"X-Sum": nil}
		req.Body = &trailerBody{strings.NewReader("content"), req}
		req.GetBody = func() (io.ReadCloser, error) { return &trailerBody{strings.NewReader("content"), req}, nil }
		step := func(code int) script.Step {
			return func(req *http.Request) (*http.Response, error) {
				assert.Equal(t, http.Header{"X-Sum": nil}, req.Trailer, "before the body was read")
				resp, err := script.Status(code)(req)
				assert.Equal(t, http.Header{"X-Sum": {"sum of content"}}, req.Trailer)
				return resp, err
			}
		}
		resp, err := retryhttp.New(script.New(step(503), step(200)), retryhttp.Policy{}).RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	})
}

// Somebody set the body of a request that was made without content.
func TestBodyIsNotReplacedByAnEmptyOne(t *testing.T) {
	req, err := http.NewRequest("PUT", "http://host.example/", new(bytes.Buffer))
	require.NoError(t, err)
	req.Body = io.NopCloser(strings.NewReader("precious"))
	resp, err := retryhttp.New(script.New(script.Status(503), script.Status(200)), noWait).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 503, resp.StatusCode)
	assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
}

// The server answers before it says that it wants the body, and reads it after that.
func TestBodyOfAnExpectationIsSentAfterTheResponse(t *testing.T) {
	got := make(chan string, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		all, err := io.ReadAll(r.Body)
		got <- fmt.Sprint(string(all), err)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	transport := srv.Client().Transport.(*http.Transport)
	transport.ExpectContinueTimeout = 10 * time.Millisecond
	signing := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, body)
		_ = body.Close()
		return transport.RoundTrip(req)
	})
	req, err := http.NewRequest("PUT", srv.URL, sectionBody{bytes.NewReader([]byte("content"))})
	require.NoError(t, err)
	req.ContentLength = int64(len("content"))
	req.Header.Set("Expect", "100-continue")
	resp, err := retryhttp.New(signing, retryhttp.Policy{}).RoundTrip(req)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "content<nil>", <-got)
}
