package zoo

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// mishap is what the server does to the first arrival of a request.
type mishap struct {
	name      string
	mended    bool // another attempt ends well
	needsBody bool // a request without a body does not meet it
	hangs     bool // there is no response header
	stalls    bool // there is no end of the response
	answer    func(*exchange)
}

var mishaps = []mishap{
	{name: "none", answer: (*exchange).serve},
	{name: "503", mended: true, answer: func(x *exchange) {
		x.receive()
		x.whole(http.StatusServiceUnavailable, busy)
	}},
	{name: "early 503", mended: true, needsBody: true, answer: func(x *exchange) {
		x.whole(http.StatusServiceUnavailable, busy)
		if x.r.ProtoMajor == 2 {
			return // the stream ends, and the client may upload on
		}
		if x.r.ContentLength >= large { // buffers may hold a smaller one, and the next attempt comes behind it
			<-x.acc.moved
		}
		x.receive() // until the client goes: a server that closes first may hide its answer
	}},
	{name: "early 503 that reads on", mended: true, needsBody: true, answer: func(x *exchange) {
		x.whole(http.StatusServiceUnavailable, busy)
		x.receive()
	}},
	{name: "reset before the answer", mended: true, answer: func(x *exchange) {
		x.receive()
		x.reset()
	}},
	{name: "reset in the upload", mended: true, needsBody: true, answer: func(x *exchange) {
		_, _ = io.ReadFull(x.r.Body, make([]byte, 1000))
		x.reset()
	}},
	{name: "stalled header", mended: true, hangs: true, answer: func(x *exchange) {
		x.receive()
		<-x.r.Context().Done()
	}},
	{name: "stalled 503", mended: true, stalls: true, answer: stalled("", busy)},
	{name: "stalled gzip 503", mended: true, stalls: true, answer: stalled("gzip", beginning("gzip"))},
	{name: "stalled zstd 503", mended: true, stalls: true, answer: stalled("zstd", beginning("zstd"))},
	{name: "endless 503", mended: true, answer: func(x *exchange) {
		x.receive()
		x.head(http.StatusServiceUnavailable, busy)
		more := answerTo("endless")
		for err := error(nil); err == nil; {
			_, err = x.w.Write(more)
		}
	}},
	{name: "401", answer: func(x *exchange) {
		x.receive()
		x.challenge()
	}},
}

var busy = []byte("busy")

// server answers requests as their accounts say.
type server struct {
	*httptest.Server
	accounts sync.Map // by id, which is the path without the slash
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if tcp, ok := c.(*net.TCPConn); ok && state == http.StateNew { // room for about 100 KiB on the way
			_ = tcp.SetReadBuffer(32 << 10)
			_ = tcp.SetWriteBuffer(writeBuffer)
		}
	}
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: medium} // too little for a large upload
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, ok := s.accounts.Load(strings.TrimPrefix(r.URL.Path, "/"))
	if !ok {
		http.NotFound(w, r)
		return
	}
	acc := found.(*account)
	// net/http would otherwise read the request before it answers.
	_ = http.NewResponseController(w).EnableFullDuplex()
	a, n := acc.arrive(r)
	x := &exchange{w, r, acc, a}
	if n == 1 {
		acc.fault.answer(x)
		return
	}
	x.serve()
}

// exchange is a request that has come, and its answer.
type exchange struct {
	w       http.ResponseWriter
	r       *http.Request
	acc     *account
	arrival *arrival
}

// serve answers as a server should.
func (x *exchange) serve() {
	if !x.receive() {
		panic(http.ErrAbortHandler)
	}
	if x.acc.challenges && !strings.HasPrefix(x.r.Header.Get("Authorization"), "Digest ") {
		x.challenge()
		return
	}
	signed := x.r.Header.Get("X-Amz-Content-Sha256")
	if signed != "" && signed != hex.EncodeToString(x.arrival.sum) {
		x.whole(http.StatusBadRequest, nil)
		return
	}
	body, accepts := answerTo(x.acc.id), x.r.Header.Get("Accept-Encoding")
	for _, coding := range []string{"zstd", "gzip"} {
		if strings.Contains(accepts, coding) {
			x.w.Header().Set("Content-Encoding", coding)
			body = encoded(coding, body, io.Closer.Close)
			break
		}
	}
	x.whole(http.StatusOK, body)
}

func (x *exchange) receive() bool { return x.acc.receive(x.arrival, x.r.Body, sha256.New()) }

func (x *exchange) challenge() {
	x.w.Header().Set("WWW-Authenticate", `Digest realm="zoo", qop="auth", algorithm=SHA-256, nonce="17"`)
	x.whole(http.StatusUnauthorized, busy)
}

// stalled answers 503 with a body that never ends.
func stalled(coding string, body []byte) func(*exchange) {
	return func(x *exchange) {
		x.receive()
		if coding != "" {
			x.w.Header().Set("Content-Encoding", coding)
		}
		x.head(http.StatusServiceUnavailable, body)
		<-x.r.Context().Done()
	}
}

// whole sends a response.
func (x *exchange) whole(status int, body []byte) {
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.head(status, body)
}

// head sends a response header, and at least the beginning of the body.
func (x *exchange) head(status int, body []byte) {
	x.acc.answer(x.arrival, status)
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body)
	_ = http.NewResponseController(x.w).Flush()
}

// reset ends the connection as the kernel does for a process that has died. Over HTTP/2 it ends
// the stream.
func (x *exchange) reset() {
	if x.r.ProtoMajor == 2 {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// answerTo is the good answer to a request, which is no other's.
func answerTo(id string) []byte {
	return bytes.Repeat([]byte("received "+id+"\n"), 500)
}

// encoder is what gzip.Writer and zstd.Encoder have in common.
type encoder interface {
	io.WriteCloser
	Flush() error
	Reset(io.Writer)
}

// encoders are used by one request at a time, and kept: a new encoder costs the detector more than the rest of a request.
var encoders = struct {
	sync.Mutex
	of map[string]encoder
}{of: newEncoders()}

func newEncoders() map[string]encoder {
	zipped, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	standard, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	return map[string]encoder{"gzip": zipped, "zstd": standard}
}

// encoded returns body in the coding, ended by end.
func encoded(coding string, body []byte, end func(io.Closer) error) []byte {
	encoders.Lock()
	defer encoders.Unlock()
	var b bytes.Buffer
	w := encoders.of[coding]
	w.Reset(&b)
	_, _ = w.Write(body)
	_ = end(w)
	return b.Bytes()
}

// beginning returns the start of an encoded body, as far as it can be decoded.
func beginning(coding string) []byte {
	return encoded(coding, answerTo("stalled"), func(c io.Closer) error { return c.(encoder).Flush() })
}
