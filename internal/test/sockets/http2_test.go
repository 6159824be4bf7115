package sockets_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/bodies"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestHTTP2ResponsesAndResetsAreRetried(t *testing.T) {
	var attempts atomic.Int32
	url, base := loopback.ServeTLS(t, true, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch attempts.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // RST_STREAM
		default:
			_, _ = w.Write(body)
		}
	})
	req, err := http.NewRequest("PUT", url, io.MultiReader(strings.NewReader("content")))
	require.NoError(t, err)
	resp, err := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(0)}).RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 2, resp.ProtoMajor)
	assert.Equal(t, "content", string(body))
	assert.Equal(t, 3, retryhttp.OutcomeOf(resp).Attempts)
}

// refuseStreams speaks just enough HTTP/2 to answer requests with RST_STREAM and
// code, and from the n-th on with an empty 200.
func refuseStreams(c net.Conn, code uint32, n int32, seen *atomic.Int32) {
	defer c.Close()
	const (
		headers, rstStream, settings, ping = 1, 3, 4, 6
		endStream, endHeaders, ack         = 1, 4, 1
	)
	frames := make(chan []byte, 100) // net.Pipe has no buffer, and both sides write
	defer close(frames)
	go func() {
		for f := range frames {
			if _, err := c.Write(f); err != nil {
				return
			}
		}
	}()
	send := func(kind, flags byte, stream uint32, payload ...byte) {
		f := []byte{0, 0, byte(len(payload)), kind, flags}
		frames <- append(binary.BigEndian.AppendUint32(f, stream), payload...)
	}
	if _, err := io.CopyN(io.Discard, c, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	send(settings, 0, 0)
	for {
		var h [9]byte
		if _, err := io.ReadFull(c, h[:]); err != nil {
			return
		}
		payload := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return
		}
		stream := binary.BigEndian.Uint32(h[5:])
		switch {
		case h[3] == settings && h[4]&ack == 0:
			send(settings, ack, 0)
		case h[3] == ping && h[4]&ack == 0:
			send(ping, ack, 0, payload...)
		case h[3] == headers && seen.Add(1) < n:
			send(rstStream, 0, stream, binary.BigEndian.AppendUint32(nil, code)...)
		case h[3] == headers:
			send(headers, endStream|endHeaders, stream, 0x88) // :status 200, by its index in the static table
		}
	}
}

// withoutDetours is a base in which all attempts take the pool.
type withoutDetours struct{ *http.Transport }

func TestHTTP2RefusedStreamsAreUnprocessed(t *testing.T) {
	const refused, internalError, protocolError, never = 7, 2, 1, 1 << 30
	cases := []struct {
		name     string
		code     uint32
		success  int32 // the first stream that is answered
		policy   retryhttp.Policy
		attempts int
		status   int
		streams  int32
	}{
		{"a POST", refused, never, retryhttp.Policy{}, 1, 0, 1},
		{
			"a POST that may be repeated if unprocessed", refused, never,
			retryhttp.Policy{RetryUnprocessed: true, MaxAttempts: 2}, 2, 0, 2,
		},
		{"and succeeds in the end", refused, 2, retryhttp.Policy{RetryUnprocessed: true}, 2, 200, 2},
		// With a GetBody, net/http itself tries a refused stream eight times.
		{"a PUT", refused, never, retryhttp.Policy{MaxAttempts: 2}, 2, 0, 16},
		{"another error may have been processed", internalError, never, retryhttp.Policy{RetryUnprocessed: true}, 1, 0, 1},
		// With a GetBody, net/http would send this again forever.
		{"a protocol error proves nothing", protocolError, 20, retryhttp.Policy{RetryUnprocessed: true}, 1, 0, 1},
		{"nor within a time limit", protocolError, 20, retryhttp.Policy{AttemptTimeout: time.Hour}, 1, 0, 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen atomic.Int32
				n := memnet.New()
				defer n.Close()
				go func() {
					for {
						c, err := n.Accept()
						if err != nil {
							return
						}
						go refuseStreams(c, tc.code, tc.success, &seen)
					}
				}()
				base := &http.Transport{DialContext: n.Dial, Protocols: new(http.Protocols)}
				base.Protocols.SetUnencryptedHTTP2(true)
				defer base.CloseIdleConnections()
				var classes []retryhttp.Class
				tc.policy.Classify = func(a retryhttp.Attempt) retryhttp.Class {
					classes = append(classes, retryhttp.Classify(a))
					return classes[len(classes)-1]
				}
				method, _, _ := strings.Cut(strings.TrimPrefix(tc.name, "a "), " ")
				if method != "PUT" {
					method = "POST"
				}
				req, err := http.NewRequest(method, "http://server/", io.MultiReader(strings.NewReader("content")))
				require.NoError(t, err)
				req.ContentLength = 7
				resp, err := retryhttp.New(withoutDetours{base}, tc.policy).RoundTrip(req)
				if tc.status == 0 {
					e := errorOf(t, err)
					assert.Equal(t, tc.attempts, e.Attempts)
					assert.Equal(t, tc.code != refused, e.Ambiguous)
				} else {
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					assert.Equal(t, tc.status, resp.StatusCode)
					assert.Equal(t, tc.attempts, retryhttp.OutcomeOf(resp).Attempts)
					assert.False(t, retryhttp.OutcomeOf(resp).Ambiguous)
				}
				assert.Equal(t, tc.streams, seen.Load())
				want := retryhttp.Unprocessed
				if tc.code != refused {
					want = retryhttp.Retryable
				}
				assert.Equal(t, want, classes[0])
				time.Sleep(time.Minute) // what net/http keeps for a closed stream
			})
		})
	}
}

