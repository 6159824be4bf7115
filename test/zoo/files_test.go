package zoo

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
)

// openers open a file with the content through the file systems of afero.
func openers(t *testing.T, content []byte) map[string]func() afero.File {
	t.Helper()
	dir := t.TempDir()
	through := func(fs afero.Fs, read func(afero.Fs) afero.Fs, name string) func() afero.File {
		require.NoError(t, afero.WriteFile(fs, name, content, 0o600))
		return func() afero.File {
			f, err := read(fs).Open(name)
			require.NoError(t, err)
			return f
		}
	}
	itself := func(fs afero.Fs) afero.Fs { return fs }
	disk := filepath.Join(dir, "upload")
	return map[string]func() afero.File{
		"MemMapFs":      through(afero.NewMemMapFs(), itself, "upload"),
		"OsFs":          through(afero.NewOsFs(), itself, disk),
		"BasePathFs":    through(afero.NewBasePathFs(afero.NewOsFs(), dir), itself, "upload"),
		"ReadOnlyFs":    through(afero.NewMemMapFs(), afero.NewReadOnlyFs, "upload"),
		"CacheOnReadFs": through(afero.NewMemMapFs(), cachedFs, "upload"),
		"CopyOnWriteFs": through(afero.NewMemMapFs(), func(fs afero.Fs) afero.Fs {
			return afero.NewCopyOnWriteFs(fs, afero.NewMemMapFs())
		}, "upload"),
	}
}

func cachedFs(fs afero.Fs) afero.Fs {
	return afero.NewCacheOnReadFs(fs, afero.NewMemMapFs(), time.Hour)
}

// The file of an afero.Fs arrives whole, although an early answer leaves the first attempt in
// the middle of it.
func TestFilesOfAferoAreSentWhole(t *testing.T) {
	content := make([]byte, 4<<20)
	for i := range content {
		content[i] = byte(i * i >> 5)
	}
	for name, open := range openers(t, content) {
		for _, http2 := range []bool{false, true} {
			for _, length := range []int64{-1, int64(len(content))} {
				for _, early := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, HTTP/2 %t, length %d, early %t", name, http2, length, early), func(t *testing.T) {
						var attempts atomic.Int32
						var got bytes.Buffer
						got.Grow(len(content) + bytes.MinRead) // the race detector makes each copy slow
						server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							fails := attempts.Add(1) == 1
							if !fails || !early {
								got.Reset()
								if _, err := got.ReadFrom(r.Body); err != nil {
									return
								}
							}
							if fails {
								w.WriteHeader(http.StatusServiceUnavailable)
							}
						}))
						server.EnableHTTP2 = http2
						server.StartTLS()
						defer server.Close()
						file := open()
						req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL, file)
						require.NoError(t, err)
						req.ContentLength = length
						policy := retryhttp.Policy{Backoff: retryhttp.Constant(time.Millisecond)}
						resp, err := retryhttp.New(server.Client().Transport, policy).RoundTrip(req)
						require.NoError(t, err)
						require.NoError(t, resp.Body.Close())
						require.Equal(t, http.StatusOK, resp.StatusCode)
						require.EqualValues(t, 2, attempts.Load())
						require.True(t, bytes.Equal(content, got.Bytes()), "%d bytes arrived", got.Len())
					})
				}
			}
		}
	}
}
