package respbody

import (
	"io"
	"time"

	"github.com/retryhttp/retryhttp/internal/closing"
)

// await calls wait, which waits for a Read of b's base. It ends the attempt if the Read gets nothing for too
// long. The timer runs only while somebody waits, so a slow caller does not count as a stall. A nil
// Body has no timer.
func (b *Body) await(wait func()) {
	if b == nil || b.stall <= 0 {
		wait()
		return
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(b.stall, b.endStalled)
	} else {
		b.timer.Reset(b.stall)
	}
	defer b.timer.Stop()
	wait()
}

// waitApart declares whether Reads are awaited elsewhere, or by nobody, and so need no timer of their own.
func (b *Body) waitApart(apart bool) {
	if b != nil {
		b.apart = apart
	}
}

func (b *Body) endStalled() {
	b.fired.Store(true)
	b.Cancel(b.stalled(b.stall))
	freeRead(b.base)
}

// freeRead ends a Read of a body whose attempt was canceled. A base may have lost the attempt's
// context, so net/http's own bodies are also closed. A panic of Close is dropped, because nobody
// could recover it here.
func freeRead(body io.ReadCloser) {
	if closing.WhileRead(body) {
		defer func() { _ = recover() }()
		_ = body.Close()
	}
}
