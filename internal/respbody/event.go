package respbody

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"

	"github.com/retryhttp/retryhttp/internal/field"
)

// eventEnd returns where the first event of data[from:] ends in data, or 0 if that has not come. No event
// ends in the first seen bytes of data, so that a body which comes byte by byte is searched once.
type eventEnd func(data []byte, from, seen int) int

// endOf returns where the events of resp's body end. A server or a proxy may cut a stream anywhere, and half an error
// event does not look like an error. A body that is not known to consist of events, or that is compressed,
// is taken as it comes.
func endOf(resp *http.Response) eventEnd {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return anyByte
	}
	switch field.MediaType(resp.Header) {
	case "text/event-stream":
		return emptyLine
	case "application/vnd.amazon.eventstream":
		return wholeMessage
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines":
		return wholeLine
	}
	return anyByte
}

func anyByte(data []byte, from, _ int) int {
	if len(data) > from {
		return len(data)
	}
	return 0
}

func wholeLine(data []byte, from, seen int) int {
	from = max(from, seen)
	if i := bytes.IndexByte(data[from:], '\n'); i >= 0 {
		return from + i + 1
	}
	return 0
}

// emptyLine finds the empty line that ends an event, or a comment. Lines end with LF, CR or both (WHATWG
// HTML, section 9.2.6). After an LF, a CR may be half of a line end.
func emptyLine(data []byte, from, seen int) int {
	for i := max(from, seen-2); i+1 < len(data); i++ {
		switch {
		case data[i] == '\n' && data[i+1] == '\n':
			return i + 2
		case (data[i] == '\n' || data[i] == '\r') && data[i+1] == '\r':
			switch {
			case i+2 < len(data) && data[i+2] == '\n':
				return i + 3
			case i+2 < len(data) || data[i] == '\r':
				return i + 2
			}
		}
	}
	return 0
}

// wholeMessage finds the end of a message in an event stream of AWS, which begins with its length.
func wholeMessage(data []byte, from, _ int) int {
	if len(data)-from < 4 {
		return 0
	}
	length := max(uint64(binary.BigEndian.Uint32(data[from:])), 4)
	if uint64(len(data)-from) < length {
		return 0
	}
	return from + int(length)
}
