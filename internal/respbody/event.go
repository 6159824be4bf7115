package respbody

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"

	"github.com/retryhttp/retryhttp/internal/field"
)

// firstOf returns the function that reports whether the first event of resp's body has come. A server
// or a proxy may cut a stream anywhere, and half an error event does not look like an error. Any byte
// is enough of a body that is not known to consist of events, or that is compressed.
func firstOf(resp *http.Response) func([]byte) bool {
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

func anyByte(data []byte) bool { return len(data) > 0 }

func wholeLine(data []byte) bool { return bytes.IndexByte(data, '\n') >= 0 }

// emptyLine reports whether data has the empty line that ends an event, or a comment. Lines end with LF, CR
// or both (WHATWG HTML, section 9.2.6).
func emptyLine(data []byte) bool {
	for _, end := range [...]string{"\n\n", "\n\r", "\r\r"} {
		if bytes.Contains(data, []byte(end)) {
			return true
		}
	}
	return false
}

// wholeMessage reports whether data has the first message of an event stream of AWS, which begins
// with its length.
func wholeMessage(data []byte) bool {
	return len(data) >= 4 && uint64(len(data)) >= uint64(binary.BigEndian.Uint32(data))
}
