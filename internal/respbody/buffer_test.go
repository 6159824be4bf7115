package respbody_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/respbody"
	"github.com/retryhttp/retryhttp/internal/timer"
)

func TestBufferReadsAWholeBodyUpToItsLimit(t *testing.T) {
	for limit, want := range map[int64][]byte{5: nil, 6: []byte("abcdef"), 7: []byte("abcdef")} {
		base := &body{pieces: []string{"abc", "def"}, end: io.EOF}
		resp, read, err := respbody.Buffer(nil, get(t), response(200, base), limit, false)
		require.NoError(t, err)
		require.NotNil(t, read)
		assert.Equal(t, want, respbody.Whole(resp, limit))
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "abcdef", string(got), "the caller gets every byte")
	}
}

// A Transport may have a smaller limit than a Transport below it.
func TestWholeIsNotLongerThanItsOwnLimit(t *testing.T) {
	resp, _, err := respbody.Buffer(nil, get(t), response(200, &body{pieces: []string{"abc"}, end: io.EOF}), 10, false)
	require.NoError(t, err)
	assert.Equal(t, []byte("abc"), respbody.Whole(resp, 3))
	assert.Nil(t, respbody.Whole(resp, 2))
}

func TestBufferLeavesWhatIsTooLongOrHasNoEnd(t *testing.T) {
	stream := response(200, &body{})
	stream.Header = http.Header{"Content-Type": {"text/event-stream"}}
	long := response(200, &body{})
	long.ContentLength = 11
	for _, resp := range []*http.Response{stream, long} {
		before := resp.Body
		same, read, err := respbody.Buffer(nil, get(t), resp, 10, false)
		require.NoError(t, err)
		assert.Same(t, resp, same)
		assert.Equal(t, before, resp.Body)
		assert.Nil(t, read)
	}
}

func TestBufferedBodyThatBreaksOffGivesWhatCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &body{pieces: []string{"abc"}, end: errLost}
		resp, read, err := respbody.Buffer(nil, get(t), response(200, base), 10, false)
		require.Equal(t, errLost, err)
		assert.Nil(t, respbody.Whole(resp, 10))
		assert.Equal(t, 1, base.closes)
		errLate := errors.New("too late")
		read.BreakOff(errLate)
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, "abc", string(got))
		assert.Equal(t, errLate, err)
		assert.Equal(t, 1, base.closes)
	})
}

func TestCompleteIsABodyOfTheDeclaredLength(t *testing.T) {
	for declared, want := range map[int64]bool{-1: false, 3: true} {
		resp := response(200, &body{pieces: []string{"abc"}, end: io.EOF})
		resp.ContentLength = declared
		_, read, err := respbody.Buffer(nil, get(t), resp, 10, false)
		require.NoError(t, err)
		assert.Equal(t, want, read.Complete(resp), declared)
	}
}

// The Read that is under way when the moment is over may panic, for the one who reads on.
func TestPanicOfALateReadIsItsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		base := &body{pieces: []string{"abc"}, more: more, end: "late"}
		resp, _, err := respbody.Buffer(nil, get(t), response(503, base), 10, true)
		require.NoError(t, err)
		close(more)
		assert.PanicsWithValue(t, "late", func() { _, _ = io.ReadAll(resp.Body) })
		require.NoError(t, resp.Body.Close())
	})
}

func TestBufferWaitsForAFailedResponseForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		base := &body{pieces: []string{"abc"}, more: more, end: io.EOF}
		began := time.Now()
		resp, read, err := respbody.Buffer(nil, get(t), response(503, base), 10, true)
		require.NoError(t, err)
		require.NotNil(t, read)
		assert.Equal(t, respbody.MaxDrainTime, time.Since(began))
		assert.Nil(t, respbody.Whole(resp, 10))
		came := make([]byte, 3)
		_, err = io.ReadFull(resp.Body, came)
		require.NoError(t, err, "what has come is not awaited again")
		assert.Equal(t, "abc", string(came))
		close(more)
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Empty(t, rest)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 1, base.closes)
	})
}

