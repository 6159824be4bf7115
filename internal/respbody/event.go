package respbody

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"

	"github.com/retryhttp/retryhttp/internal/field"
)

// sufficiency reports whether data is enough of a body. The first seen bytes are known not to be
// enough, so that a body which comes byte by byte is searched once.
type sufficiency func(data []byte, seen int) bool

// firstOf returns what is enough of resp's body: its first event. A server or a proxy may cut a stream
// anywhere, and half an error event does not look like an error. Any byte is enough of a body that is
// not known to consist of events, or that is compressed.
func firstOf(resp *http.Response) sufficiency {
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

func anyByte(data []byte, _ int) bool { return len(data) > 0 }

func wholeLine(data []byte, seen int) bool { return bytes.IndexByte(data[seen:], '\n') >= 0 }

// emptyLine reports whether data has the empty line that ends an event, or a comment. Lines end with LF, CR
// or both (WHATWG HTML, section 9.2.6).
func emptyLine(data []byte, seen int) bool {
	for _, end := range [...]string{"\n\n", "\n\r", "\r\r"} {
		if bytes.Contains(data[max(seen-1, 0):], []byte(end)) {
			return true
		}
	}
	return false
}

// wholeMessage reports whether data has the first message of an event stream of AWS, which begins
// with its length.
func wholeMessage(data []byte, _ int) bool {
	return len(data) >= 4 && uint64(len(data)) >= uint64(binary.BigEndian.Uint32(data))
}
