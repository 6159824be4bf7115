package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

func TestErrorText(t *testing.T) {
	gaveUp := func(attempts int, elapsed time.Duration, stop retryhttp.Stop, err error) *retryhttp.Error {
		return &retryhttp.Error{
			Outcome: retryhttp.Outcome{Attempts: attempts, Elapsed: elapsed, Stop: stop},
			Err:     err,
		}
	}
	cases := []struct {
		name string
		err  *retryhttp.Error
		want string
	}{
		{"one attempt", gaveUp(1, 0, retryhttp.StopFinal, errBroken), "connection broken"},
		{"one attempt was allowed", gaveUp(1, 0, retryhttp.StopAttempts, errBroken), "connection broken"},
		{"not safe to repeat", gaveUp(1, time.Second, retryhttp.StopNotIdempotent, errBroken), "connection broken"},
		{"no token", gaveUp(1, 0, retryhttp.StopBudget, errBroken), "connection broken"},
		{
			"several", gaveUp(4, 1234567*time.Microsecond, retryhttp.StopAttempts, errBroken),
			"gave up after 4 attempts in 1.235s (attempts): connection broken",
		},
		{
			"nested", gaveUp(4, 0, retryhttp.StopNested, gaveUp(4, time.Second, retryhttp.StopBudget, errBroken)),
			"gave up after 4 attempts in 1s (budget): connection broken",
		},
		{
			"nested, one attempt",
			gaveUp(1, 0, retryhttp.StopNested, gaveUp(1, 0, retryhttp.StopNotIdempotent, errBroken)),
			"connection broken",
		},
		{
			"nested, by hand", gaveUp(2, time.Second, retryhttp.StopNested, errBroken),
			"gave up after 2 attempts in 1s (nested): connection broken",
		},
		{
			"over another request's",
			gaveUp(4, 2*time.Second, retryhttp.StopAttempts, gaveUp(4, time.Second, retryhttp.StopBudget, errBroken)),
			"gave up after 4 attempts in 2s (attempts): gave up after 4 attempts in 1s (budget): connection broken",
		},
		{
			"nested, after others",
			gaveUp(3, 2*time.Second, retryhttp.StopNested, gaveUp(1, 0, retryhttp.StopNotIdempotent, errBroken)),
			"gave up after 3 attempts in 2s (nested): connection broken",
		},
		{"no Stop", gaveUp(2, 0, "", errBroken), "gave up after 2 attempts in 0s (no reason was recorded): connection broken"},
		{"made by hand", &retryhttp.Error{}, "no error was recorded"},
		{
			"a URL with secrets",
			&retryhttp.Error{
				Outcome: retryhttp.Outcome{Attempts: 1},
				Err: fmt.Errorf("base: %w",
					&url.Error{Op: "Get", URL: "https://user:pass@host.example/path?token=secret#frag", Err: errBroken}),
			},
			`base: Get "https://host.example/path": connection broken`,
		},
		{
			"a URL that is none",
			&retryhttp.Error{
				Outcome: retryhttp.Outcome{Attempts: 1}, Err: &url.Error{Op: "Get", URL: "http://h\x7f/?secret", Err: errBroken},
			},
			`Get "invalid URL": connection broken`,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			assert.EqualError(t, tc.err, tc.want)
		})
	}
}

// Programs read codes from the texts of HTTP/2's errors.
func TestErrorTextEndsWithTheBasesText(t *testing.T) {
	const text = "stream error: stream ID 1; INTERNAL_ERROR; received from peer"
	failed := errors.New(text)
	for name, tc := range map[string]struct {
		edit   func(*http.Request)
		policy retryhttp.Policy
		stop   retryhttp.Stop
		want   string
	}{
		"not safe to repeat": {
			edit: func(r *http.Request) { r.Method = "POST" }, stop: retryhttp.StopNotIdempotent, want: text,
		},
		"no body": {
			edit: func(r *http.Request) {
				r.Method, r.Body = "PUT", io.NopCloser(strings.NewReader("x"))
				r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
			},
			stop: retryhttp.StopBody, want: text,
		},
		"no body for a third attempt": {
			edit: func(r *http.Request) {
				r.Method, r.Body = "PUT", io.NopCloser(strings.NewReader("x"))
				opened := false
				r.GetBody = func() (io.ReadCloser, error) {
					if opened {
						return nil, errors.New("the file is gone")
					}
					opened = true
					return io.NopCloser(strings.NewReader("x")), nil
				}
			},
			stop: retryhttp.StopBody,
			want: "gave up after 2 attempts in 0s (body): no body for a retry: the file is gone: " + text,
		},
		"no token":      {policy: retryhttp.Policy{Budget: &countingBudget{refuse: true}}, stop: retryhttp.StopBudget, want: text},
		"no time":       {policy: retryhttp.Policy{MaxElapsed: 1, Backoff: retryhttp.Constant(time.Hour)}, stop: retryhttp.StopDeadline, want: text},
		"four attempts": {stop: retryhttp.StopAttempts, want: "gave up after 4 attempts in 0s (attempts): " + text},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.policy.Backoff == nil {
					tc.policy.Backoff = retryhttp.Constant(0)
				}
				req := get(t, t.Context())
				if tc.edit != nil {
					tc.edit(req)
				}
				_, err := retryhttp.New(script.New(script.Fail(failed)), tc.policy).RoundTrip(req) //nolint:bodyclose // there is none
				assert.Equal(t, tc.stop, errorOf(t, err).Stop)
				assert.EqualError(t, err, tc.want)
				assert.ErrorIs(t, err, failed)
			})
		})
	}
}

