package retryhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// stalling serves the object, and stalls for an hour after n bytes of the first response.
// The rest it serves at once.
func stalling(n int) http.HandlerFunc {
	first := true
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		if first {
			first = false
			memnet.EndConnection(w, r)
			w.Header().Set("Content-Length", "36")
			_, _ = io.WriteString(w, object[:n])
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(time.Hour):
			case <-r.Context().Done():
			}
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(object))
	}
}

func TestStallEndsARead(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, base, stop := memnet.ServeProtocol(stalling(9), http2)
			defer stop()
			rt := retryhttp.New(base, retryhttp.Policy{StallTimeout: time.Second})
			resp, err := rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			time.Sleep(time.Minute) // a caller that takes its time is no stall
			_, err = io.ReadFull(resp.Body, make([]byte, 5))
			require.NoError(t, err)
			time.Sleep(time.Minute)
			began := time.Now()
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, time.Second, time.Since(began))
			assert.Equal(t, object[5:9], string(got))
			assert.EqualError(t, err, "the response body stalled for 1s")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			assert.True(t, timeout.Timeout())
			assert.True(t, temporary(timeout))
			_, err = resp.Body.Read(make([]byte, 1))
			assert.EqualError(t, err, "the response body stalled for 1s")
			require.NoError(t, resp.Body.Close())

			resp, err = rt.RoundTrip(get(t, t.Context()))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			dials := 2
			if http2 {
				dials = 1
			}
			assert.Equal(t, dials, n.Dials(), "it costs the connection, or the stream")
		})
	}
}

func TestTrickleIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
			for i := range object {
				time.Sleep(999 * time.Millisecond)
				_, _ = io.WriteString(w, object[i:i+1])
				_ = http.NewResponseController(w).Flush()
			}
		}, false)
		defer stop()
		got, err := download(t, base, retryhttp.Policy{StallTimeout: time.Second})
		require.NoError(t, err)
		assert.Equal(t, object, got)
	})
}

func TestStallIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.ServeProtocol(stalling(9), false)
		defer stop()
		p := resumes
		p.StallTimeout = time.Second
		began := time.Now()
		got, err := download(t, base, p)
		require.NoError(t, err)
		assert.Equal(t, object, got)
		assert.Equal(t, time.Second, time.Since(began))
	})
}

func TestStallThatIsNotResumedIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, base, stop := memnet.ServeProtocol(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			stalling(9)(w, r)
		}, false)
		defer stop()
		p := resumes
		p.StallTimeout = time.Second
		_, err := download(t, base, p)
		e := errorOf(t, err)
		assert.True(t, e.Timeout())
		assert.True(t, e.Temporary())
		broken, ok := e.Err.(net.Error)
		require.True(t, ok, "%T", e.Err)
		assert.True(t, broken.Timeout())
		assert.True(t, temporary(broken))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A base may lose the attempt's context. Its body is net/http's all the same.
func TestStallEndsAReadOfABaseThatLostTheContext(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, base, stop := memnet.ServeProtocol(stalling(9), http2)
			defer stop()
			forgetful := script.Step(func(req *http.Request) (*http.Response, error) {
				return base.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
			})
			began := time.Now()
			got, err := download(t, forgetful, retryhttp.Policy{StallTimeout: time.Second})
			assert.Equal(t, time.Second, time.Since(began))
			assert.EqualError(t, err, "the response body stalled for 1s")
			assert.Equal(t, object[:9], got)
		})
	}
}

func TestStallTimeoutLeavesA101Alone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			return script.Respond(101, &conn{Reader: &bodies.Hooked{OnRead: func([]byte) (int, error) {
				select {
				case <-req.Context().Done():
					return 0, req.Context().Err()
				case <-time.After(time.Hour):
					return 1, nil
				}
			}}})(req)
		})
		resp, err := retryhttp.New(base, retryhttp.Policy{StallTimeout: time.Second}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		n, err := resp.Body.Read(make([]byte, 1))
		assert.NoError(t, err)
		assert.Equal(t, 1, n)
	})
}

// endsCleanly answers with a body that ends as if it were whole when its attempt ends.
func endsCleanly(req *http.Request) (*http.Response, error) {
	pr, pw := io.Pipe()
	go func() {
		_, _ = io.WriteString(pw, object[:9])
		<-req.Context().Done()
		_ = pw.Close()
	}()
	return script.Respond(200, pr)(req)
}

// A body that the Transport itself has ended is not whole, however it ends.
func TestCleanEndAfterATimeLimitIsNoEnd(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"stall":                      {StallTimeout: time.Second},
		"stall of a buffered body":   {StallTimeout: time.Second, BufferBytes: 100, MaxAttempts: 1},
		"timeout of a buffered body": {AttemptTimeout: time.Second, BufferBytes: 100, MaxAttempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := &countingBudget{}
				p.Budget = budget
				got, err := download(t, script.New(endsCleanly), p)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, object[:9], got)
				if p.BufferBytes > 0 {
					assert.Zero(t, budget.deposit)
				}
			})
		})
	}
}

// panicking is a body that may be closed while it is read, and panics.
type panicking struct{ ctx context.Context }

func (p panicking) Read([]byte) (int, error) {
	<-p.ctx.Done()
	return 0, p.ctx.Err()
}
func (panicking) Close() error            { panic("no") }
func (panicking) ClosableWhileRead() bool { return true }

func TestPanicOfCloseAtAStallIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := script.Step(func(req *http.Request) (*http.Response, error) {
			return script.Respond(200, panicking{req.Context()})(req)
		})
		resp, err := retryhttp.New(base, retryhttp.Policy{StallTimeout: time.Second}).RoundTrip(get(t, t.Context()))
		require.NoError(t, err)
		_, err = resp.Body.Read(make([]byte, 1))
		assert.EqualError(t, err, "the response body stalled for 1s")
		synctest.Wait()
	})
}
