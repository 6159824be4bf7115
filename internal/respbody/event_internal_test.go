package respbody

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
)

func TestPeekSearchesEachByteOnce(t *testing.T) {
	const size = 1000
	searched := 0
	b := &Body{base: io.NopCloser(iotest.OneByteReader(strings.NewReader(strings.Repeat("x", size))))}
	b.data = make([]byte, 0, 2*size)
	b.ends = func(data []byte, _, seen int) int {
		searched += len(data) - seen
		return 0
	}
	b.fill(-1, 2*size, b.readBase)
	assert.Len(t, b.data, size)
	assert.Equal(t, size, searched)
}

func TestBodyThatIsCompressedHasNoEvents(t *testing.T) {
	half := []byte("data: 1\n")
	for encoding, want := range map[string]int{"": 0, "identity": 0, "Identity": 0, "br": len(half)} {
		resp := &http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}, "Content-Encoding": {encoding}}}
		assert.Equal(t, want, endOf(resp)(half, 0, 0), encoding)
	}
}

func TestEventMayEndWhereTheSearchBegins(t *testing.T) {
	for _, c := range []struct {
		end        eventEnd
		data       string
		from, seen int
		want       int
	}{
		{emptyLine, "data: 1\n\n", 0, 8, 9},
		{emptyLine, "data: 1\r\n\r\n", 0, 9, 11},
		{emptyLine, "data: 1\r\n\r", 0, 9, 0},
		{emptyLine, "data: 1\r\n\r\n", 0, 10, 11},
		{emptyLine, "data: 1\r\n\rdata", 0, 10, 10},
		{emptyLine, "data: 1\r\r", 0, 8, 9},
		{emptyLine, "data: 1\n\n", 0, 0, 9},
		{emptyLine, "data: 1\n\ndata: 2\n\n", 0, 0, 9},
		{emptyLine, "data: 1\n\ndata: 2\n\n", 9, 9, 18},
		{emptyLine, "data: 1\n\ndata: 2\n", 9, 0, 0},
		{emptyLine, "data: 1\r\rdata: 2\r\r", 0, 0, 9},
		{emptyLine, "\n", 0, 1, 0},
		{wholeLine, "{}\n", 0, 2, 3},
		{wholeLine, "{}", 0, 1, 0},
		{wholeLine, "{}\n{}\n", 0, 0, 3},
		{wholeLine, "{}\n{}\n", 3, 3, 6},
		{wholeMessage, "\x00\x00\x00\x05a\x00\x00\x00\x06", 0, 0, 5},
		{wholeMessage, "\x00\x00\x00\x05a\x00\x00\x00\x06", 5, 5, 0},
		{wholeMessage, "\x00\x00\x00\x00", 0, 0, 4},
		{wholeMessage, "\xff\xff\xff\xff", 0, 0, 0},
		{anyByte, "ab", 0, 0, 2},
		{anyByte, "ab", 2, 0, 0},
	} {
		assert.Equal(t, c.want, c.end([]byte(c.data), c.from, c.seen), "%q, %d, %d", c.data, c.from, c.seen)
	}
}
