package benchmarks

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/retryhttp/retryhttp"
)

// downloading is a download that goes on in turns, a slice at a time. After its end it is
// started anew.
type downloading struct {
	rt   http.RoundTripper
	url  string
	body io.ReadCloser // nil: there is none at the time
	left int64
}

// slice is much more than the sockets of an idle download hold.
const slice = 16 << 20

// downloads measures large downloads that do not break off. Each contender has one in
// progress, and they take turns within it. What a download allocates is measured with
// short ones.
func downloads(rounds int, size int64) ([]result, error) {
	base, url, stop := serveDownloads(size)
	defer stop()
	var contenders []contender
	for _, s := range downloadSubjects(base) {
		d := &downloading{rt: s.got, url: url}
		defer d.stop()
		contenders = append(contenders, contender{name: s.name, run: d.run})
	}
	long, err := compare(rounds, 1, contenders)
	if err != nil {
		return nil, err
	}
	short, err := shortDownloads()
	if err != nil {
		return nil, err
	}
	for i := range long {
		long[i].allocs, long[i].above.allocs = short[i].allocs, short[i].above.allocs
	}
	return long, nil
}

func shortDownloads() ([]result, error) {
	base, url, stop := serveDownloads(64 << 10)
	defer stop()
	var contenders []contender
	for _, s := range downloadSubjects(base) {
		contenders = append(contenders, contender{name: s.name, run: repeat(&http.Client{Transport: s.got}, http.MethodGet, url, nil)})
	}
	return compare(3, 200, contenders)
}

// run reads n slices.
func (d *downloading) run(n int) error {
	for range n {
		if err := d.next(); err != nil {
			return err
		}
	}
	return nil
}

// next reads a slice, and sees that nothing is missing.
func (d *downloading) next() error {
	if d.body == nil {
		if err := d.start(); err != nil {
			return err
		}
	}
	part := io.LimitedReader{R: d.body, N: min(slice, d.left)}
	d.left -= part.N
	switch err := discard(io.Discard, &part); {
	case err != nil:
		return err
	case part.N > 0:
		return io.ErrUnexpectedEOF
	case d.left == 0:
		return d.end()
	}
	return nil
}

func (d *downloading) start() error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, d.url, nil)
	if err != nil {
		return err
	}
	resp, err := d.rt.RoundTrip(req)
	if err != nil {
		return err
	}
	d.body, d.left = resp.Body, resp.ContentLength
	return nil
}

// end sees that nothing follows.
func (d *downloading) end() error {
	defer d.stop()
	if n, err := d.body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return fmt.Errorf("at the end of the download: %d bytes, %v", n, err)
	}
	return nil
}

func (d *downloading) stop() {
	if d.body != nil {
		_ = d.body.Close()
		d.body = nil
	}
}

func downloadSubjects(base http.RoundTripper) []row[http.RoundTripper] {
	with := func(p retryhttp.Policy) http.RoundTripper { return retryhttp.New(base, p) }
	return []row[http.RoundTripper]{
		{"bare", base},
		{"bare, once more", base}, // by how much equals differ
		{"retryhttp, default policy", with(retryhttp.Policy{})},
		{"retryhttp, `Resume`", with(retryhttp.Policy{Resume: true})},
		{"retryhttp, `StallTimeout`", with(retryhttp.Policy{StallTimeout: time.Minute})},
		{"retryhttp, both", with(retryhttp.Policy{Resume: true, StallTimeout: time.Minute})},
	}
}

// socketBuffer bounds what is on its way while a download has no turn. The kernel would
// let it grow to several MiB.
const socketBuffer = 256 << 10

// serveDownloads serves a body of size bytes that can be resumed. It holds a small part of
// the body.
func serveDownloads(size int64) (base *http.Transport, url string, stop func()) {
	block := make([]byte, 256<<10)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"one"`)
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		for left := size; left > 0; left -= int64(len(block)) {
			if _, err := w.Write(block[:min(left, int64(len(block)))]); err != nil {
				return
			}
		}
	}))
	srv.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			_ = c.(*net.TCPConn).SetWriteBuffer(socketBuffer)
		}
	}
	srv.Start()
	base = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(socketBuffer)
		}
		return c, err
	}}
	return base, srv.URL, func() {
		base.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	}
}

func (r *report) downloadTable() string {
	var rows [][]string
	for i, d := range r.downloads {
		cells := []string{
			d.name, fmt.Sprintf("%.2f GB/s", slice/d.ns), fmt.Sprintf("%.1f %%", 100/d.ratio),
			fmt.Sprintf("%.2f", d.cpuRatio), count(d.above.allocs),
		}
		if i == floor {
			cells = []string{d.name, cells[1], "100 %", "1", fmt.Sprintf("(%.0f)", d.allocs)}
		}
		rows = append(rows, cells)
	}
	return table([]string{"", "throughput", "of the first", "CPU time, × the first", "allocations above the first"}, rows)
}
