package benchmarks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp/internal/test/script"
)

// verdict is whether a peer does the good thing, and if not, which of its options
// does. The note says how it does that, or what it does instead.
type verdict struct {
	yes    bool
	note   string
	option string
}

func (v verdict) String() string {
	text := "no"
	switch {
	case v.yes:
		text = "yes"
	case v.option != "":
		text = "with " + v.option
	}
	if v.note != "" {
		text += ": " + v.note
	}
	return text
}

// good reports whether the peer does the good thing, with an option if need be.
func (v verdict) good() bool { return v.yes || v.option != "" }

// probe tries one good thing.
type probe struct {
	name   string
	legend string // what precisely is tried
	run    func(*testing.T, peer) verdict
}

// backoff is the wait of the probes where nothing else is said.
const backoff = 10 * time.Millisecond

// These have a line of their own at a glance.
const (
	brokenJSON     = "a short body that breaks off arrives whole"
	brokenDownload = "a download that breaks off arrives whole"
)

var probes = []probe{
	{
		"a POST without a key is sent once",
		"A POST with a body, answered 503.",
		inBubble(func(t *testing.T, p peer) verdict {
			base := script.New(script.Status(503), script.Status(200))
			_, _, _ = exchange(p.build(base, settings{attempts: 3, wait: backoff}), newPost(t))
			return verdict{yes: len(base.Requests()) == 1}
		}),
	},
	{
		"Retry-After in seconds is honored",
		"A 503 with `Retry-After: 30`; the backoff is 10 ms. Yes: the next attempt comes 30 s later or more.",
		inBubble(func(t *testing.T, p peer) verdict { return honors(t, p, func(time.Time) string { return "30" }) }),
	},
	{
		"Retry-After as an IMF-fixdate is honored",
		"As before, with the date in 30 s: `Sat, 01 Jan 2000 00:00:30 GMT`.",
		inBubble(func(t *testing.T, p peer) verdict {
			return honors(t, p, func(at time.Time) string { return at.Format(http.TimeFormat) })
		}),
	},
	{
		"Retry-After as an RFC 850 date is honored",
		"As before: `Saturday, 01-Jan-00 00:00:30 GMT`. RFC 9110, section 5.6.7: a recipient MUST accept all three.",
		inBubble(func(t *testing.T, p peer) verdict {
			return honors(t, p, func(at time.Time) string { return at.Format("Monday, 02-Jan-06 15:04:05 GMT") })
		}),
	},
	{
		"Retry-After as an asctime date is honored",
		"As before: `Sat Jan  1 00:00:30 2000`.",
		inBubble(func(t *testing.T, p peer) verdict {
			return honors(t, p, func(at time.Time) string { return at.Format(time.ANSIC) })
		}),
	},
	{
		"a Retry-After of an hour comes back at once",
		"A 503 with `Retry-After: 3600`, with the default cap. Yes: within a second the caller has that response.",
		inBubble(func(t *testing.T, p peer) verdict {
			base := script.New(script.Status(503, "Retry-After", "3600"), script.Status(200))
			start := time.Now()
			status, _, _ := exchange(p.build(base, settings{attempts: 3, wait: backoff}), newGet(t))
			if took := time.Since(start); took >= time.Second {
				return verdict{note: fmt.Sprintf("waits %.0f min", took.Minutes())}
			}
			if len(base.Requests()) > 1 {
				return verdict{note: "tries again at once"}
			}
			return verdict{yes: status == 503}
		}),
	},
	{
		"a huge Retry-After is not taken for none",
		"A 503 with `Retry-After: 9223372037`, whose nanoseconds overflow 64 bits, or with `99999999999999999999`. " +
			"Yes: there is no other attempt within two hours.",
		inBubble(func(t *testing.T, p peer) verdict {
			var early []string
			for _, value := range []string{"9223372037", "99999999999999999999"} {
				base := script.New(script.Status(503, "Retry-After", value), script.Status(200))
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(2*time.Hour, cancel)
				_, _, _ = exchange(p.build(base, settings{attempts: 3, wait: backoff}), newGet(t).WithContext(ctx))
				cancel()
				if len(base.Requests()) > 1 {
					early = append(early, value)
				}
			}
			if len(early) == 1 {
				return verdict{note: "of " + early[0]}
			}
			return verdict{yes: len(early) == 0}
		}),
	},
	{
		"a wait that would outlast the deadline is not begun",
		"A 503, a backoff of 10 s, and a deadline in 5 s. Yes: the caller has that response at once.",
		inBubble(func(t *testing.T, p peer) verdict {
			base := script.New(script.Status(503), script.Status(200))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			status, _, err := exchange(p.build(base, settings{attempts: 3, wait: 10 * time.Second}), newGet(t).WithContext(ctx))
			if took := time.Since(start); took > 0 {
				return verdict{note: fmt.Sprintf("%s after %v", outcomeOf(status, err), took.Round(time.Second))}
			}
			return verdict{yes: status == 503}
		}),
	},
	{
		"the end of the context ends a wait",
		"A 503, a backoff of an hour, and a context that is canceled after a second. Yes: the call ends then.",
		inBubble(func(t *testing.T, p peer) verdict {
			base := script.New(script.Status(503), script.Status(200))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			start := time.Now()
			_, _, _ = exchange(p.build(base, settings{attempts: 3, wait: time.Hour}), newGet(t).WithContext(ctx))
			return verdict{yes: time.Since(start) == time.Second}
		}),
	},
	{
		"failed responses are closed",
		"Two 503 and a 200. Yes: the bodies of both failures have been closed when the call ends.",
		inBubble(func(t *testing.T, p peer) verdict {
			closed := 0
			fail := func(req *http.Request) (*http.Response, error) {
				resp := script.Response(req, 503)
				resp.Body = &closeCounter{Reader: resp.Body, closes: &closed}
				return resp, nil
			}
			c := p.build(script.New(fail, fail, script.Status(200)), settings{attempts: 3, wait: backoff})
			_, _, _ = exchange(c, newGet(t))
			return verdict{yes: closed >= 2}
		}),
	},
	{
		"a failed response that stalls does not hold up the retry",
		"A 503 whose body gives nothing for a minute, and a 200. Yes: the caller has the 200 within ten seconds.",
		inBubble(func(t *testing.T, p peer) verdict {
			stall := func(req *http.Request) (*http.Response, error) {
				resp := script.Response(req, 503)
				resp.Body = &stalled{closed: make(chan struct{})}
				return resp, nil
			}
			start := time.Now()
			c := p.build(script.New(stall, script.Status(200)), settings{attempts: 3, wait: backoff})
			status, _, _ := exchange(c, newGet(t))
			return verdict{yes: status == 200 && time.Since(start) < 10*time.Second}
		}),
	},
	{
		"the last response is kept",
		"Every answer is a 503. Yes: the caller gets the last one, with its body unread, and a nil error.",
		inBubble(func(t *testing.T, p peer) verdict {
			keeps := func(keep bool) bool {
				base := script.New(script.Status(503))
				status, body, err := exchange(p.build(base, settings{attempts: 3, wait: backoff, keepLast: keep}), newGet(t))
				return err == nil && status == 503 && body == "body of 503"
			}
			v := verdict{yes: keeps(false)}
			if !v.yes && p.keepLast != "" && keeps(true) {
				v.option = p.keepLast
			}
			return v
		}),
	},
	{
		"the caller's request is left as it was",
		"A PUT with a body and a GetBody, answered 503 and 200. Yes: no field of the caller's *http.Request has changed. " +
			"http.RoundTripper's contract demands that.",
		inBubble(func(t *testing.T, p peer) verdict {
			req := newPut(t, new(int))
			before := *req
			header := maps.Clone(req.Header)
			c := p.build(script.New(script.Status(503), script.Status(200)), settings{attempts: 3, wait: backoff})
			_, _, _ = exchange(c, req)
			var changed []string
			if !maps.EqualFunc(req.Header, header, slices.Equal) {
				changed = append(changed, "Header")
			}
			was, is := reflect.ValueOf(before), reflect.ValueOf(*req)
			for i := range was.NumField() {
				if name := was.Type().Field(i).Name; name != "Header" && !same(was.Field(i), is.Field(i)) {
					changed = append(changed, name)
				}
			}
			return verdict{yes: len(changed) == 0, note: strings.Join(changed, ", ")}
		}),
	},
	{
		"the caller's body is closed, once",
		"A PUT that succeeds at once, and one that is answered 503 and 200. Yes: the caller's body was closed exactly once " +
			"by the end of each, as in net/http.",
		inBubble(func(t *testing.T, p peer) verdict {
			var closes []string
			yes := true
			for _, base := range []http.RoundTripper{
				script.New(script.Status(200)),
				script.New(script.Status(503), script.Status(200)),
			} {
				n := 0
				_, _, _ = exchange(p.build(base, settings{attempts: 3, wait: backoff}), newPut(t, &n))
				synctest.Wait()
				yes = yes && n == 1
				closes = append(closes, fmt.Sprint(n))
			}
			if yes {
				return verdict{yes: true}
			}
			return verdict{note: strings.Join(closes, " and ") + " times"}
		}),
	},
	{
		"CloseIdleConnections reaches the base",
		"The method of http.Client. Yes: the base's method is called. Libraries with their own client have no such method.",
		inBubble(func(t *testing.T, p peer) verdict {
			base := &idle{RoundTripper: script.New(script.Status(200))}
			c, ok := p.build(base, settings{attempts: 3, wait: backoff}).(interface{ CloseIdleConnections() })
			if !ok {
				return verdict{note: "no such method"}
			}
			c.CloseIdleConnections()
			return verdict{yes: base.closed}
		}),
	},
	{
		"a 101 can be written to",
		"A 101 whose body is an io.ReadWriteCloser, as net/http's is. Yes: it still is one for the caller.",
		inBubble(func(t *testing.T, p peer) verdict {
			base := script.New(func(req *http.Request) (*http.Response, error) {
				resp := script.Response(req, 101)
				resp.Body = struct {
					io.ReadCloser
					io.Writer
				}{resp.Body, io.Discard}
				return resp, nil
			})
			resp, err := p.build(base, settings{attempts: 3, wait: backoff}).Do(newGet(t))
			if err != nil {
				return verdict{note: err.Error()}
			}
			defer resp.Body.Close()
			_, ok := resp.Body.(io.ReadWriteCloser)
			return verdict{yes: ok}
		}),
	},
	{
		"a host that does not exist is looked up once",
		"The DialContext of an http.Transport returns the *net.DNSError of a name that was not found. Yes: it is called once.",
		inBubble(func(t *testing.T, p peer) verdict {
			return dials(t, p, &net.DNSError{Err: "no such host", Name: "host.example", IsNotFound: true}, 1)
		}),
	},
	{
		"a refused connection is tried again",
		"The DialContext of an http.Transport returns ECONNREFUSED, as during a restart. Yes: it is called 3 times.",
		inBubble(func(t *testing.T, p peer) verdict { return dials(t, p, syscall.ECONNREFUSED, 3) }),
	},
	{
		"an unknown authority is met once",
		"A TLS server on loopback with a certificate that the client does not trust. Yes: it is dialed once.",
		unknownAuthority,
	},
	{
		brokenJSON,
		"A GET of 2 KiB of JSON. After 1 KiB comes io.ErrUnexpectedEOF. The next answer is whole. Yes: the caller reads all of it. " +
			"Only here and in the next line does azcore download bodies, as by default.",
		inBubble(shortBodyBreaksOff),
	},
	{
		brokenDownload,
		"A GET of 4 MiB with a strong ETag, whose body breaks off in the middle. The server serves ranges. Yes: the caller " +
			"reads all of it. \"From its start\": all 4 MiB were sent again, and come from memory.",
		inBubble(downloadBreaksOff),
	},
	{
		"a 200 can be an error by its content",
		"A GET. The first answer is a 200 with an error in JSON, the second has data. Yes: the caller gets the data.",
		inBubble(errorInA200),
	},
}

