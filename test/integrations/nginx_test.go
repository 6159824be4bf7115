package integrations_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// startNginx serves dir with options until the test or log ends it. log returns the Range
// of each request.
func startNginx(t *testing.T, dir, options string) (addr string, log func() []string) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx is not installed; .ci/run installs it on Debian")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	addr = listener.Addr().String()
	socket, err := listener.(*net.TCPListener).File()
	require.NoError(t, err)
	defer socket.Close()

	prefix := t.TempDir()
	config := filepath.Join(prefix, "nginx.conf")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf(nginxConfig, dir, addr, options)), 0o600))
	cmd := exec.Command(path, "-p", prefix, "-c", config, "-e", "stderr")
	cmd.Env = append(os.Environ(), "NGINX=3;") // nobody can take the open socket's port
	cmd.ExtraFiles = []*os.File{socket}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	require.NoError(t, cmd.Start())
	ended := false
	end := func() {
		if !ended {
			ended = true
			require.NoError(t, cmd.Process.Signal(syscall.SIGQUIT)) // nginx ends what it has begun
			require.NoError(t, cmd.Wait(), complaints.String())
		}
	}
	t.Cleanup(end)
	return addr, func() []string {
		end()
		lines, err := os.ReadFile(filepath.Join(prefix, "log"))
		require.NoError(t, err)
		return rangesOf(t, string(lines))
	}
}

// rangesOf reads nginx's log, which has requests in the order of their ends. Each request has a
// connection of its own here, and connections are numbered.
func rangesOf(t *testing.T, log string) (ranges []string) {
	of := map[int]string{}
	for line := range strings.Lines(log) {
		connection, asked, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(connection)
		require.NoError(t, err)
		require.NotContains(t, of, n)
		of[n] = strings.TrimPrefix(asked, "-") // nginx logs a - if there is no Range
	}
	for _, n := range slices.Sorted(maps.Keys(of)) {
		ranges = append(ranges, of[n])
	}
	return ranges
}

const nginxConfig = `
daemon off;
worker_processes 1;
user root; # where it starts as root, it must read what only root may
pid nginx.pid;
events {}
http {
	log_format range '$connection $http_range';
	access_log log range;
	client_body_temp_path body;
	fastcgi_temp_path fastcgi;
	proxy_temp_path proxy;
	scgi_temp_path scgi;
	uwsgi_temp_path uwsgi;
	root %s;
	server {
		listen %s;
		%s
	}
}
`

// A response that nginx compresses has a weak ETag, or no known length: the same file may be
// compressed into other bytes another time. An uncompressed response is resumed from the same
// server.
func TestNginxDownloadsAreNotResumedIfTheyAreCompressed(t *testing.T) {
	for name, tt := range map[string]struct {
		header  http.Header
		resumed bool
	}{
		"by net/http's own wish": {http.Header{}, false},
		"by the caller's wish":   {http.Header{"Accept-Encoding": {"gzip"}}, false},
		"not compressed":         {http.Header{"Accept-Encoding": {"identity"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			file := newFile(t)
			addr, log := startNginx(t, file.dir, "gzip on; gzip_types text/plain;")
			got := fetch(t, addr, tt.header, nothing, cuts{{After: 1 << 20, How: fault.Close}})
			if tt.resumed {
				require.NoError(t, got.err)
				require.True(t, bytes.Equal(file.content, got.content))
				require.Len(t, log(), 2)
				return
			}
			require.ErrorIs(t, got.err, io.ErrUnexpectedEOF)
			require.Empty(t, got.offsets)
			require.Len(t, log(), 1)
		})
	}
}
