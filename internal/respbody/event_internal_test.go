package respbody

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
)

func TestPeekSearchesEachByteOnce(t *testing.T) {
	const size = 1000
	searched := 0
	b := newPeek(io.NopCloser(iotest.OneByteReader(strings.NewReader(strings.Repeat("x", size)))), 2*size)
	b.enough = func(data []byte, seen int) bool {
		searched += len(data) - seen
		return false
	}
	b.fill(-1, 2*size, nil)
	assert.Len(t, b.data, size)
	assert.Equal(t, size, searched)
}

func TestFirstEventMayEndWhereTheSearchBegins(t *testing.T) {
	for _, c := range []struct {
		enough sufficiency
		data   string
		seen   int
		want   bool
	}{
		{emptyLine, "data: 1\n\n", 8, true},
		{emptyLine, "data: 1\r\n\r\n", 9, true},
		{emptyLine, "data: 1\n\n", 0, true},
		{wholeLine, "{}\n", 2, true},
		{wholeLine, "{}", 1, false},
	} {
		assert.Equal(t, c.want, c.enough([]byte(c.data), c.seen), "%q, %d", c.data, c.seen)
	}
}
