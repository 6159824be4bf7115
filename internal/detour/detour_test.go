package detour

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// timeless is a context whose deadline has passed, although it is not done.
type timeless struct{ context.Context }

func (timeless) Deadline() (time.Time, bool) { return time.Now().Add(-1), true }

func TestVerdict(t *testing.T) {
	superseded, broken := errors.New("superseded"), errors.New("EOF")
	d := New(new(http.Transport), superseded)
	canceled := func(parent context.Context, cause error) context.Context {
		ctx, cancel := context.WithCancelCause(parent)
		cancel(cause)
		return ctx
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	below := errors.New("net/http: request canceled")
	for name, c := range map[string]struct {
		ctx    context.Context
		hedge  bool
		status int
		err    error
		want   verdict
	}{
		"well":                         {status: http.StatusOK, want: well},
		"not found":                    {status: http.StatusNotFound, want: well},
		"not implemented":              {status: http.StatusNotImplemented, want: well},
		"a limit":                      {status: http.StatusTooManyRequests, want: nothing},
		"internal error":               {status: http.StatusInternalServerError, want: failed},
		"bad gateway":                  {status: http.StatusBadGateway, want: failed},
		"unavailable":                  {status: http.StatusServiceUnavailable, want: failed},
		"gateway timeout":              {status: http.StatusGatewayTimeout, want: failed},
		"broken":                       {err: broken, want: failed},
		"no connection":                {err: &net.OpError{Op: "dial", Err: broken}, want: nothing},
		"no address":                   {err: &net.AddrError{}, want: nothing},
		"canceled by the caller":       {ctx: canceled(t.Context(), nil), err: broken, want: nothing},
		"canceled before its deadline": {ctx: canceled(soon, nil), err: broken, want: nothing},
		"late":                         {ctx: past, err: broken, want: failed},
		"late for a deadline above":    {ctx: canceled(t.Context(), context.DeadlineExceeded), err: broken, want: failed},
		"another attempt has won":      {ctx: canceled(t.Context(), superseded), err: broken, want: failed},
		"another has won of a hedge":   {ctx: canceled(t.Context(), superseded), hedge: true, err: broken, want: nothing},
		"canceled below":               {err: below, want: nothing},
		"late below":                   {ctx: timeless{t.Context()}, err: below, want: failed},
	} {
		ctx := c.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service.example/", nil)
		assert.NoError(t, err)
		var resp *http.Response
		if c.err == nil {
			resp = &http.Response{StatusCode: c.status}
		}
		assert.Equal(t, c.want, d.verdict(req, &Attempt{hedge: c.hedge}, resp, c.err), name)
	}
}

func TestNoDispatcherIsInTrouble(t *testing.T) {
	assert.False(t, (*Dispatcher)(nil).InTrouble())
}
