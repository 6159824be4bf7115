package benchmarks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"
)

// upload is something to send, in one form.
type upload struct {
	kind string
	open func() (io.Reader, error) // for each request anew
}

// payload is what is uploaded: bytes without a period, so that a part in the
// wrong place shows.
type payload struct {
	data []byte
	sum  [sha256.Size]byte
	path string // of a file that holds them
}

func newPayload(dir string, size int) (*payload, error) {
	data := make([]byte, size)
	if _, err := rand.NewChaCha8([32]byte{}).Read(data); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, "upload")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, err = f.Write(data)
	return &payload{data, sha256.Sum256(data), f.Name()}, err
}

func (p *payload) getBody() upload {
	return upload{"GetBody", func() (io.Reader, error) { return bytes.NewReader(p.data), nil }}
}

func (p *payload) file() upload {
	return upload{"file", func() (io.Reader, error) { return os.Open(p.path) }}
}

func (p *payload) seeker() upload {
	return upload{"seeker", func() (io.Reader, error) { return &seeker{Reader: bytes.NewReader(p.data)}, nil }}
}

func (p *payload) stream() upload {
	return upload{"stream", func() (io.Reader, error) { return struct{ io.Reader }{bytes.NewReader(p.data)}, nil }}
}

// seeker has Read, Seek and Close, and nothing else.
type seeker struct {
	io.Reader
}

func (s *seeker) Seek(offset int64, whence int) (int64, error) {
	return s.Reader.(*bytes.Reader).Seek(offset, whence)
}

func (*seeker) Close() error { return nil }

// put uploads u to url, and returns the status of the answer.
func put(ctx context.Context, d doer, url string, u upload) (int, error) {
	source, err := u.open()
	if err != nil {
		return 0, err
	}
	if c, ok := source.(io.Closer); ok {
		defer c.Close() // not every peer does
	}
	req, err := newRequest(ctx, "PUT", url, source)
	if err != nil {
		return 0, err
	}
	resp, err := d.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, discard(io.Discard, resp.Body)
}

// held is what one large upload took, and what came of it when it failed after
// the server had read it all.
type held struct {
	allocated, peak float64
	outcome         string
}

const (
	wholeAgain = "sent again, whole"
	sentOnce   = "not sent again"
)

// hold uploads u to a server that reads it, looks at the heap, and fails the
// first attempt.
func hold(p peer, u upload, want [sha256.Size]byte) (h held, err error) {
	var peak float64
	var sums [][sha256.Size]byte
	var mu sync.Mutex
	s := serve(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		hash := sha256.New()
		readErr := discard(hash, req.Body)
		mu.Lock()
		defer mu.Unlock()
		peak = max(peak, live()) // while the client waits for the answer
		if readErr != nil {
			return
		}
		if sums = append(sums, [sha256.Size]byte(hash.Sum(nil))); len(sums) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.stop()
	d := p.build(s.base, settings{attempts: 3, wait: time.Millisecond, retryAll: true})
	before := live()
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	status, err := put(context.Background(), d, s.url, u)
	runtime.ReadMemStats(&end)
	mu.Lock()
	defer mu.Unlock()
	h = held{allocated: float64(end.TotalAlloc - start.TotalAlloc), peak: peak - before}
	switch {
	case err != nil && len(sums) < 2:
		h.outcome = sentOnce + ", an error"
	case err != nil:
		h.outcome = "an error: " + err.Error()
	case status == http.StatusServiceUnavailable && len(sums) == 1:
		h.outcome = sentOnce
	case len(sums) == 2 && sums[1] == want:
		h.outcome = wholeAgain
	default:
		h.outcome = fmt.Sprintf("sent %d times, **wrong**", len(sums))
	}
	return h, nil
}

// holdOften is hold, with the medians of several rounds.
func holdOften(rounds int, p peer, u upload, want [sha256.Size]byte) (held, error) {
	var allocated, peak []float64
	outcomes := make(map[string]bool)
	for range rounds {
		h, err := hold(p, u, want)
		if err != nil {
			return held{}, err
		}
		allocated, peak = append(allocated, h.allocated), append(peak, h.peak)
		outcomes[h.outcome] = true
	}
	h := held{median(allocated), median(peak), ""}
	for outcome := range outcomes {
		if h.outcome != "" {
			h.outcome += "; or "
		}
		h.outcome += outcome
	}
	return h, nil
}

// early counts what came of uploads whose first attempt was failed by a server
// that did not wait for the body.
type early struct{ tries, delivered, whole int }

func (e early) intact() bool { return e.delivered == e.whole }

// hurry uploads u time after time. A server that answers before it has read the
// body leaves the client in the middle of sending it; every other time it goes
// on reading for a while, so that the attempts overlap.
func hurry(p peer, u upload, want [sha256.Size]byte, tries int) (early, error) {
	var mu sync.Mutex
	seen := make(map[string]int)
	whole := make(map[string]bool)
	s := serve(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		seen[req.URL.Path]++
		first := seen[req.URL.Path] == 1
		overlap := len(seen)%2 == 0
		mu.Unlock()
		if first {
			failEarly(w, req, overlap)
			return
		}
		hash := sha256.New()
		if err := discard(hash, req.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		mu.Lock()
		whole[req.URL.Path] = [sha256.Size]byte(hash.Sum(nil)) == want
		mu.Unlock()
	}))
	defer s.stop()
	e := early{tries: tries}
	for i := range tries {
		s.base.CloseIdleConnections()
		path := fmt.Sprintf("/%d", i)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		status, err := put(ctx, p.build(s.base, settings{attempts: 4, wait: time.Millisecond, retryAll: true}), s.url+path, u)
		cancel()
		if err != nil || status != http.StatusOK {
			continue
		}
		e.delivered++
		mu.Lock()
		if whole[path] {
			e.whole++
		}
		mu.Unlock()
	}
	return e, nil
}

func failEarly(w http.ResponseWriter, req *http.Request, overlap bool) {
	if !overlap {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	if err := control.EnableFullDuplex(); err != nil {
		panic(err) // HTTP/1 can
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	if err := control.Flush(); err != nil {
		return
	}
	_ = discard(io.Discard, io.LimitReader(req.Body, 1<<20)) // until the client gives up
}
