package respbody_test

import (
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

func TestDrainReadsAndCloses(t *testing.T) {
	var drains respbody.Drains
	var timer timer.Timer
	for _, read := range []bool{false, true} {
		base := &body{pieces: []string{"abc", "def"}, end: io.EOF}
		drains.Start(response(503, base), read).Join(t.Context(), &timer, time.Minute)
		assert.Equal(t, read, len(base.pieces) == 0)
		assert.Equal(t, 1, base.closes)
	}
}

func TestDrainEndsAfterAHundredEmptyReadsInARow(t *testing.T) {
	var drains respbody.Drains
	for empty, whole := range map[int]bool{60: true, 100: false} {
		pieces := make([]string, 2*empty+2)
		pieces[empty], pieces[2*empty+1] = "a", "b"
		base := &body{pieces: pieces, end: io.EOF}
		drains.Start(response(503, base), true).Join(t.Context(), new(timer.Timer), time.Minute)
		assert.Equal(t, whole, len(base.pieces) == 0, empty)
		assert.Equal(t, 1, base.closes)
	}
}

func TestDrainIsNilIfThereIsNothingToClose(t *testing.T) {
	var drains respbody.Drains
	buffered, _, err := respbody.Buffer(nil, get(t), response(503, &body{end: errLost}), 10, false)
	require.Error(t, err)
	for _, resp := range []*http.Response{response(503, nil), response(503, http.NoBody), buffered} {
		d := drains.Start(resp, true)
		assert.Nil(t, d)
		d.Join(t.Context(), new(timer.Timer), time.Minute)
	}
}

// A body that is abandoned is still closed, and its Drain does not serve another body meanwhile.
func TestDrainAbandonsABodyThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var drains respbody.Drains
		var timer timer.Timer
		more := make(chan struct{})
		slow, quick := &body{more: more, end: io.EOF}, &body{end: io.EOF}
		began := time.Now()
		drains.Start(response(503, slow), true).Join(t.Context(), &timer, time.Second)
		assert.Equal(t, time.Second, time.Since(began))
		drains.Start(response(503, quick), true).Join(t.Context(), &timer, time.Second)
		assert.Equal(t, time.Second, time.Since(began))
		assert.Equal(t, 1, quick.closes)
		assert.Zero(t, slow.closes)
		close(more)
		synctest.Wait()
		assert.Equal(t, 1, slow.closes)
	})
}

// The Close that ends the Read is the only one.
func TestDrainClosesABodyThatHangsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var drains respbody.Drains
		b := hanging(t)
		drains.Start(response(503, b), true).Join(t.Context(), new(timer.Timer), time.Second)
		synctest.Wait()
		assert.Equal(t, 1, b.closes)
	})
}

// The caller that clears away a body gets the panic of its Close, and the next body is cleared
// away.
func TestDrainPassesOnThePanicOfAClose(t *testing.T) {
	var drains respbody.Drains
	var timer timer.Timer
	for range 2 {
		bad := response(503, panicsAtClose{&body{end: io.EOF}})
		d := drains.Start(bad, true)
		assert.PanicsWithValue(t, "closed", func() { d.Join(t.Context(), &timer, time.Minute) })
		good := &body{end: io.EOF}
		drains.Start(response(503, good), true).Join(t.Context(), &timer, time.Minute)
		assert.Equal(t, 1, good.closes)
	}
}

type panicsAtClose struct{ *body }

func (panicsAtClose) Close() error { panic("closed") }
