package fault

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Every Object has this size. A caller that wants less asks for PartBegin to PartEnd.
const (
	ObjectSize = 10_000
	PartBegin  = 1000
	PartEnd    = 9000
)

// VersionField is the field by which an answer says which version its bytes have, even
// if it lies in everything else. No client looks at it.
const VersionField = "Fault-Version"

// Object is the content that a [Download] gets.
type Object struct {
	Download Download
	Pause    time.Duration // that a body makes which trickles, and that precedes a Drop

	versions [2]version
	recent   string // a second before the first answer

	mu    sync.Mutex
	asked []http.Header
}

// version is an Object's content at some time. Two versions differ in every byte.
type version struct {
	plain, gzip  []byte
	tag          string
	lastModified string
}

// NewObject returns the n-th Object.
func NewObject(d Download, n uint64) *Object {
	first := Content(n, ObjectSize)
	second := make([]byte, len(first))
	for i, b := range first {
		second[i] = ^b
	}
	o := &Object{Download: d, recent: time.Now().Add(-time.Second).UTC().Format(http.TimeFormat)}
	for i, content := range [][]byte{first, second} {
		modified := time.Date(1994+i, time.November, 6, 8, 49, 37, 0, time.UTC)
		v := version{plain: content, tag: "v" + strconv.Itoa(i+1), lastModified: modified.Format(http.TimeFormat)}
		if d.Framing == Gzip || d.Framing == GzipWanted {
			v.gzip = compress(content)
		}
		o.versions[i] = v
	}
	return o
}

// compressors are kept, since a new one costs more than the rest of a download.
var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.NoCompression)
	return w
}}

// compress returns content as a gzip stream. Its beginning is enough to read the
// beginning of content.
func compress(content []byte) []byte {
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	for len(content) > 0 {
		n := min(len(content), 500)
		_, _ = w.Write(content[:n])
		_ = w.Flush()
		content = content[n:]
	}
	_ = w.Close()
	return out.Bytes()
}

func (o *Object) Asked() []http.Header {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}

// arrive records a request, and returns how many requests there were before it, and how many of
// them were resumptions.
func (o *Object) arrive(h http.Header) (before, resumptions int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, earlier := range o.asked {
		if isResumption(earlier) {
			resumptions++
		}
	}
	o.asked = append(o.asked, h.Clone())
	return len(o.asked) - 1, resumptions
}

func isResumption(h http.Header) bool { return h.Get("If-Range") != "" }

// serve answers as the Download says.
func (o *Object) serve(x *Exchange) {
	x.Receive()
	h := x.r.Header
	before, resumptions := o.arrive(h)
	v := &o.versions[0]
	if o.Download.Replaced && before > 0 {
		v = &o.versions[1]
	}
	var a *answer
	if wrong := o.Download.Resumed; isResumption(h) && (wrong.times == 0 || resumptions < wrong.times) {
		a = o.answer(h, v, wrong.ignores)
		if wrong.spoil != nil {
			wrong.spoil(a)
		}
	} else {
		a = o.answer(h, v, 0)
	}
	if a.status < 300 {
		x.answered(http.StatusOK)
	}
	o.send(x, a, before < o.Download.Cuts)
}

// answer returns the answer of a server that ignores some of what h asks for.
func (o *Object) answer(h http.Header, v *version, ignored condition) *answer {
	a := &answer{status: http.StatusOK, header: make(http.Header), whole: v.plain, last: len(v.plain) - 1}
	encoded := v.gzip != nil && strings.Contains(h.Get("Accept-Encoding"), "gzip")
	if encoded {
		a.whole, a.last = v.gzip, len(v.gzip)-1
		a.header.Set("Content-Encoding", "gzip")
	}
	a.body = a.whole
	a.header.Set(VersionField, v.tag)
	a.header.Set("Content-Type", "application/octet-stream")
	current := o.validate(a.header, encoded, v)

	differs := func(field string) bool { return h.Get(field) != "" && h.Get(field) != current }
	switch {
	case ignored&ifMatch == 0 && (differs("If-Match") || differs("If-Unmodified-Since")):
		a.refuse(http.StatusPreconditionFailed)
	case ignored&ranged == 0 && h.Get("Range") != "" && (ignored&ifRange != 0 || !differs("If-Range")):
		first, last, _ := strings.Cut(strings.TrimPrefix(h.Get("Range"), "bytes="), "-")
		from, _ := strconv.Atoi(first)
		to, _ := strconv.Atoi(last)
		a.part(from, to)
	}
	return a
}

// validate sets the Download's kind of validator, and returns it if a server may compare
// it with a condition.
func (o *Object) validate(h http.Header, encoded bool, v *version) string {
	tag := strconv.Quote(v.tag)
	if encoded {
		tag = strconv.Quote(v.tag + "-gzip")
	}
	switch o.Download.Validator {
	case NoRanges:
		h.Set("Accept-Ranges", "none")
		fallthrough
	case StrongTag:
		h.Set("ETag", tag)
		return tag
	case DatedTag:
		h.Set("ETag", tag)
		h.Set("Last-Modified", v.lastModified)
		return tag
	case YoungTag:
		now := time.Now().UTC().Format(http.TimeFormat)
		h.Set("ETag", tag)
		h.Set("Last-Modified", now)
		h.Set("Date", now) // a busy machine may take seconds to send the header
		return tag
	case WeakTag:
		h.Set("ETag", "W/"+tag)
	case EmptyTag:
		h.Set("ETag", `""`)
	case OldDate:
		h.Set("Last-Modified", v.lastModified)
		return v.lastModified
	case RecentDate:
		h.Set("Last-Modified", o.recent)
	}
	return ""
}

// send sends a. If cut is true, a meets the Download's fault.
func (o *Object) send(x *Exchange, a *answer, cut bool) {
	d := &o.Download
	if cut && d.Where == BeforeHeader {
		o.breakHeader(x)
	}
	for name, lines := range a.header {
		x.w.Header()[name] = lines
	}
	switch {
	case d.Framing.hasLength() && !a.unannounced:
		x.w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	case d.Framing == Delimited && x.r.ProtoMajor == 1:
		x.w.Header().Set("Transfer-Encoding", "identity")
	}
	if cut && d.How == Stall {
		x.stalls()
	}
	x.w.WriteHeader(a.status)
	if !cut || d.Where == BeforeHeader {
		_, _ = x.Write(a.body) // and flush, or net/http would add the length
		return
	}
	at := d.Where.in(len(a.body))
	_, _ = x.Write(a.body[:at])
	o.breakBody(x, a.body[at:])
}

// breakHeader makes the fault happen instead of a header, or before it.
func (o *Object) breakHeader(x *Exchange) {
	switch o.Download.How {
	case Trickle:
		x.pause(o.Pause)
		return
	case Stall:
		x.Hang()
	case Drop:
		x.drop()
	case Reset:
		x.reset()
	}
	x.abort()
}

// breakBody makes the fault happen to the rest of a body.
func (o *Object) breakBody(x *Exchange, rest []byte) {
	switch o.Download.How {
	case Trickle:
		for len(rest) > 0 {
			n := min(len(rest), ObjectSize/5)
			x.pause(o.Pause)
			_, _ = x.Write(rest[:n])
			rest = rest[n:]
		}
	case Stall:
		x.Hang()
		x.abort()
	case Drop:
		x.pause(o.Pause) // or the end of the connection could overtake what was sent
		x.drop()
		x.abort()
	case Reset:
		x.reset()
		x.abort()
	case Close:
		if x.r.ProtoMajor == 1 {
			x.abort() // otherwise, a chunked body would end well
		}
	}
}
