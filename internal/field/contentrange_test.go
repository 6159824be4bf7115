package field

import (
	"math/big"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// byGrammar reads a Content-Range by the grammar of RFC 9110, section 14.4, with numbers of
// any size.
func byGrammar(line string) (r ByteRange, ok bool) {
	m := regexp.MustCompile(`^[ \t]*(?i:bytes) ([0-9]+)-([0-9]+)/([0-9]+|\*)[ \t]*$`).FindStringSubmatch(line)
	if m == nil {
		return ByteRange{}, false
	}
	var n [3]*big.Int
	for i, text := range m[1:] {
		n[i] = big.NewInt(-1)
		if text != "*" {
			n[i].SetString(text, 10)
		}
		if n[i].BitLen() > 62 {
			return ByteRange{}, false
		}
	}
	r = ByteRange{n[0].Int64(), n[1].Int64(), n[2].Int64()}
	if r.Last < r.First || r.Complete >= 0 && r.Complete <= r.Last {
		return ByteRange{}, false
	}
	return r, true
}

func FuzzContentRange(f *testing.F) {
	for _, line := range []string{
		"bytes 0-0/1", "bytes 0-0/*", "bytes 5-9/10", " BYTES 5-9/10\t", "bytes 00-09/0010",
		"bytes 4611686018427387903-4611686018427387903/*", "bytes 4611686018427387904-4611686018427387904/*",
		"bytes 0-18446744073709551616/*", "bytes 0-9223372036854775807/*", "bytes 0-99999999999999999999/100000000000000000000",
		"bytes 5-4/10", "bytes 5-9/9", "bytes */10", "bytes 5-9", "bytes=5-9/10", "bytes  5-9/10", "bytes\t5-9/10",
		"bytes +5-9/10", "bytes 5--9/10", "bytes 5-9/10/11", "bytes 5-9/ 10", "bytes 5 - 9/10", "5-9/10", "", "bytes", "bytes /", "bytes -/*",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got, ok := ContentRange(http.Header{"Content-Range": {line}})
		want, valid := byGrammar(line)
		assert.Equal(t, valid, ok, "%q", line)
		assert.Equal(t, want, got, "%q", line)
		_, ok = ContentRange(http.Header{"Content-Range": {line, line}})
		assert.False(t, ok)
	})
}