func TestErrorTimeout(t *testing.T) {
	failed := func(err error) *retryhttp.Error { return &retryhttp.Error{Err: err} }
	assert.False(t, failed(errBroken).Timeout())
	assert.True(t, failed(os.ErrDeadlineExceeded).Timeout())
	assert.True(t, failed(fmt.Errorf("wrapped: %w", context.DeadlineExceeded)).Timeout())
	var _ interface{ Timeout() bool } = failed(errBroken)

	// A deadline ends the wait after an error that is no timeout.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(context.DeadlineExceeded) })
		p := retryhttp.Policy{Backoff: retryhttp.Constant(time.Hour)}
		client := &http.Client{Transport: retryhttp.New(script.New(script.Fail(&url.Error{Op: "x", Err: errBroken})), p)}
		_, err := client.Do(get(t, ctx)) //nolint:bodyclose // there is none
		var outer *url.Error
		require.ErrorAs(t, err, &outer)
		assert.True(t, outer.Timeout())
	})
}

func TestErrorTemporary(t *testing.T) {
	failed := func(err error) *retryhttp.Error { return &retryhttp.Error{Err: err} }
	var _ net.Error = failed(nil)
	assert.False(t, failed(nil).Temporary())
	assert.False(t, failed(errBroken).Temporary())
	assert.False(t, failed(context.Canceled).Temporary())
	assert.True(t, failed(os.ErrDeadlineExceeded).Temporary())
	assert.True(t, failed(&net.DNSError{IsTemporary: true}).Temporary())
	assert.True(t, failed(errors.Join(errBroken, fmt.Errorf("wrapped: %w", context.DeadlineExceeded))).Temporary())
}

// temporary asks err itself, as programs do that look for no type.
func temporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// Programs above ask a *url.Error, and without this library they get the base's own answer.
func TestErrorAnswersAURLErrorAsTheBasesOwnErrorDoes(t *testing.T) {
	for name, failure := range map[string]error{
		"timeout":      &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded},
		"reset":        &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
		"full":         &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)},
		"name server":  &net.DNSError{Err: "server misbehaving", IsTemporary: true},
		"no such host": &net.DNSError{Err: "no such host", IsNotFound: true},
		"neither":      errBroken,
	} {
		t.Run(name, func(t *testing.T) {
			answers := func(rt http.RoundTripper) [2]bool {
				client := &http.Client{Transport: rt}
				_, err := client.Get("http://host.example/") //nolint:bodyclose // there is none
				outer, ok := errors.AsType[*url.Error](err)
				require.True(t, ok, "%v", err)
				return [2]bool{outer.Timeout(), outer.Temporary()}
			}
			for _, attempts := range []int{1, 2} {
				p := retryhttp.Policy{MaxAttempts: attempts, Backoff: retryhttp.Constant(0)}
				bare, wrapped := script.New(script.Fail(failure)), script.New(script.Fail(failure))
				assert.Equal(t, answers(bare), answers(retryhttp.New(wrapped, p)))
			}
		})
	}
}

func TestErrorIsFoundThroughAClient(t *testing.T) {
	client := &http.Client{Transport: retryhttp.New(script.New(script.Fail(errBroken)), retryhttp.Policy{MaxAttempts: 1})}
	_, err := client.Get("http://host.example/") //nolint:bodyclose // there is none
	assert.Equal(t, retryhttp.StopAttempts, errorOf(t, err).Stop)
	assert.ErrorIs(t, err, errBroken)
}

// A server can put long texts into its certificate and its GOAWAY.
func TestErrorTextTakesTimeThatGrowsWithItsLength(t *testing.T) {
	for _, fragment := range []string{"lookup u@h: ", "address @", "://", "://@", "://#", "? ", "://a@b?c#d ", `debug="x"`, "Content-Length "} {
		t.Run(fragment, func(t *testing.T) {
			err := &retryhttp.Error{Err: errors.New(strings.Repeat(fragment, 1<<20/len(fragment)))}
			assert.Less(t, allocated(func() { _ = err.Error() }), uint64(64<<20), "for a megabyte of text")
		})
	}
}
