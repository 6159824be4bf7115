package retrytest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// Handler is an http.Handler that fails as told, over HTTP/1 and HTTP/2. It is made by [NewHandler], and is
// safe for concurrent use.
type Handler struct {
	script
	next http.Handler
	done <-chan struct{} // the test has ended
}

// NewHandler returns a Handler that has next give the real answers. A nil next reads the request, and answers
// with status 200 and an empty body. If a rule makes no sense, or if no handler can do what it says, the test ends at once. When the
// test fails, its log has [Handler.Table]. A nil tb has no log, and a rule that makes no sense panics.
func NewHandler(tb testing.TB, next http.Handler, rules ...Rule) *Handler {
	h := &Handler{next: next}
	if next == nil {
		h.next = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	}
	if tb != nil {
		tb.Helper()
		h.done = tb.Context().Done()
	}
	h.init(tb, true, next != nil, rules)
	return h
}

// ServeHTTP does what the first Rule that applies to r says. It panics with http.ErrAbortHandler where a
// connection has to break.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = r.WithContext(r.Context()) // a copy
	if r.Body == nil || r.ProtoMajor > 1 && r.ContentLength == 0 {
		r.Body = http.NoBody // no server has made the request, or HTTP/2 has another empty body
	}
	record, step := h.arrive(r)
	body := h.recorded(r.Body, record)
	r.Body = body
	real := step.answers() && step.status == 0
	switch {
	case step.early:
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // or net/http reads the request first
		}
	case !real || step.slow > 0:
		r.Body = read(body)
	}
	h.sleep(r.Context(), step.slow)
	if real {
		h.real(w, r, step)
		return
	}
	switch {
	case step.hang:
		h.wait(r.Context())
		panic(http.ErrAbortHandler)
	case step.fail != nil:
		reset(w)
	default:
		h.answer(w, r, step)
	}
}

// answer sends the answer of a Step with a status.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, step Step) {
	for name, values := range step.header {
		w.Header()[name] = append([]string(nil), values...)
	}
	if hasBody(http.MethodGet, step.status) {
		w.Header().Set("Content-Length", strconv.Itoa(len(step.body)))
	}
	out := h.ending(w, r, step)
	out.WriteHeader(step.status)
	if step.unsized {
		_ = http.NewResponseController(out).Flush() // or net/http counts a short body itself
	}
	if !hasBody(r.Method, step.status) {
		return
	}
	if step.events == nil {
		_, _ = io.WriteString(out, step.body)
	}
	for _, event := range step.events {
		_, _ = io.WriteString(out, event)
		_ = http.NewResponseController(out).Flush()
	}
}

// real has the next handler answer.
func (h *Handler) real(w http.ResponseWriter, r *http.Request, step Step) {
	out := h.ending(w, r, step)
	h.next.ServeHTTP(out, r)
	if step.unsized {
		_ = http.NewResponseController(out).Flush() // or net/http counts a short body itself
	}
	if ended, ok := out.(*endedWriter); ok && ended.over {
		panic(http.ErrAbortHandler) // the next handler has recovered from it
	}
}

// read reads a whole request body, and returns it once more. Before, net/http does not notice over HTTP/1
// that the client has gone.
func read(body io.Reader) io.ReadCloser {
	all, err := io.ReadAll(body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return io.NopCloser(bytes.NewReader(all))
}

// wait waits until the client has gone, or the test has ended.
func (h *Handler) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-h.done:
	}
}

// sleep waits, and ends the answer if the client goes meanwhile, or the test ends.
func (h *Handler) sleep(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
		return
	case <-ctx.Done():
	case <-h.done:
	}
	panic(http.ErrAbortHandler)
}

// reset resets the connection, or the stream of an HTTP/2 connection.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0) // or the client sees the connection end, and no reset
	}
	_ = conn.Close()
}

// ending returns w, or a writer whose body ends as step says.
func (h *Handler) ending(w http.ResponseWriter, r *http.Request, step Step) http.ResponseWriter {
	if step.ending == whole && !step.unsized {
		return w
	}
	return &endedWriter{ResponseWriter: w, end: func() {
		_ = http.NewResponseController(w).Flush() // what was written before
		if step.ending == stall {
			_, _ = io.Copy(io.Discard, r.Body) // see read
			h.wait(r.Context())
		}
	}, left: step.after, ends: step.ending != whole && hasBody(r.Method, http.StatusOK), unsized: step.unsized}
}

// endedWriter is a ResponseWriter whose body ends after a number of bytes, unless it is no longer.
type endedWriter struct {
	http.ResponseWriter
	end     func()
	left    int64
	ends    bool
	over    bool
	unsized bool
}

func (w *endedWriter) WriteHeader(status int) {
	if w.unsized {
		w.Header().Del("Content-Length")
	}
	w.ends = w.ends && hasBody(http.MethodGet, status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *endedWriter) Write(p []byte) (int, error) {
	if w.unsized {
		w.Header().Del("Content-Length")
	}
	if !w.ends || int64(len(p)) <= w.left {
		n, err := w.ResponseWriter.Write(p)
		w.left -= int64(n)
		return n, err
	}
	_, _ = w.ResponseWriter.Write(p[:w.left])
	w.left, w.over = 0, true
	w.end()
	panic(http.ErrAbortHandler)
}

// Flush is for handlers that ask for an http.Flusher.
func (w *endedWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack is for handlers that ask for an http.Hijacker.
func (w *endedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is for http.ResponseController.
func (w *endedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
