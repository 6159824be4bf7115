package retrytest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/retryhttp/retryhttp/internal/redact"
)

// Record is a request that arrived.
type Record struct {
	Number int           // 1 for the first
	At     time.Duration // since the first
	Method string
	URL    string // with the query; a Handler's has no host
	Host   string
	Header http.Header // as it arrived
	Body   []byte      // as much of it as has been read; if it is opened again, since then
	Whole  bool        // the body has been read to its end
	Step   string      // what became of the request
}

// record is a Record that may still grow. The script's lock guards it.
type record struct {
	Record
	shown string    // the URL without secrets
	body  *recorded // what Body is from
}

// arrive records a request, and returns what becomes of it.
func (s *script) arrive(req *http.Request) (*record, Step) {
	s.arriving.Lock()
	defer s.arriving.Unlock()
	now := time.Now()
	if s.began.IsZero() {
		s.began = now
	}
	a := arrival{number: len(s.records) + 1, at: now.Sub(s.began), req: req}
	step := s.choose(a)
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	r := &record{Record{
		Number: a.number, At: a.at, Method: method, URL: req.URL.String(), Host: host,
		Header: req.Header.Clone(), Whole: req.Body == nil || req.Body == http.NoBody, Step: step.String(),
	}, redact.URL(req.URL), nil}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, r)
	return r, step
}

// Records returns the requests that have arrived, in their order. They are copies. While a request is under
// way, more of its Body may come.
func (s *script) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Record, len(s.records))
	for i, r := range s.records {
		all[i] = r.Record
		all[i].Header, all[i].Body = r.Header.Clone(), bytes.Clone(r.Body)
	}
	return all
}

// Table returns the records as a text with a line for each. It has no userinfo, no query, and no header.
func (s *script) Table() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "number\tat\trequest\tbody\twhat became of it")
	for _, r := range s.records {
		size := fmt.Sprintf("%d bytes", len(r.Body))
		if !r.Whole {
			size = "at least " + size
		}
		fmt.Fprintf(w, "%d\t%v\t%s %s\t%s\t%s\n", r.Number, r.At, r.Method, r.shown, size, r.Step)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

func (s *script) recorded(body io.ReadCloser, r *record) io.ReadCloser {
	return &recorded{ReadCloser: body, script: s, record: r}
}

// recorded is a request body that is recorded as it is read. A RoundTripper may open a body again, to sign
// the request or to repeat it. The body that a Read has begun last counts.
type recorded struct {
	io.ReadCloser
	script *script
	record *record
	begun  bool // the script's lock guards it
}

func (r *recorded) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.script.mu.Lock()
	defer r.script.mu.Unlock()
	if !r.begun {
		r.begun = true
		r.record.body, r.record.Body, r.record.Whole = r, nil, false
	}
	if r.record.body == r {
		r.record.Body = append(r.record.Body, p[:n]...)
		r.record.Whole = r.record.Whole || err == io.EOF
	}
	return n, err
}
