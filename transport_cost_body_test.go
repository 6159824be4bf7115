//go:build !race

package retryhttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

// whole is a base that answers 200 with a body that does not break off.
type whole struct {
	header   http.Header
	size     int64
	declared bool // with a Content-Length
}

func (w *whole) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: 200, Header: w.header, Body: &letters{w.size}, Request: req, ContentLength: -1}
	if w.declared {
		resp.ContentLength = w.size
	}
	return resp, nil
}

// letters is a body of many letters. It allocates nothing and holds nothing.
type letters struct{ left int64 }

var manyLetters = strings.Repeat("a", 32<<10)

func (l *letters) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), l.left)], manyLetters)
	l.left -= int64(n)
	return n, nil
}

func (*letters) Close() error { return nil }

// downloadOf is a base whose body can be resumed by its tag.
func downloadOf(size int64) *whole {
	return &whole{http.Header{"Etag": {`"one"`}}, size, true}
}

// jsonOf is a base whose body is 2 KiB of JSON, as an API answers.
func jsonOf(declared bool) *whole {
	return &whole{http.Header{"Content-Type": {"application/json"}}, 2 << 10, declared}
}

// allocations returns how many objects a GET through rt allocates, its body included.
func allocations(rt http.RoundTripper) float64 {
	return testing.AllocsPerRun(1000, roundTripper(rt, requestTo("host.example")))
}

func TestCostOfResumeIsOneObject(t *testing.T) {
	byDate := http.Header{"Last-Modified": {"Thu, 01 Jan 2026 00:00:00 GMT"}, "Date": {"Thu, 01 Jan 2026 00:01:00 GMT"}}
	for name, base := range map[string]*whole{"by tag": downloadOf(1 << 10), "by date": {byDate, 1 << 10, true}} {
		ours := allocations(retryhttp.New(base, retryhttp.Policy{Resume: true}))
		assert.Equal(t, 1.0, ours-allocations(base), name)
	}
}

func TestCostOfResumeDoesNotGrowWithTheDownload(t *testing.T) {
	download := retryhttp.New(downloadOf(256<<20), retryhttp.Policy{Resume: true})
	once := roundTripper(download, requestTo("host.example"))
	once() // io.Copy keeps a buffer
	assert.Less(t, allocated(once), uint64(16<<10))
}

func TestCostOfResumeIsOneObjectIfTheServerDoesNotLetTheBodyBeResumed(t *testing.T) {
	for name, base := range map[string]*whole{
		"weak tag": {http.Header{"Etag": {`W/"one"`}}, 1 << 10, true},
		"no tag":   {http.Header{"Date": {"Thu, 01 Jan 2026 00:00:00 GMT"}}, 1 << 10, true},
		"no end":   {http.Header{"Etag": {`"one"`}}, 1 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, 1.0, allocations(retryhttp.New(base, retryhttp.Policy{Resume: true}))-allocations(base))
		})
	}
}

func TestCostOfResumeIsNothingIfTheCallerRulesItOut(t *testing.T) {
	base := downloadOf(1 << 10)
	post := requestTo("host.example")
	post.Method = http.MethodPost
	rt := retryhttp.New(base, retryhttp.Policy{Resume: true})
	assert.Zero(t, testing.AllocsPerRun(1000, roundTripper(rt, post))-testing.AllocsPerRun(1000, roundTripper(base, post)))
	once := retryhttp.New(base, retryhttp.Policy{Resume: true, MaxAttempts: 1})
	assert.Zero(t, allocations(once)-allocations(base))
}

func TestCostOfBuffering2KiBIsThreeObjectsAtMost(t *testing.T) {
	for name, declared := range map[string]bool{"known length": true, "unknown length": false} {
		t.Run(name, func(t *testing.T) {
			base := jsonOf(declared)
			ours := allocations(retryhttp.New(base, retryhttp.Policy{BufferBytes: 64 << 10}))
			assert.LessOrEqual(t, ours-allocations(base), 3.0)
		})
	}
}

func TestCostOfAPeekIsOneObjectBesideAnAttemptTimeout(t *testing.T) {
	base := jsonOf(false)
	limited := allocations(retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute}))
	for peek, objects := range map[int64]float64{1: 1, 1 << 10: 1, 1<<10 + 1: 1, 4 << 10: 1, 4<<10 + 1: 2} {
		ours := allocations(retryhttp.New(base, retryhttp.Policy{AttemptTimeout: time.Minute, PeekBytes: peek}))
		assert.Equal(t, objects, ours-limited, "of %d bytes", peek)
	}
}

func TestCostOfABodyThatIsTooLongToBufferIsNothing(t *testing.T) {
	base := jsonOf(true)
	ours := allocations(retryhttp.New(base, retryhttp.Policy{BufferBytes: 1 << 10}))
	assert.Zero(t, ours-allocations(base))
}

func TestCostOfABodyIsNothingIfItsFieldsAreZero(t *testing.T) {
	for name, p := range map[string]retryhttp.Policy{
		"zero":     {},
		"negative": {BufferBytes: -1, PeekBytes: -1, StallTimeout: -1},
	} {
		for kind, base := range map[string]*whole{
			"download":               downloadOf(1 << 10),
			"JSON of known length":   jsonOf(true),
			"JSON of unknown length": jsonOf(false),
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				assert.Zero(t, allocations(retryhttp.New(base, p))-allocations(base))
			})
		}
	}
}