// An AttemptTimeout may pass while nobody waits for the rest.
func TestLateBodyThatBreaksOffGivesWhatCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		base := &body{pieces: []string{"abc"}, more: more, end: io.EOF}
		resp, read, err := respbody.Buffer(nil, get(t), response(503, base), 10, true)
		require.NoError(t, err)
		read.BreakOff(errLost)
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, "abc", string(got))
		assert.Equal(t, errLost, err)
		close(more)
		synctest.Wait()
		assert.Equal(t, 1, base.closes)
	})
}

// slowToClose is a body that may be closed while it is read. Its Close ends a Read, and takes a second.
type slowToClose struct{ closed chan struct{} }

func (b slowToClose) Read([]byte) (int, error) {
	<-b.closed
	return 0, errLost
}

func (b slowToClose) Close() error {
	close(b.closed)
	time.Sleep(time.Second)
	return nil
}

func (slowToClose) ClosableAs() io.ReadCloser { return http.NoBody }

// In a bubble, a mutex that is held for a second would stop the clock.
func TestSecondCloseOfALateBodyWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp, _, err := respbody.Buffer(nil, get(t), response(503, slowToClose{make(chan struct{})}), 10, true)
		require.NoError(t, err)
		go resp.Body.Close()
		synctest.Wait()
		began := time.Now()
		assert.NoError(t, resp.Body.Close())
		assert.Zero(t, time.Since(began))
		time.Sleep(time.Second)
	})
}

// An outer Transport may have no context of its own for the attempt.
func TestLateBodyOfATransportBelowEndsWithItsContext(t *testing.T) {
	for name, giveUp := range map[string]func(*http.Response){
		"closed": func(resp *http.Response) { _ = resp.Body.Close() },
		"drained": func(resp *http.Response) {
			new(respbody.Drains).Start(resp, true).Join(context.Background(), new(timer.Timer), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below, ctx := bodyOf(t)
				resp := response(503, &body{more: ctx.Done(), end: errLost})
				below.Wrap(resp, 0, nil)
				resp, _, err := respbody.Buffer(nil, get(t), resp, 10, true)
				require.NoError(t, err)
				giveUp(resp)
				synctest.Wait()
				assert.Error(t, ctx.Err())
			})
		})
	}
}

// stalling brings a byte with each Read, the second byte late, and then nothing.
type stalling struct {
	reads int
	ended <-chan struct{}
}

func (s *stalling) Read(p []byte) (int, error) {
	switch s.reads++; s.reads {
	case 2:
		time.Sleep(2 * respbody.MaxDrainTime)
	case 3:
		<-s.ended
		return 0, io.EOF
	}
	p[0] = 'x'
	return 1, nil
}

func (*stalling) Close() error { return nil }

// The rest of a failed body may stall, whether its beginning came in time or not.
func TestRestOfAFailedBodyMayStall(t *testing.T) {
	for _, limit := range []int64{0, 1, 10} {
		synctest.Test(t, func(t *testing.T) {
			b, ctx := bodyOf(t)
			resp := response(503, &stalling{ended: ctx.Done()})
			b.Wrap(resp, time.Second, func(time.Duration) error { return errLost })
			resp, _, err := respbody.Buffer(b, get(t), resp, limit, true)
			require.NoError(t, err)
			began := time.Now()
			got, err := io.ReadAll(resp.Body)
			assert.Equal(t, "xx", string(got))
			assert.Equal(t, errLost, err)
			assert.GreaterOrEqual(t, time.Since(began), time.Second)
			assert.LessOrEqual(t, time.Since(began), time.Second+2*respbody.MaxDrainTime)
		})
	}
}

// A hook may read a body that was not read within the attempt.
func TestSealLeavesABodyAloneThatWasNotRead(t *testing.T) {
	b, _ := bodyOf(t)
	resp := response(503, &body{pieces: []string{"abc"}, end: io.EOF})
	b.Wrap(resp, 0, nil)
	sealed := respbody.Seal(resp)
	assert.Nil(t, sealed)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "abc", string(got))
	sealed.Unseal(resp)
}