// The relayed client waits for 100-continue or a final status; the backend
// speaks HTTP/2 and answers 413 at once, or closes the connection after it.
func TestHTTP2RelayOfExpectContinue(t *testing.T) {
	for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
		"bare":      func(rt http.RoundTripper) http.RoundTripper { return rt },
		"retryhttp": func(rt http.RoundTripper) http.RoundTripper { return retryhttp.New(rt, retryhttp.Policy{}) },
	} {
		t.Run(name, func(t *testing.T) {
			backend, base := loopback.ServeTLS(t, true, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(413)
			})
			base.ExpectContinueTimeout = time.Minute
			rt := wrap(base)
			hung := 0
			relay := loopback.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				out := r.Clone(r.Context())
				out.RequestURI = ""
				out.URL, _ = url.Parse(backend)
				out.Host = ""
				resp, err := rt.RoundTrip(out)
				if err != nil {
					w.WriteHeader(502)
					return
				}
				w.WriteHeader(resp.StatusCode)
				w.(http.Flusher).Flush()
				resp.Body.Close()
			})
			for range 20 {
				c, err := net.Dial("tcp", strings.TrimPrefix(relay, "http://"))
				require.NoError(t, err)
				fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
				c.SetReadDeadline(time.Now().Add(10 * time.Second)) // it hangs, or answers at once
				if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
					hung++
				}
				c.Close()
			}
			assert.Zero(t, hung, "of 20 clients got no status line within 500 ms")
		})
	}
}

// The server answers before it asks for the body, and reads the body after that.
func TestHTTP2BodyOfAnExpectationIsSentAfterTheResponse(t *testing.T) {
	got := make(chan string, 1)
	url, base := loopback.ServeTLS(t, true, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		all, err := io.ReadAll(r.Body)
		got <- fmt.Sprint(string(all), err)
	})
	base.ExpectContinueTimeout = 10 * time.Millisecond
	signing := script.Step(func(req *http.Request) (*http.Response, error) {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, body)
		_ = body.Close()
		return base.RoundTrip(req)
	})
	req, err := http.NewRequest("PUT", url, bodies.ReaderAt(bytes.NewReader([]byte("content"))))
	require.NoError(t, err)
	req.ContentLength = int64(len("content"))
	req.Header.Set("Expect", "100-continue")
	resp, err := retryhttp.New(signing, retryhttp.Policy{}).RoundTrip(req)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "content<nil>", <-got)
}

// refusesOnce is a Budget that hears of failures, and refuses the first retry once.
type refusesOnce struct {
	retryhttp.Unlimited
	asked atomic.Bool
}

func (b *refusesOnce) Withdraw(retryhttp.Retry) (cost float64, ok bool) {
	return 1, b.asked.Swap(true)
}

// The response to a HEAD has no body, so there is nothing to keep while its retry waits in line.
func TestRefusedRetryOfAHEADAsksAgain(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			var attempts atomic.Int64
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if attempts.Add(1) == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			s.EnableHTTP2 = http2
			s.StartTLS()
			defer s.Close()
			c := s.Client()
			c.Transport = retryhttp.New(c.Transport, retryhttp.Policy{
				Budget: new(refusesOnce), Backoff: retryhttp.Constant(time.Millisecond),
			})
			resp, err := c.Head(s.URL)
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, resp.StatusCode)
		})
	}
}
