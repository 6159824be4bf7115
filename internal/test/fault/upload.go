package fault

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
)

// Kind is one of the ways in which a request's body can be given.
type Kind struct {
	Name string
	Size int
	// Spendable means that the body cannot be sent again once more than
	// Policy.RecordBytes of it have been read.
	Spendable bool

	open func(u *Upload) (io.ReadCloser, error)
}

// The default of Policy.RecordBytes lies between the first two sizes. The kernel and the proxy
// cannot hold the last size for a server that does not read.
const (
	small  = 48 << 10
	medium = 100 << 10
	large  = 400 << 10
)

var Kinds = []Kind{
	{Name: "none"},
	{Name: "bytes.Reader", Size: medium, open: (*Upload).reader},
	{Name: "file", Size: large, open: (*Upload).file},
	{Name: "seeker", Size: large, open: (*Upload).seeker},
	{Name: "recorded stream", Size: small, open: (*Upload).stream},
	{Name: "stream past the limit", Size: large, Spendable: true, open: (*Upload).stream},
	{Name: "trailer", Size: small, open: (*Upload).trailing},
}

// Upload is one request's body, and an account of what is closed of it.
type Upload struct {
	Kind    Kind
	Content []byte

	req     *http.Request
	mu      sync.Mutex
	closers []*closer
}

// Trailer is the value of [TrailerField] that the Upload ends with.
func (u *Upload) Trailer() string {
	if u.Kind.Name != "trailer" {
		return ""
	}
	sum := sha256.Sum256(u.Content)
	return hex.EncodeToString(sum[:])
}

// NewUpload gives req a body of the kind, with the content of the n-th request.
func NewUpload(req *http.Request, k Kind, n uint64) (*Upload, error) {
	u := &Upload{Kind: k, Content: Content(n, k.Size), req: req}
	if k.open == nil {
		return u, nil
	}
	body, err := k.open(u)
	req.Body = body
	return u, err
}

// Closed returns what is wrong with how the bodies were closed. Over HTTP/2 net/http may ask
// GetBody for a body to resend, have no connection to send it on, and forget the body.
func (u *Upload) Closed(http2 bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, c := range u.closers {
		n := c.times()
		if n == 0 && http2 && i > 0 && !c.used.Load() {
			continue
		}
		if n != 1 {
			return fmt.Errorf("body %d of %d, %s, was closed %d times", i+1, len(u.closers), u.Kind.Name, n)
		}
	}
	return nil
}

func (u *Upload) newCloser() *closer {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := new(closer)
	u.closers = append(u.closers, c)
	return c
}

func (u *Upload) reader() (io.ReadCloser, error) {
	u.req.ContentLength = int64(len(u.Content))
	u.req.GetBody = func() (io.ReadCloser, error) {
		return &streamBody{bytes.NewReader(u.Content), u.newCloser()}, nil
	}
	return u.req.GetBody()
}

func (u *Upload) seeker() (io.ReadCloser, error) {
	u.req.ContentLength = int64(len(u.Content))
	return &seekBody{bytes.NewReader(u.Content), u.newCloser()}, nil
}

func (u *Upload) stream() (io.ReadCloser, error) {
	u.req.ContentLength = -1
	return &streamBody{bytes.NewReader(u.Content), u.newCloser()}, nil
}

func (u *Upload) trailing() (io.ReadCloser, error) {
	u.req.ContentLength = -1
	u.req.Trailer = http.Header{TrailerField: nil}
	return &trailerBody{streamBody{bytes.NewReader(u.Content), u.newCloser()}, u}, nil
}

// file is a new file that disappears when it is closed. Its type is not this package's own,
// because only an *os.File is read at offsets.
func (u *Upload) file() (io.ReadCloser, error) {
	f, err := os.CreateTemp("", "upload")
	if err != nil {
		return nil, err
	}
	u.newCloser().file = f
	_, err = f.Write(u.Content)
	_, seekErr := f.Seek(0, io.SeekStart)
	if err := errors.Join(err, seekErr, os.Remove(f.Name())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	u.req.ContentLength = int64(len(u.Content))
	return f, nil
}

// closer counts how often a body is closed.
type closer struct {
	used atomic.Bool // the body was read
	file *os.File    // the body itself, if that is a file, which shows only whether it is closed

	mu sync.Mutex
	n  int
}

func (c *closer) times() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		if _, err := c.file.Stat(); errors.Is(err, os.ErrClosed) {
			return 1
		}
		return 0
	}
	return c.n
}

func (c *closer) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return nil
}

type seekBody struct {
	io.ReadSeeker
	*closer
}

type streamBody struct {
	reader *bytes.Reader
	*closer
}

func (b *streamBody) Read(p []byte) (int, error) {
	b.used.Store(true)
	return b.reader.Read(p)
}

// trailerBody sets the request's trailer when it has been read, as net/http requires.
type trailerBody struct {
	streamBody
	upload *Upload
}

func (b *trailerBody) Read(p []byte) (int, error) {
	n, err := b.streamBody.Read(p)
	if err == io.EOF {
		b.upload.req.Trailer.Set(TrailerField, b.upload.Trailer())
	}
	return n, err
}

// Unclosed returns how many bodies were never closed. It is for a base that closes twice what
// [Upload.Closed] counts.
func (u *Upload) Unclosed() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, c := range u.closers {
		if c.times() == 0 {
			n++
		}
	}
	return n
}