// inBubble has a probe run in virtual time, where an hour's wait is over at once
// and a duration is exact.
func inBubble(run func(*testing.T, peer) verdict) func(*testing.T, peer) verdict {
	return func(t *testing.T, p peer) (v verdict) {
		synctest.Test(t, func(t *testing.T) {
			v = run(t, p)
			time.Sleep(time.Hour) // in which a Read that was left behind ends
		})
		return v
	}
}

func newGet(t *testing.T) *http.Request {
	req, err := newRequest(t.Context(), "GET", nowhere, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func newPost(t *testing.T) *http.Request {
	req, err := newRequest(t.Context(), "POST", nowhere, strings.NewReader("a body"))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// newPut returns a request with a GetBody and a body that counts its closes.
func newPut(t *testing.T, closes *int) *http.Request {
	req, err := newRequest(t.Context(), "PUT", nowhere, &seekCounter{bytes.NewReader([]byte("a body")), closes})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/plain")
	req.ContentLength = int64(len("a body"))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("a body")), nil }
	return req
}

type seekCounter struct {
	*bytes.Reader
	closes *int
}

func (s *seekCounter) Close() error {
	*s.closes++
	return nil
}

type closeCounter struct {
	io.Reader
	closes *int
}

func (c *closeCounter) Close() error {
	*c.closes++
	return nil
}

// stalled is a body that ends after a minute, or when it is closed.
type stalled struct {
	closed chan struct{}
	once   sync.Once
}

func (s *stalled) Read([]byte) (int, error) {
	select {
	case <-s.closed:
		return 0, http.ErrBodyReadAfterClose
	case <-time.After(time.Minute):
		return 0, io.EOF
	}
}

func (s *stalled) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

type idle struct {
	http.RoundTripper
	closed bool
}

func (i *idle) CloseIdleConnections() { i.closed = true }

// exchange sends req and reads the response.
func exchange(d doer, req *http.Request) (status int, body string, err error) {
	resp, err := d.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func outcomeOf(status int, err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "the context's error"
	case err != nil:
		return "an error"
	}
	return fmt.Sprint("a ", status)
}

// honors tries a Retry-After of half a minute, which header writes.
func honors(t *testing.T, p peer, header func(at time.Time) string) verdict {
	base := script.New(script.Status(503, "Retry-After", header(time.Now().UTC().Add(30*time.Second))), script.Status(200))
	_, _, _ = exchange(p.build(base, settings{attempts: 3, wait: backoff}), newGet(t))
	waits := base.Waits()
	return verdict{yes: len(waits) == 1 && waits[0] >= 30*time.Second}
}

// dials counts how often a peer has a connection dialed that fails with err.
func dials(t *testing.T, p peer, err error, want int) verdict {
	n := 0
	base := &http.Transport{DialContext: func(_ context.Context, network, _ string) (net.Conn, error) {
		n++
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}}
	_, _, _ = exchange(p.build(base, settings{attempts: 3, wait: backoff}), newGet(t))
	return verdict{yes: n == want}
}

func unknownAuthority(t *testing.T, p peer) verdict {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	var n atomic.Int64
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	req, err := newRequest(t.Context(), "GET", srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, _ = exchange(p.build(base, settings{attempts: 3, wait: time.Millisecond}), req)
	return verdict{yes: n.Load() == 1}
}

// same compares a field of two requests, functions and maps as pointers.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func, reflect.Map, reflect.Slice:
		return a.Pointer() == b.Pointer()
	}
	return a.Equal(b)
}
