package sockets_test

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
)

//go:embed doc.go
var embedded embed.FS

// file is a body that the standard library opened, and the upload that it should make.
type file struct {
	body   io.ReadCloser
	want   []byte
	limits bool // its Read leaves out what Seek moves in
}

// filesOf returns ways to open the content, or something like it, as a file.
func filesOf(t *testing.T, content []byte) map[string]func() file {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "upload"), content, 0o600))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	opened := func(body any, err error) io.ReadCloser {
		require.NoError(t, err)
		return body.(io.ReadCloser)
	}
	whole := func(open func() io.ReadCloser) func() file {
		return func() file { return file{body: open(), want: content} }
	}
	special := func(path string) func() file { // or a usual file, if there is no special file
		return func() file {
			f, err := os.Open(path)
			if err != nil {
				return file{body: opened(root.Open("upload")), want: content}
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			return file{body: f, want: want}
		}
	}
	limited := func(limit int, memory int64) func() file {
		return func() file {
			f := formFile(t, content, memory)
			body := limitedFile{f, io.LimitReader(f, int64(limit))}
			return file{body, content[:limit], limit < len(content)}
		}
	}
	const all = 1 << 30
	return map[string]func() file{
		"os.Root":     whole(func() io.ReadCloser { return opened(root.Open("upload")) }),
		"os.Root.FS":  whole(func() io.ReadCloser { return opened(root.FS().Open("upload")) }),
		"os.DirFS":    whole(func() io.ReadCloser { return opened(os.DirFS(dir).Open("upload")) }),
		"MapFS":       whole(func() io.ReadCloser { return opened(fstest.MapFS{"upload": {Data: content}}.Open("upload")) }),
		"form, disk":  whole(func() io.ReadCloser { return formFile(t, content, 0) }),
		"form":        whole(func() io.ReadCloser { return formFile(t, content, all) }),
		"in a struct": whole(func() io.ReadCloser { return struct{ *os.File }{opened(root.Open("upload")).(*os.File)} }),
		"embed": func() file {
			want, err := embedded.ReadFile("doc.go")
			require.NoError(t, err)
			return file{body: opened(embedded.Open("doc.go")), want: want}
		},
		"/proc":               special("/proc/version"),
		"/sys":                special("/sys/devices/system/cpu/online"), // says 4096 bytes
		"form, limited, disk": limited(len(content)/3, 0),
		"form, limited":       limited(len(content)/3, all),
	}
}

// limitedFile reads less than its file has, and its Seek does not know the limit.
type limitedFile struct {
	multipart.File
	r io.Reader
}

func (f limitedFile) Read(p []byte) (int, error) { return f.r.Read(p) }

// formFile is the content as a server receives it in a form. It is in memory, or else on disk.
func formFile(t *testing.T, content []byte, memory int64) multipart.File {
	t.Helper()
	var text bytes.Buffer
	text.Grow(len(content) + 1<<10)
	w := multipart.NewWriter(&text)
	part, err := w.CreateFormFile("upload", "upload")
	require.NoError(t, err)
	_, err = part.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	form, err := multipart.NewReader(&text, w.Boundary()).ReadForm(memory)
	require.NoError(t, err)
	t.Cleanup(func() { _ = form.RemoveAll() })
	f, err := form.File["upload"][0].Open()
	require.NoError(t, err)
	return f
}

// fileServer fails the first attempt, before it has read the body or after, and keeps the sum of every body
// that came to its end.
type fileServer struct {
	fails, early bool

	mu       sync.Mutex
	attempts int
	whole    [][]byte
}

func sumOf(content []byte) []byte {
	sum := sha256.Sum256(content)
	return sum[:]
}

func (s *fileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.attempts++
	fails := s.fails && s.attempts == 1
	s.mu.Unlock()
	if fails && s.early {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, r.Body); err == nil {
		s.mu.Lock()
		s.whole = append(s.whole, sum.Sum(nil))
		s.mu.Unlock()
	}
	if fails {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// An attempt sends what one reading of a file gives, or does not end its body. How the file was
// opened does not matter.
func TestFilesAreSentWhole(t *testing.T) {
	t.Parallel()
	content := make([]byte, 2<<20)
	for i := range content {
		content[i] = byte(i * i >> 5)
	}
	for name, open := range filesOf(t, content) {
		for _, http2 := range []bool{false, true} {
			for _, known := range []bool{false, true} {
				for answers, server := range map[string]*fileServer{
					"200":                  {},
					"503 and 200":          {fails: true},
					"an early 503 and 200": {fails: true, early: true},
				} {
					t.Run(fmt.Sprintf("%s, HTTP/2 %t, known length %t, %s", name, http2, known, answers), func(t *testing.T) {
						t.Parallel() // closing a server that has not read everything takes it a while
						url, base := loopback.ServeTLS(t, http2, server.ServeHTTP)
						f := open()
						req, err := http.NewRequest("PUT", url, f.body)
						require.NoError(t, err)
						if known {
							req.ContentLength = int64(len(f.want))
						}
						resp, err := retryhttp.New(base, retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)}).RoundTrip(req)
						if err == nil {
							require.NoError(t, resp.Body.Close())
						}
						server.mu.Lock()
						defer server.mu.Unlock()
						for _, sum := range server.whole {
							assert.Equal(t, sumOf(f.want), sum, "another file arrived")
						}
						switch {
						case !f.limits || !server.fails:
							require.NoError(t, err)
							assert.Equal(t, 200, resp.StatusCode)
						case err == nil && resp.StatusCode != 200:
							assert.Equal(t, retryhttp.StopBody, retryhttp.OutcomeOf(resp).Stop)
							assert.Equal(t, 1, server.attempts)
						case err != nil && known: // the first attempt was reading when the body was to be rewound
							assert.True(t, server.early, "%v", err)
							assert.ErrorContains(t, err, "its Read and its Seek have different ends")
						case err != nil: // how long the body was going to be was not known
							assert.True(t, server.early, "%v", err)
						}
					})
				}
			}
		}
	}
}
