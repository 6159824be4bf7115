package field

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDigitsAreNothingElse(t *testing.T) {
	for v, want := range map[string]int64{
		"0": 0, "007": 7, "9223372036854775807": math.MaxInt64,
		"9223372036854775808": math.MaxInt64, strings.Repeat("9", 1000): math.MaxInt64,
	} {
		n, ok := Digits(v)
		assert.True(t, ok, "%q", v)
		assert.Equal(t, want, n, "%q", v)
	}
	for _, v := range []string{"", " 1", "1 ", "+1", "-1", "1.5", "1e3", "0x1", "1_0", "Inf", "٥"} {
		n, ok := Digits(v)
		assert.False(t, ok, "%q", v)
		assert.Zero(t, n, "%q", v)
	}
}

func TestOnlyLineIsTheOneOfItsField(t *testing.T) {
	h := http.Header{"Etag": {"\t\"a\" "}, "Date": {"x", "x"}, "Age": {}}
	assert.Equal(t, `"a"`, OnlyLine(h, "Etag"))
	for _, name := range []string{"Date", "Age", "Absent"} {
		assert.Empty(t, OnlyLine(h, name), name)
	}
}

func TestFirstLinesAreAtMostEight(t *testing.T) {
	assert.Empty(t, FirstLines(nil))
	assert.Equal(t, []string{"1"}, FirstLines([]string{"1"}))
	lines := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}
	assert.Equal(t, lines[:8], FirstLines(lines))
}

// A name that was put into the map by hand is sent unchanged.
func TestHasFindsAnyCaseOfTheName(t *testing.T) {
	h := http.Header{"range": {"", "x"}, "Empty": {""}, "None": {}}
	assert.True(t, Has(h, "Range"))
	for _, name := range []string{"Empty", "None", "Absent"} {
		assert.False(t, Has(h, name), name)
	}
	assert.False(t, Has(nil, "Range"))
}

func TestMediaTypeHasNoParameters(t *testing.T) {
	for v, want := range map[string]string{
		"":                                "",
		"Text/HTML":                       "text/html",
		" multipart/MIXED ; boundary=a;b": "multipart/mixed",
	} {
		assert.Equal(t, want, MediaType(http.Header{"Content-Type": {v}}), "%q", v)
	}
	assert.Empty(t, MediaType(nil))
}

// The response of a cache has the Date of the day when the cache got it.
func TestServerNowIsTheDateUnlessACacheKeptIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const date = "Sun, 06 Nov 1994 08:49:37 GMT"
		dated := time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)
		assert.Equal(t, dated, ServerNow(http.Header{"Date": {" " + date}}))
		for _, h := range []http.Header{
			nil, {"Date": {"soon"}}, {"Date": {date}, "Age": {"0"}}, {"Date": {date}, "Age": {""}},
		} {
			assert.Equal(t, time.Now(), ServerNow(h), "%v", h)
		}
	})
}
