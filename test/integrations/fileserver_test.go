package integrations_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

const fileSize = 8 << 20

// file is a large file in a directory of its own, which was written an hour ago.
type file struct {
	dir     string
	content []byte
}

func newFile(t *testing.T) *file {
	f := &file{dir: t.TempDir()}
	f.write(t, 1, time.Now().Add(-time.Hour))
	return f
}

// write replaces the file by another file of the same size. It is text, which compresses to half
// its size.
func (f *file) write(t *testing.T, seed byte, modified time.Time) {
	random := make([]byte, fileSize/2)
	rand.NewChaCha8([32]byte{seed}).Read(random)
	f.content = hex.AppendEncode(nil, random)
	path := filepath.Join(f.dir, "file")
	require.NoError(t, os.WriteFile(path+".new", f.content, 0o644))
	require.NoError(t, os.Chtimes(path+".new", modified, modified))
	require.NoError(t, os.Rename(path+".new", path))
}

// cuts lists after how many bytes the connections end, and how.
type cuts []fault.Cut

func (c *cuts) Refuse() bool { return false }

func (c *cuts) Next() *fault.Link {
	if len(*c) == 0 {
		return nil
	}
	link := &fault.Link{Down: (*c)[0]}
	*c = (*c)[1:]
	return link
}

// fetched is the result of a download over a network that breaks its connections.
type fetched struct {
	content []byte
	err     error
	offsets []int64 // at which the download broke off
}

// fetch downloads the file from addr. Each connection there meets one of cuts.
func fetch(t *testing.T, addr string, header http.Header, onBreak func(), cuts cuts) (f fetched) {
	proxy, err := fault.NewProxy(addr, &cuts)
	require.NoError(t, err)
	defer proxy.Close()
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext = proxy.DialContext
	defer base.CloseIdleConnections()
	policy := resuming
	policy.Backoff = retryhttp.Constant(0)
	policy.OnRetry = func(a retryhttp.Attempt) {
		f.offsets = append(f.offsets, a.Offset)
		onBreak()
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/file", nil)
	require.NoError(t, err)
	req.Header = header
	resp, err := (&http.Client{Transport: retryhttp.New(base, policy)}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	f.content, f.err = io.ReadAll(resp.Body)
	return f
}

func nothing() {}

// fileServers serve the files in dir. log ends the server, and returns the Range of each request.
var fileServers = map[string]func(t *testing.T, dir string) (addr string, log func() []string){
	"net/http": func(t *testing.T, dir string) (string, func() []string) {
		server := failing(http.FileServer(http.Dir(dir)).ServeHTTP)
		t.Cleanup(server.Close)
		return server.Listener.Addr().String(), func() (ranges []string) {
			server.Close()
			for _, r := range server.got() {
				ranges = append(ranges, r.Header.Get("Range"))
			}
			return ranges
		}
	},
	"nginx": func(t *testing.T, dir string) (string, func() []string) { return startNginx(t, dir, "") },
}

// Four connections break, one of them at once.
func TestFileServersHaveTheirDownloadsResumed(t *testing.T) {
	for name, start := range fileServers {
		t.Run(name, func(t *testing.T) {
			file := newFile(t)
			addr, log := start(t, file.dir)
			got := fetch(t, addr, http.Header{}, nothing, cuts{
				{After: 3 << 19, How: fault.Close}, {After: 3 << 20, How: fault.Reset},
				{After: 2000, How: fault.Close}, {After: 3 << 19, How: fault.Close},
			})
			require.NoError(t, got.err)
			require.True(t, bytes.Equal(file.content, got.content))
			ranges := []string{""}
			for _, offset := range got.offsets {
				ranges = append(ranges, fmt.Sprintf("bytes=%d-%d", offset, fileSize-1))
			}
			require.Len(t, ranges, 5)
			require.Equal(t, ranges, log())
		})
	}
}

func TestFileServersRefuseTheRestOfAFileThatWasReplaced(t *testing.T) {
	for name, start := range fileServers {
		t.Run(name, func(t *testing.T) {
			file := newFile(t)
			old := file.content
			addr, log := start(t, file.dir)
			got := fetch(t, addr, http.Header{}, func() {
				file.write(t, 2, time.Now().Add(-time.Minute))
			}, cuts{{After: 1 << 20, How: fault.Close}})
			require.ErrorIs(t, got.err, io.ErrUnexpectedEOF)
			require.ErrorContains(t, got.err, "412")
			require.True(t, bytes.HasPrefix(old, got.content))
			require.Len(t, got.offsets, 1)
			require.EqualValues(t, got.offsets[0], len(got.content))
			require.Len(t, log(), 2)
		})
	}
}

// nginx makes a tag from a file's second and size. So two files of one size and one second have
// the same tag.
func TestNginxDownloadIsNotResumedIfTheFileHasJustChanged(t *testing.T) {
	file := newFile(t)
	addr, log := startNginx(t, file.dir, "")
	now := time.Now().Add(time.Second) // a slow machine has three seconds
	file.write(t, 2, now)
	old := file.content
	got := fetch(t, addr, http.Header{}, func() { file.write(t, 3, now) }, cuts{{After: 1 << 20, How: fault.Close}})
	require.ErrorIs(t, got.err, io.ErrUnexpectedEOF)
	require.True(t, bytes.HasPrefix(old, got.content))
	require.Len(t, log(), 1)
}
