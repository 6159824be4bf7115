//go:build unix

package balancers_test

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/loopback"
)

const (
	tick    = 10 * time.Millisecond // between two looks at something that is awaited
	forever = 30 * time.Second      // more than anything that is awaited takes
)

// A process of this test that has these variables is a replica, which serves on an address.
const (
	addrVariable   = "RETRYHTTP_REPLICA"
	schemeVariable = "RETRYHTTP_REPLICA_SCHEME"
)

func TestMain(m *testing.M) {
	if addr, ok := os.LookupEnv(addrVariable); ok {
		panic(serve(os.Getenv(schemeVariable), addr))
	}
	os.Exit(m.Run())
}

// serve serves until the process ends. After a SIGUSR1, all answers are 503.
func serve(scheme, addr string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	var broken atomic.Bool
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Replica", addr)
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
		}
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	if scheme == "https" {
		server.StartTLS() // with a certificate that all processes have
	} else {
		server.Start()
	}
	for range signals {
		broken.Store(true)
	}
	return nil
}

// replica is a server process.
type replica struct {
	scheme, addr string
	cmd          *exec.Cmd
}

// startReplica returns a replica that accepts connections. It ends with the test.
func startReplica(t *testing.T, scheme string) *replica {
	t.Helper()
	r := &replica{scheme: scheme, addr: loopback.Refusing(t)}
	r.start(t)
	t.Cleanup(func() { r.kill(t) })
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", r.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, forever, tick)
	return r
}

// start starts the process, also again.
func (r *replica) start(t *testing.T) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	r.cmd = exec.Command(program)
	r.cmd.Env = append(os.Environ(), addrVariable+"="+r.addr, schemeVariable+"="+r.scheme)
	r.cmd.Stderr = t.Output()
	require.NoError(t, r.cmd.Start())
}

func (r *replica) kill(t *testing.T) {
	t.Helper()
	if r.cmd == nil {
		return
	}
	r.signal(t, syscall.SIGKILL) // also ends a process that is stopped
	require.IsType(t, (*exec.ExitError)(nil), r.cmd.Wait())
	r.cmd = nil
}

func (r *replica) restart(t *testing.T) {
	t.Helper()
	r.kill(t)
	r.start(t)
}

func (r *replica) stop(t *testing.T)  { r.signal(t, syscall.SIGSTOP) }
func (r *replica) spoil(t *testing.T) { r.signal(t, syscall.SIGUSR1) }

func (r *replica) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	require.NoError(t, r.cmd.Process.Signal(signal))
}
