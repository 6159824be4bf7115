package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const text = "one body, sent as often as it takes"

type closer struct {
	closes atomic.Int32
	done   chan struct{} // closed by the first Close, unless it is nil
}

func (c *closer) Close() error {
	if c.closes.Add(1) == 1 && c.done != nil {
		close(c.done)
	}
	return nil
}

// wait waits for a Close that has a goroutine of its own, because some Read
// that was left behind is still about to return.
func (c *closer) wait() { <-c.done }

// The three shapes a body can have. Embedding an interface hides all the other
// methods of what is inside.
type (
	fileBody struct {
		*bytes.Reader
		*closer
	}
	seekBody struct {
		io.ReadSeeker
		*closer
	}
	plainBody struct {
		io.Reader
		*closer
	}
)

func (f fileBody) Stat() (os.FileInfo, error) { return sizeInfo{size: f.Size()}, nil }

// sizeInfo is what a section asks for.
type sizeInfo struct {
	os.FileInfo
	size int64
}

func (i sizeInfo) Size() int64 { return i.size }

// textBody is a body without a method but Read and Close.
func textBody() io.ReadCloser { return plainBody{bytes.NewReader([]byte(text)), new(closer)} }

// New returns the Body of a request without a GetBody.
func New(body io.ReadCloser, limit int64) *Body { return newIn(context.Background(), body, limit) }

func newIn(ctx context.Context, body io.ReadCloser, limit int64) *Body {
	return Of((&http.Request{Body: body}).WithContext(ctx), limit)
}

// newBody is New for a body that may stand for an *os.File: it has Stat.
func newBody(body io.ReadCloser, limit int64) *Body {
	b := New(body, limit)
	if f, ok := body.(file); ok {
		start, _ := body.(io.Seeker).Seek(0, io.SeekCurrent)
		if info, err := f.Stat(); err == nil && info.Size() > start {
			b.origin = sectionOf(f, start, info.Size()-start)
		}
	}
	return b
}

// sectionOf is the origin of a file from start on.
func sectionOf(f file, start, size int64) *section {
	return &section{file: f, start: start, size: size, end: size}
}

// begin begins the first attempt of a request with a GetBody.
func begin(body io.ReadCloser, getBody func() (io.ReadCloser, error)) (*Body, *Lease) {
	return beginIn(context.Background(), body, getBody)
}

func beginIn(ctx context.Context, body io.ReadCloser, getBody func() (io.ReadCloser, error)) (*Body, *Lease) {
	if getBody == nil {
		getBody = func() (io.ReadCloser, error) { return nil, errors.New("no further body") }
	}
	b := Of((&http.Request{Body: body, GetBody: getBody}).WithContext(ctx), 0)
	return b, b.First(new(http.Request))
}

// kinds makes a body of each shape, for what holds whatever the shape.
var kinds = []struct {
	name string
	make func(content []byte, c *closer) io.ReadCloser
}{
	{"section", func(content []byte, c *closer) io.ReadCloser { return fileBody{bytes.NewReader(content), c} }},
	{"rewinder", func(content []byte, c *closer) io.ReadCloser { return seekBody{bytes.NewReader(content), c} }},
	{"rewinder with ReadAt", func(content []byte, c *closer) io.ReadCloser {
		return readAtBody{seekBody{bytes.NewReader(content), c}}
	}},
	{"stream", func(content []byte, c *closer) io.ReadCloser { return plainBody{bytes.NewReader(content), c} }},
}

// lease returns a lease for the first attempt, or for the attempt that follows old, which is cut.
// A Body without a GetBody may be tested with several first attempts.
func lease(t *testing.T, b *Body, old *Lease) *Lease {
	t.Helper()
	if old == nil {
		return b.First(new(http.Request))
	}
	l, err := leaseInstead(old)
	require.NoError(t, err)
	return l
}

// leaseInstead returns a lease for the attempt that follows old, and cuts old.
func leaseInstead(old *Lease) (*Lease, error) {
	l, err := follow(old)
	if err == nil {
		old.Cut()
	}
	return l, err
}

// follow is leaseInstead without the cut.
func follow(old *Lease) (*Lease, error) { return old.Next(new(http.Request), 0) }

func beside(t *testing.T, elder *Lease) *Lease {
	t.Helper()
	l, err := elder.Beside(new(http.Request))
	require.NoError(t, err)
	return l
}

// taken has the leases whose first reader open has returned.
var taken sync.Map

// open returns the reader with which l began, and then new readers.
func open(t *testing.T, l *Lease) *Reader {
	t.Helper()
	if _, again := taken.LoadOrStore(l, true); !again {
		return l.newest
	}
	r, err := l.Open()
	require.NoError(t, err)
	return r.(*Reader)
}

func read(t *testing.T, r io.Reader, n int) string {
	t.Helper()
	p := make([]byte, n)
	_, err := io.ReadFull(r, p)
	require.NoError(t, err)
	return string(p)
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	p, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(p)
}

func failsWith(t *testing.T, r io.Reader, want error) {
	t.Helper()
	n, err := r.Read(make([]byte, 8))
	assert.Zero(t, n)
	assert.Equal(t, want, err)
}

func fileOf(t *testing.T, content string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func pipeOf(t *testing.T, content string) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	_, err = io.WriteString(w, content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return r
}

// unseekable has a Seek that always fails, as an *os.File's does on a pipe.
type unseekable struct{ plainBody }

func (unseekable) ReadAt([]byte, int64) (int, error) { panic("a pipe is not read at an offset") }
func (unseekable) Seek(int64, int) (int64, error)    { return 0, errors.New("illegal seek") }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// rot is an endless body whose byte at offset i is i modulo 256.
func rot(at byte) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		for i := range p {
			p[i] = at
			at++
		}
		return len(p), nil
	})
}

// chanBody is a body whose every Read takes one item of the channel, which must
// fit, and that ends with the channel. Closing it has no effect on a Read.
func chanBody() (chan []byte, plainBody) {
	content := make(chan []byte)
	return content, plainBody{readerFunc(func(p []byte) (int, error) {
		b, ok := <-content
		if !ok {
			return 0, io.EOF
		}
		if len(b) > len(p) {
			panic("the item does not fit")
		}
		return copy(p, b), nil
	}), new(closer)}
}

// announceTrailer makes b fill a trailer at its end.
func announceTrailer(b *Body) {
	b.trailer, b.filled = http.Header{"End": nil}, &http.Request{Trailer: http.Header{"End": {"met"}}}
}

// toldOfEnd reports whether l's trailer was filled.
func toldOfEnd(l *Lease) bool { return l.trailer["End"] != nil }
