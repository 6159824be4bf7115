// Package bodies has bodies of requests and responses: bodies that programs send, and bodies that
// record what is done to them.
package bodies

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/pause"
)

// Kinds are the ways to hand content over with a request. Each call makes a new request.
func Kinds(t *testing.T) map[string]func(content []byte) *http.Request {
	t.Helper()
	put := func(body io.Reader) *http.Request {
		req, err := http.NewRequest("PUT", "http://server/", body)
		require.NoError(t, err)
		return req
	}
	return map[string]func([]byte) *http.Request{
		"bytes.Reader with GetBody": func(c []byte) *http.Request { return put(bytes.NewReader(c)) },
		"reader at":                 func(c []byte) *http.Request { return put(ReaderAt(bytes.NewReader(c))) },
		"seeker":                    func(c []byte) *http.Request { return put(Seeker(bytes.NewReader(c))) },
		"stream":                    func(c []byte) *http.Request { return put(io.MultiReader(bytes.NewReader(c))) },
		"stream with a length": func(c []byte) *http.Request {
			req := put(io.MultiReader(bytes.NewReader(c)))
			req.ContentLength = int64(len(c))
			return req
		},
		"file": func(c []byte) *http.Request {
			f, err := os.Create(filepath.Join(t.TempDir(), "body"))
			require.NoError(t, err)
			_, err = f.WriteString("skipped")
			require.NoError(t, err)
			_, err = f.Write(c)
			require.NoError(t, err)
			_, err = f.Seek(int64(len("skipped")), io.SeekStart)
			require.NoError(t, err)
			return put(f)
		},
	}
}

// Seeker returns a body that can be rewound, and has no random access.
func Seeker(r io.ReadSeeker) io.ReadCloser { return seeker{r} }

type seeker struct{ io.ReadSeeker }

func (seeker) Close() error { return nil }

// ReaderAt returns a body that can be rewound, and has a ReadAt that no attempt must use.
func ReaderAt(r *bytes.Reader) io.ReadCloser { return readerAt{r} }

type readerAt struct{ *bytes.Reader }

func (readerAt) ReadAt([]byte, int64) (int, error) { panic("ReadAt may return what Read leaves out") }
func (readerAt) Close() error                      { return nil }

// File returns a file that can be a body. It is closed when the test ends.
func File(t *testing.T, content string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// Tracked is a body that counts its closes, and its reads after a close.
type Tracked struct {
	io.Reader
	Closes  atomic.Int32
	Misuses atomic.Int32
}

func (b *Tracked) Read(p []byte) (int, error) {
	if b.Closes.Load() > 0 {
		b.Misuses.Add(1)
	}
	return b.Reader.Read(p)
}

func (b *Tracked) Close() error {
	b.Closes.Add(1)
	return nil
}

// Hooked is a body that does what its hooks do, and counts its closes.
type Hooked struct {
	OnRead  func([]byte) (int, error)
	OnClose func() // may be nil
	Closes  atomic.Int32
}

func (b *Hooked) Read(p []byte) (int, error) { return b.OnRead(p) }

func (b *Hooked) Close() error {
	b.Closes.Add(1)
	if b.OnClose != nil {
		b.OnClose()
	}
	return nil
}

// Slow is a response body that gives a byte every interval, without end. It counts the bytes
// and its closes.
type Slow struct {
	Bytes  atomic.Int64
	Closes atomic.Int32

	interval time.Duration
	open     context.Context // until Close
	close    context.CancelFunc
}

// NewSlow returns a Slow. If interval is 0, each Read gets all that it asks for, at once.
func NewSlow(interval time.Duration) *Slow {
	open, shut := context.WithCancel(context.Background())
	return &Slow{interval: interval, open: open, close: shut}
}

func (b *Slow) Read(p []byte) (int, error) {
	if pause.For(b.open, b.interval) != nil {
		return 0, errors.New("read of a closed body")
	}
	n := 1
	if b.interval == 0 {
		n = len(p)
	}
	b.Bytes.Add(int64(n))
	return n, nil
}

func (b *Slow) Close() error {
	b.Closes.Add(1)
	b.close()
	return nil
}
