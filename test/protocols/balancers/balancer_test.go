//go:build unix

package balancers_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// startHAProxy balances connections to replicas until the test ends. It does not check their health.
// By default it asks a replica that refuses a connection three more times, and not another replica.
func startHAProxy(t *testing.T, replicas []*replica) (addr string) {
	t.Helper()
	return start(t, "haproxy", `
defaults
	mode tcp
	timeout connect 5s
	timeout client 1m
	timeout server 1m
listen balancer
	bind fd@3
	balance roundrobin
`+lines("	server $ $", replicas), "-db", "-f")
}

const streamModule = "/usr/lib/nginx/modules/ngx_stream_module.so" // Debian has it there

// startNginx balances connections to replicas until the test ends.
func startNginx(t *testing.T, replicas []*replica) (addr string) {
	t.Helper()
	if _, err := os.Stat(streamModule); err != nil {
		t.Skip("nginx's stream module is not installed; .ci/run installs it on Debian")
	}
	return start(t, "nginx", `
load_module `+streamModule+`;
daemon off;
worker_processes 1;
pid nginx.pid;
events {}
stream {
	upstream replicas {
`+lines("		server $;", replicas)+`	}
	server {
		listen $;
		proxy_pass replicas;
	}
}
`, "-p", t.TempDir(), "-e", "stderr", "-c")
}

// lines returns a line for each replica, with its address for each $.
func lines(line string, replicas []*replica) string {
	var all strings.Builder
	for _, r := range replicas {
		all.WriteString(strings.ReplaceAll(line, "$", r.addr) + "\n")
	}
	return all.String()
}

// start starts a program with config, in which $ is the address of its open socket. args end with the
// flag for the config.
func start(t *testing.T, name, config string, args ...string) (addr string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(name + " is not installed; .ci/run installs it on Debian")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	addr = listener.Addr().String()
	socket, err := listener.(*net.TCPListener).File()
	require.NoError(t, err)
	defer socket.Close()

	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(config, "$", addr)), 0o600))
	cmd := exec.Command(path, append(args, file)...)
	cmd.Env = append(os.Environ(), "NGINX=3;")
	cmd.ExtraFiles = []*os.File{socket} // nobody can take its port, and it queues connections from now on
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait() // HAProxy's status is the signal's
	})
	return addr
}
