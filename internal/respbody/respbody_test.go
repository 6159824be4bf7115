package respbody_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/closing"
	"github.com/retryhttp/retryhttp/internal/replay"
	"github.com/retryhttp/retryhttp/internal/respbody"
)

// upload returns a request with a body that may still be sent when the response comes.
func upload(t *testing.T) *http.Request {
	t.Helper()
	content := &body{pieces: []string{"sent"}, end: io.EOF}
	req, err := http.NewRequest(http.MethodPost, "http://host.example/", content)
	require.NoError(t, err)
	return req
}

func TestContextIsReleasedWhenResponseAndUploadAreOver(t *testing.T) {
	for _, uploadFirst := range []bool{false, true} {
		b, ctx := bodyOf(t)
		req := upload(t)
		replay.Watch(req, b)
		resp := response(200, &body{pieces: []string{"answer"}, end: io.EOF})
		b.Wrap(resp, 0, nil)
		sent := func() { require.NoError(t, req.Body.Close()) }
		if uploadFirst {
			sent()
			assert.NoError(t, ctx.Err())
		}
		_, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		if !uploadFirst {
			assert.NoError(t, ctx.Err())
			sent()
		}
		assert.Error(t, ctx.Err())
	}
}

// The end of the caller's context is the reason for a canceled Read, and for no other end.
func TestEndOfTheCallersContextReplacesACancellationAlone(t *testing.T) {
	for _, c := range []struct{ met, want error }{
		{context.Canceled, context.DeadlineExceeded}, {io.EOF, nil}, {errLost, errLost},
	} {
		b, _ := bodyOf(t)
		caller, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		b.Caller = caller
		resp := response(200, &body{pieces: []string{"all"}, end: c.met})
		b.Wrap(resp, 0, nil)
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, "all", string(got))
		assert.Equal(t, c.want, err)
	}
}

// A Body may be closed while it is read if the body that it wraps may be.
func TestBodyIsAsClosableAsTheBaseBody(t *testing.T) {
	for may, base := range map[bool]io.ReadCloser{false: new(body), true: hanging(t)} {
		b, _ := bodyOf(t)
		b.Wrap(response(200, base), 0, nil)
		assert.Equal(t, may, closing.WhileRead(b))
	}
}

// A body of net/http has verified its length. Another body may say with any error that its bytes are wrong.
func TestWhatIsAnEndOfTheConnection(t *testing.T) {
	netHTTP, other := hanging(t), new(body)
	for _, c := range []struct {
		err         error
		body        io.ReadCloser
		connections bool
	}{
		{io.EOF, other, true}, {io.ErrUnexpectedEOF, other, true}, {errLost, netHTTP, false},
		{context.Canceled, netHTTP, true}, {context.Canceled, other, false},
	} {
		assert.Equal(t, c.connections, respbody.IsConnectionsEnd(c.body, c.err), "%v", c.err)
	}
}

func TestContextIsReleasedByTheResponseAloneIfNothingIsUploaded(t *testing.T) {
	large := make([]byte, 64<<10-1)
	for _, small := range []io.Reader{
		nil, http.NoBody, strings.NewReader("s"), bytes.NewBufferString("s"), bytes.NewReader(large),
	} {
		req, err := http.NewRequest(http.MethodPost, "http://host.example/", small)
		require.NoError(t, err)
		b, ctx := bodyOf(t)
		before := req.Body
		replay.Watch(req, b)
		assert.Equal(t, before, req.Body)
		resp := response(200, &body{end: io.EOF})
		b.Wrap(resp, 0, nil)
		assert.NoError(t, ctx.Err())
		require.NoError(t, resp.Body.Close())
		assert.Error(t, ctx.Err())
	}
}

// Only an upgrade's body is written to. Some bases have a bytes.Buffer as the body of any response.
func TestContextIsReleasedByABodyThatCouldBeWritten(t *testing.T) {
	b, ctx := bodyOf(t)
	resp := response(200, struct {
		*bytes.Buffer
		io.Closer
	}{bytes.NewBufferString("answer"), io.NopCloser(nil)})
	b.Wrap(resp, 0, nil)
	_, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Error(t, ctx.Err())
}

func TestWrapLeavesAnEmptyBodyAsItIs(t *testing.T) {
	b, ctx := bodyOf(t)
	resp := response(200, http.NoBody)
	b.Wrap(resp, time.Second, nil)
	assert.Equal(t, http.NoBody, resp.Body)
	assert.Error(t, ctx.Err())
}

func TestReadThatStallsEndsWithTheErrorThatIsMadeForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errStalled := errors.New("stalled")
		b, ctx := bodyOf(t)
		resp := response(200, hanging(t, "a"))
		b.Wrap(resp, time.Second, func(after time.Duration) error {
			assert.Equal(t, time.Second, after)
			return errStalled
		})
		began := time.Now()
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, time.Second, time.Since(began))
		assert.Equal(t, "a", string(got))
		assert.Equal(t, errStalled, err)
		assert.Error(t, ctx.Err())
	})
}

func TestEndEndsAReadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := bodyOf(t)
		base := hanging(t)
		resp := response(200, base)
		b.Wrap(resp, 0, nil)
		time.AfterFunc(time.Minute, func() { b.End(nil, true) })
		_, err := resp.Body.Read(make([]byte, 1))
		assert.Equal(t, io.ErrClosedPipe, err)
		synctest.Wait() // orders the Close before what follows, which a Sleep does not
		require.Equal(t, 1, base.closes)
		b.End(nil, true)
		assert.Equal(t, 1, base.closes, "the response is over")
	})
}

// Only its reader may close such a body.
func TestEndLeavesABodyThatMustNotBeClosedBesideItsRead(t *testing.T) {
	b, _ := bodyOf(t)
	base := &body{end: io.EOF}
	b.Wrap(response(200, base), 0, nil)
	b.End(nil, true)
	assert.Zero(t, base.closes)
}

// A connection can be written to, if the base has made it so.
func TestUpgradeIsAWriterIfTheBaseHasAWriter(t *testing.T) {
	b, _ := bodyOf(t)
	resp := response(101, &body{end: io.EOF})
	b.Wrap(resp, 0, nil)
	assert.NotImplements(t, (*io.Writer)(nil), resp.Body)
}

func TestUpgradeIsClosedForWritingIfTheBaseCanBe(t *testing.T) {
	b, _ := bodyOf(t)
	resp := response(101, struct {
		*body
		io.Writer
	}{&body{end: io.EOF}, io.Discard})
	b.Wrap(resp, 0, nil)
	half, ok := resp.Body.(interface{ CloseWrite() error })
	require.True(t, ok)
	assert.ErrorIs(t, half.CloseWrite(), http.ErrNotSupported)
}

func TestIsRedirectNeedsAPlaceToGo(t *testing.T) {
	location := http.Header{"Location": {"/elsewhere"}}
	for status, want := range map[int]bool{299: false, 300: true, 399: true, 400: false} {
		assert.Equal(t, want, respbody.IsRedirect(&http.Response{StatusCode: status, Header: location}), status)
		assert.False(t, respbody.IsRedirect(&http.Response{StatusCode: status}), status)
	}
}
