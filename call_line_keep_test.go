package retryhttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/script"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKeepingAResponseEndsInTime(t *testing.T) {
	for name, inLine := range map[string]bool{"in line": true, "with a token": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				b := &asking{asked: func(*http.Request) bool { return !inLine || time.Since(start) > 10*ms }}
				l := newLining(t, func(p *retryhttp.Policy) {
					p.Budget, p.MaxElapsed, p.Backoff = b, 50*ms, retryhttp.Constant(10*ms)
				})
				l.body = func() io.ReadCloser {
					r, w := io.Pipe()
					go func() { time.Sleep(240 * ms); _ = w.Close() }()
					return r
				}
				_, o, _ := l.ask("/503,200")
				time.Sleep(time.Second)
				if o.Attempts > 1 {
					assert.LessOrEqual(t, o.Elapsed, 50*ms, "the last attempt's start")
				}
			})
		})
	}
}

func TestRequestIsCanceledWhileItsResponseIsKept(t *testing.T) {
	for name, heeds := range map[string]bool{"a body that ends with its context": true, "another body": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				l := newLining(t, nil)
				l.body = func() io.ReadCloser {
					r, w := io.Pipe()
					if heeds {
						context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
					} else {
						time.AfterFunc(time.Second, func() { _ = w.Close() })
					}
					return r
				}
				time.AfterFunc(50*ms, cancel)
				resp, err := l.rt.RoundTrip(l.request("/503,200").WithContext(ctx))
				assert.LessOrEqual(t, time.Since(l.start), 61*ms, "promptly")
				if err != nil {
					assert.Equal(t, retryhttp.StopCanceled, errorOf(t, err).Stop)
				} else {
					assert.Equal(t, retryhttp.StopCanceled, retryhttp.OutcomeOf(resp).Stop)
					_ = resp.Body.Close()
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}

func TestTimeOfKeepingAResponseIsWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, nil)
		l.body = func() io.ReadCloser {
			r, w := io.Pipe()
			time.AfterFunc(time.Second, func() { _ = w.Close() })
			return r
		}
		resp, o, took := l.ask("/503,200")
		assert.Equal(t, took, o.Waited)
		assert.NoError(t, resp.Body.Close())
		time.Sleep(time.Second)
	})
}

func TestBufferedResponseIsNotAwaitedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) { p.BufferBytes = 1 << 10 })
		l.body = func() io.ReadCloser {
			r, w := io.Pipe()
			time.AfterFunc(time.Second, func() { _ = w.Close() })
			return r
		}
		resp, _, took := l.ask("/503,200")
		assert.Equal(t, 250*ms+100*ms, took, "the time for a body, and the backoff")
		assert.NoError(t, resp.Body.Close())
		time.Sleep(2 * time.Second)
	})
}

func TestLongBufferedResponseIsNotKeptInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLining(t, func(p *retryhttp.Policy) { p.BufferBytes = 1 << 20 })
		l.body = func() io.ReadCloser { return io.NopCloser(strings.NewReader(strings.Repeat("x", 1<<20))) }
		l.at(50*ms, "/200")
		resp, _, took := l.ask("/503,200")
		assert.Equal(t, 100*ms, took, "its backoff: a mebibyte is not kept in line")
		assert.NoError(t, resp.Body.Close())
		l.others.Wait()
	})
}

func TestShortResponseOfAnyMediaTypeIsKept(t *testing.T) {
	for _, media := range []string{"text/plain", "text/event-stream", "application/x-ndjson", "application/grpc"} {
		t.Run(media, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spent := &retryhttp.TokenBucket{Burst: 1}
				require.True(t, withdraw(spent, requestTo("host")))
				var n atomic.Int64
				rt := retryhttp.New(script.Step(func(r *http.Request) (*http.Response, error) {
					resp := &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}}
					if r.URL.Path == "/fails" && n.Add(1) == 1 {
						resp.StatusCode, resp.ContentLength = 503, 5
						resp.Body = io.NopCloser(strings.NewReader("sorry"))
						resp.Header.Set("Content-Type", media)
					}
					return resp, nil
				}), retryhttp.Policy{Budget: spent, Backoff: retryhttp.Constant(100 * ms)})
				for _, d := range []time.Duration{40 * ms, 60 * ms} {
					time.AfterFunc(d, func() { _, _ = rt.RoundTrip(requestTo("host")) })
				}
				req := requestTo("host")
				req.URL.Path = "/fails"
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode)
				time.Sleep(time.Second)
			})
		})
	}
}

func TestKeptBodyThatPanicsIsClosedOnce(t *testing.T) {
	for name, read := range map[string]bool{"Read panics": true, "Close panics": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closes := 0
				l := newLining(t, nil)
				l.body = func() io.ReadCloser {
					text := strings.NewReader("sorry")
					return &bodies.Hooked{OnRead: func(p []byte) (int, error) {
						if read {
							panic("no")
						}
						return text.Read(p)
					}, OnClose: func() {
						closes++
						if !read {
							panic("no")
						}
					}}
				}
				l.at(40*ms, "/200,a")
				l.at(300*ms, "/200,b")
				assert.Panics(t, func() { _, _ = l.rt.RoundTrip(l.request("/503,200")) })
				l.others.Wait()
				assert.Equal(t, 1, closes)
			})
		})
	}
}
