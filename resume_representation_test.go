package retryhttp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/memnet"
	"github.com/retryhttp/retryhttp/internal/test/script"
)

// renamed is a file that is replaced by files of its size. Its tag is made of its time in whole
// seconds and of its size, as by nginx. The first answer breaks off after 10 bytes.
type renamed struct {
	content  string
	modified time.Time
	requests int
}

func (f *renamed) replace(content string) { f.content, f.modified = content, time.Now() }

func (f *renamed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Etag", fmt.Sprintf(`"%x-%x"`, f.modified.Unix(), len(f.content)))
	if f.requests++; f.requests == 1 {
		w = &stoppedWriter{w, 10}
	}
	http.ServeContent(w, r, "", f.modified, strings.NewReader(f.content))
}

// stoppedWriter sends left bytes, and ends the connection.
type stoppedWriter struct {
	http.ResponseWriter
	left int
}

func (w *stoppedWriter) Write(p []byte) (int, error) {
	_, _ = w.ResponseWriter.Write(p[:w.left])
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// A tag that is made of a whole second names every version of that second.
func TestResumeDoesNotTrustTheTagOfAFileThatHasJustChanged(t *testing.T) {
	for asked, resumed := range map[time.Duration]bool{
		200 * time.Millisecond: false, 1999 * time.Millisecond: false, 2 * time.Second: true, time.Hour: true,
	} {
		t.Run(asked.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := &renamed{}
				file.replace(object)
				_, base, stop := memnet.Serve(file)
				defer stop()
				time.Sleep(asked)
				p := resumes
				p.Backoff = retryhttp.Constant(300 * time.Millisecond)
				if asked < time.Second {
					p.OnRetry = func(retryhttp.Attempt) { file.replace(strings.ToUpper(object)) }
				}
				got, err := download(t, base, p)
				if resumed {
					require.NoError(t, err)
					assert.Equal(t, object, got)
					assert.Equal(t, 2, file.requests)
					return
				}
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				assert.Equal(t, object[:10], got)
				assert.Equal(t, 1, file.requests)
			})
		})
	}
}

func TestResumeByTagHeedsLastModified(t *testing.T) {
	const now = "Sun, 22 Nov 2026 10:00:00 GMT"
	for name, tc := range map[string]struct {
		header  []string
		resumed bool
	}{
		"two seconds old":              {[]string{"Last-Modified", "Sun, 22 Nov 2026 09:59:58 GMT", "Date", now}, true},
		"a second old":                 {[]string{"Last-Modified", "Sun, 22 Nov 2026 09:59:59 GMT", "Date", now}, false},
		"as old as the answer":         {[]string{"Last-Modified", now, "Date", now}, false},
		"of the future":                {[]string{"Last-Modified", "Sun, 22 Nov 2026 10:00:01 GMT", "Date", now}, false},
		"recent when it was stored":    {[]string{"Last-Modified", "Sun, 22 Nov 2026 09:59:59 GMT", "Date", now, "Age", "60"}, false},
		"old, without a Date":          {[]string{"Last-Modified", "Fri, 31 Dec 1999 23:59:58 GMT"}, true},
		"recent, without a Date":       {[]string{"Last-Modified", "Fri, 31 Dec 1999 23:59:59 GMT"}, false},
		"no date":                      {[]string{"Last-Modified", "yesterday", "Date", now}, true},
		"none, though there is a Date": {[]string{"Date", now}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // on 1 January 2000
				base := script.New(cutAfter(10, tc.header...), rest(10))
				got, err := download(t, base, resumes)
				if tc.resumed {
					require.NoError(t, err)
					assert.Equal(t, object, got)
				} else {
					assert.ErrorIs(t, err, errLost)
					assert.Len(t, base.Requests(), 1)
				}
			})
		})
	}
}
