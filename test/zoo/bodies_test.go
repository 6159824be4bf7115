package zoo

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

	"github.com/stretchr/testify/require"
)

// Policy.RecordBytes is 64 KiB by default, which lies between the first two sizes.
// Buffers on the way cannot hold the last one, so an upload meets an early answer.
const (
	kept   = 64 << 10
	small  = 20 << 10
	medium = 66 << 10
	large  = 200 << 10
)

// How a body can be sent again.
type form int

const (
	fresh   form = iota // GetBody returns it again, or there is none
	inPlace             // it can seek
	once                // it can be read only once
)

// kind is one of the ways in which a request's body can be given.
type kind struct {
	name    string
	size    int // an upload that a fault meets is large instead of medium
	form    form
	unknown bool // nobody knows its length
	shared  bool // GetBody returns the same reader, rewound
	beside  bool // two attempts can read it at once
	open    func(u *upload, t *testing.T) io.Reader
	again   func(u *upload) (io.ReadCloser, error) // GetBody; nil: as http.NewRequest makes it
}

var kinds = []kind{
	{name: "none", beside: true},
	{name: "bytes.Reader", size: medium, beside: true, open: func(u *upload, _ *testing.T) io.Reader {
		return bytes.NewReader(u.content)
	}},
	{name: "GetBody", size: medium, open: (*upload).stream, again: func(u *upload) (io.ReadCloser, error) {
		return u.counted(), nil
	}},
	{name: "GetBody of one reader", size: medium, shared: true, open: (*upload).rewindable, again: (*upload).rewind},
	{name: "file", size: medium, form: inPlace, beside: true, open: (*upload).open},
	{name: "ReaderAt", size: medium, form: inPlace, open: func(u *upload, _ *testing.T) io.Reader {
		return &randomBody{seekingBody{u.counted()}}
	}},
	{name: "Seeker", size: medium, form: inPlace, open: func(u *upload, _ *testing.T) io.Reader {
		return &seekingBody{u.counted()}
	}},
	{name: "short stream", size: small, form: once, open: (*upload).stream},
	{name: "short stream of unknown length", size: small, form: once, unknown: true, open: (*upload).stream},
	{name: "long stream", size: medium, form: once, open: (*upload).stream},
	{name: "lazy stream", size: small, form: once, open: func(u *upload, _ *testing.T) io.Reader {
		return &lazyBody{countedBody: u.counted()}
	}},
}

// upload is one request's body, and an account of what is closed.
type upload struct {
	content []byte
	file    *os.File
	shared  *rewoundBody
	again   func() // called whenever GetBody has returned

	mu      sync.Mutex
	handles []*countedBody // the first is the caller's
}

// request makes a request with a body of this kind.
func (k kind) request(
	ctx context.Context, t *testing.T, method, url string, content []byte,
) (*http.Request, *upload) {
	t.Helper()
	u := &upload{content: content}
	var body io.Reader
	if k.open != nil {
		body = k.open(u, t)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	require.NoError(t, err)
	req.ContentLength = int64(len(content))
	if k.unknown {
		req.ContentLength = -1
	}
	if k.again != nil {
		req.GetBody = func() (io.ReadCloser, error) {
			defer u.again()
			return k.again(u)
		}
	}
	return req, u
}

// closed reports whether the caller's body was closed exactly once, and with all, each
// body that GetBody returned as well. A file does not count how often.
func (u *upload) closed(all bool) bool {
	if u.file != nil {
		_, err := u.file.Stat()
		return errors.Is(err, os.ErrClosed)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, h := range u.handles {
		if h.closes.Load() != 1 && (all || i == 0) {
			return false
		}
	}
	return true
}

func (u *upload) closes() []int {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []int
	for _, h := range u.handles {
		all = append(all, int(h.closes.Load()))
	}
	return all
}

func (u *upload) counted() *countedBody {
	u.mu.Lock()
	defer u.mu.Unlock()
	h := &countedBody{reader: bytes.NewReader(u.content)}
	u.handles = append(u.handles, h)
	return h
}

func (u *upload) stream(*testing.T) io.Reader { return u.counted() }

func (u *upload) open(t *testing.T) io.Reader {
	name := filepath.Join(t.TempDir(), "upload")
	require.NoError(t, os.WriteFile(name, u.content, 0o600))
	var err error
	u.file, err = os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = u.file.Close() }) // an animal that forgets it would leave it to the garbage collector
	return u.file
}

func (u *upload) rewindable(*testing.T) io.Reader {
	u.shared = &rewoundBody{reader: bytes.NewReader(u.content)}
	return u.shared
}

func (u *upload) rewind() (io.ReadCloser, error) {
	u.shared.mu.Lock()
	defer u.shared.mu.Unlock()
	_, err := u.shared.reader.Seek(0, io.SeekStart)
	return u.shared, err
}

// countedBody counts how often it is closed. It cannot be read after that.
type countedBody struct {
	reader *bytes.Reader
	closes atomic.Int32
}

func (b *countedBody) Read(p []byte) (int, error) {
	if b.closes.Load() > 0 {
		return 0, os.ErrClosed
	}
	return b.reader.Read(p)
}

func (b *countedBody) Close() error {
	b.closes.Add(1)
	return nil
}

type seekingBody struct{ *countedBody }

func (b *seekingBody) Seek(offset int64, whence int) (int64, error) {
	return b.reader.Seek(offset, whence)
}

type randomBody struct{ seekingBody }

func (b *randomBody) ReadAt(p []byte, offset int64) (int, error) {
	if b.closes.Load() > 0 {
		return 0, os.ErrClosed
	}
	return b.reader.ReadAt(p, offset)
}

// lazyBody returns nothing from every other Read.
type lazyBody struct {
	*countedBody
	reads int
}

func (b *lazyBody) Read(p []byte) (int, error) {
	if b.reads++; b.reads%2 == 1 {
		return 0, nil
	}
	return b.countedBody.Read(p)
}

// rewoundBody is what all calls of GetBody return, as in connect-go. It is safe for
// concurrent use, and each call takes the position away from a reader in use.
type rewoundBody struct {
	mu     sync.Mutex
	reader *bytes.Reader
}

func (b *rewoundBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reader.Read(p)
}

func (b *rewoundBody) Close() error { return nil }
