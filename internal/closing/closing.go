// Package closing closes values that other packages made. Their Close may take long, and it may
// panic.
package closing

import (
	"io"
	"net/http"
	"time"
)

// patience is how long Soon waits. A Close usually takes microseconds, so a value is usually
// closed when Soon returns. A caller is never delayed for longer than patience.
const patience = 10 * time.Millisecond

// Soon closes c, and waits for Close for no longer than 10 ms. A Close that takes longer
// continues by itself. While the caller waits, a panic of Close surfaces in the caller. A later
// panic is dropped, because nobody could recover it.
func Soon(c io.Closer) {
	select {
	case panicked := <-Begin(c):
		if panicked != nil {
			panic(panicked)
		}
	case <-time.After(patience):
	}
}

// Response is Soon for the body of a response that no caller gets. resp may be nil.
func Response(resp *http.Response) {
	if resp != nil && resp.Body != nil && resp.Body != http.NoBody {
		Soon(resp.Body)
	}
}

// Begin closes c in a separate goroutine. When Close has ended, the channel has the value that
// Close panicked with, or nil.
func Begin(c io.Closer) <-chan any {
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		_ = c.Close()
	}()
	return ended
}
