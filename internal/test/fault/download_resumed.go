package fault

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Resumed is how a server answers a request that resumes a download, and how the download then
// ends if the Object was not replaced. Nothing continues the download of an Object that was
// replaced.
type Resumed struct {
	Name string

	ignores condition
	times   int           // how many resumptions are answered so; 0 is all
	spoil   func(*answer) // changes what a server would have answered otherwise

	whole    bool // the download is continued
	requests int  // that the download takes, the first included
	piece    bool // an answer may have only some of many bytes
	waits    bool // the answer has a Retry-After
}

// condition is a part of a request that a server ignores.
type condition int

const (
	ranged condition = 1 << iota
	ifMatch
	ifRange
	bothConditions = ifMatch | ifRange
)

// RetryAfter is how many seconds a 429 or 503 of the server asks for.
const RetryAfter = 2

// Honest is a server that does nothing wrong.
var Honest = &Resumed{Name: "honest", whole: true, requests: 2}

// Resumptions are all the ways in which a server answers. A client cannot know that an answer has
// another version if the answer's tag is wrong. No Resumption is such an answer.
var Resumptions = []*Resumed{
	Honest,
	continues("ignores If-Match", ifMatch, nil),
	continues("ignores If-Range", ifRange, nil),
	continues("ignores both conditions", bothConditions, nil),
	continues("ignores Range", ranged|ifMatch, nil),
	continues("ignores all", ranged|bothConditions, nil),

	continues("starts earlier, at a block", bothConditions, func(a *answer) { a.part(a.first/512*512, a.last) }),
	continues("sends all there is", bothConditions, func(a *answer) { a.part(a.first, len(a.whole)-1) }),
	continues("does not know the complete length", bothConditions, func(a *answer) {
		a.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/*", a.first, a.last))
	}),
	continues("sends more than it says", bothConditions, func(a *answer) {
		a.body, a.unannounced = append(slices.Clone(a.body), "and more"...), true
	}),
	{
		Name: "sends half", ignores: bothConditions, times: 1, whole: true, requests: 3, piece: true,
		spoil: func(a *answer) { a.part(a.first, a.first+max((a.last-a.first)/2, 0)) },
	},
	{
		Name: "sends one byte at a time", ignores: bothConditions, requests: 4, piece: true,
		spoil: func(a *answer) { a.part(a.first, a.first) },
	},
	{Name: "429 once", times: 1, whole: true, requests: 3, waits: true, spoil: later(http.StatusTooManyRequests)},
	{Name: "503 once", times: 1, whole: true, requests: 3, waits: true, spoil: later(unavailable)},
	{Name: "503 for ever", requests: 4, waits: true, spoil: later(unavailable)},

	refused("206 without a tag", func(a *answer) { a.header.Del("ETag") }),
	refused("206 with a weak tag", func(a *answer) { a.header.Set("ETag", "W/"+a.header.Get("ETag")) }),
	refused("206 with two tags", func(a *answer) { a.header.Add("ETag", `"v1"`) }),
	refused("206 that starts later", func(a *answer) {
		a.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", a.first+1, a.last, len(a.whole)))
		a.body = a.body[1:]
	}),
	refused("206 of another range", func(a *answer) {
		other := max(1-a.first, 0)
		a.part(other, other)
	}),
	refused("206 in another unit", func(a *answer) {
		a.header.Set("Content-Range", strings.Replace(a.header.Get("Content-Range"), "bytes", "lines", 1))
	}),
	refused("206 with two Content-Ranges", func(a *answer) {
		a.header.Add("Content-Range", a.header.Get("Content-Range"))
	}),
	refused("206 of another length than its range", func(a *answer) {
		a.body = append(slices.Clone(a.body), '!')
		a.header.Set("Content-Length", strconv.Itoa(len(a.body)))
	}),
	refused("206 without a Content-Range", func(a *answer) { a.header.Del("Content-Range") }),
	refused("206 with multipart/byteranges", func(a *answer) {
		part := "--b\r\nContent-Range: " + a.header.Get("Content-Range") + "\r\n\r\n" + string(a.body) + "\r\n--b--\r\n"
		a.body = []byte(part)
		a.header.Set("Content-Type", "multipart/byteranges; boundary=b")
	}),
	refused("206 of an Object of another length", func(a *answer) {
		a.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", a.first, a.last, len(a.whole)+1))
	}),
	refused("206 in another encoding", func(a *answer) { a.header.Set("Content-Encoding", "br") }),
	refused("200 with a Content-Range", func(a *answer) { a.status = http.StatusOK }),
	{
		Name: "200 of another length", ignores: ranged | bothConditions, requests: 2,
		spoil: func(a *answer) { a.body = a.body[:len(a.body)-1] },
	},
	{
		Name: "200 in another encoding", ignores: ranged | bothConditions, requests: 2,
		spoil: func(a *answer) { a.header.Set("Content-Encoding", "br") },
	},
	status(http.StatusNotModified),
	status(http.StatusNotFound),
	status(http.StatusPreconditionFailed),
	{Name: "416", requests: 2, spoil: func(a *answer) {
		a.refuse(http.StatusRequestedRangeNotSatisfiable)
		a.header.Set("Content-Range", "bytes */"+strconv.Itoa(len(a.whole)))
	}},
}

func continues(name string, ignores condition, spoil func(*answer)) *Resumed {
	return &Resumed{Name: name, ignores: ignores, spoil: spoil, whole: true, requests: 2}
}

func refused(name string, spoil func(*answer)) *Resumed {
	return &Resumed{Name: name, ignores: bothConditions, spoil: spoil, requests: 2}
}

func status(code int) *Resumed {
	return &Resumed{Name: strconv.Itoa(code), requests: 2, spoil: func(a *answer) { a.refuse(code) }}
}

func later(code int) func(*answer) {
	return func(a *answer) {
		a.refuse(code)
		a.header.Set("Retry-After", strconv.Itoa(RetryAfter))
	}
}

// answer is a response, before it is sent.
type answer struct {
	status      int
	header      http.Header
	body        []byte
	whole       []byte // the representation
	first, last int    // of the body in it
	unannounced bool   // without a Content-Length
}

// part makes the answer a 206 with these bytes, the last included.
func (a *answer) part(first, last int) {
	a.status, a.first, a.last, a.body = http.StatusPartialContent, first, last, a.whole[first:last+1]
	a.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(a.whole)))
}

// refuse makes the answer an answer without any bytes. It keeps the tag.
func (a *answer) refuse(code int) {
	a.status, a.body = code, nil
	a.header.Del("Content-Range")
}
