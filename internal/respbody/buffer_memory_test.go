package respbody_test

import (
	"io"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/respbody"
)

// endless is a body without an end. It watches the buffers of its first Reads.
type endless struct {
	first int           // number of first Reads
	slow  time.Duration // how long the last of them takes
	seen  []weak.Pointer[byte]
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.seen) < e.first {
		if e.seen = append(e.seen, weak.Make(&p[0])); len(e.seen) == e.first {
			time.Sleep(e.slow)
		}
	}
	return len(p), nil
}

func (*endless) Close() error { return nil }

func (e *endless) kept() (kept int) {
	runtime.GC()
	for _, p := range e.seen {
		if p.Value() != nil {
			kept++
		}
	}
	return kept
}

func TestBytesThatAreReadAreKeptNoLonger(t *testing.T) {
	const limit = 100_000
	for name, c := range map[string]struct {
		base  *endless
		begin func(*testing.T, *http.Response) *http.Response
	}{
		"of a buffer": {&endless{first: 6}, func(t *testing.T, resp *http.Response) *http.Response {
			resp, _, err := respbody.Buffer(nil, get(t), resp, limit, false)
			require.NoError(t, err)
			return resp
		}},
		"of a buffer for a moment": {&endless{first: 4, slow: time.Second}, func(t *testing.T, resp *http.Response) *http.Response {
			resp, _, err := respbody.Buffer(nil, get(t), resp, limit, true)
			require.NoError(t, err)
			return resp
		}},
		"of a long peek": {&endless{first: 1}, func(t *testing.T, resp *http.Response) *http.Response {
			resp, _, err := respbody.Peek(nil, get(t), resp, limit, false, false, nil)
			require.NoError(t, err)
			return resp
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := c.begin(t, response(http.StatusOK, c.base)).Body
				synctest.Wait()
				assert.NotZero(t, c.base.kept())
				_, err := io.CopyN(io.Discard, body, 10*limit)
				require.NoError(t, err)
				assert.Zero(t, c.base.kept())
				require.NoError(t, body.Close())
			})
		})
	}
}
