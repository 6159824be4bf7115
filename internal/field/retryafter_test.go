package field_test

import (
	"fmt"
	"math"
	"math/big"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp/internal/field"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testdata/conformance/retry-after.json has what each form means, and FuzzRetryAfter has the numbers. Here are
// the cases that these two cannot express.
func TestRetryAfter(t *testing.T) {
	const (
		s     = time.Second
		in30s = "Sat, 01 Jan 2000 00:00:30 GMT"
		none  = time.Duration(-1) // nothing was asked
	)
	type testCase struct {
		header http.Header
		want   time.Duration
	}
	for name, c := range map[string]testCase{
		"nil header":                 {nil, none},
		"no lines":                   {http.Header{"Retry-After": {}}, none},
		"name that is not canonical": {http.Header{"retry-after": {"5"}}, none},

		"other white space": {fields("Retry-After", "5\v"), none},
		"line end":          {fields("Retry-After", "5\r\n"), none},
		"zero byte":         {fields("Retry-After", "5\x00"), none},
		"minus in the year": {fields("Retry-After", "Saturday, 01-Jan--1 00:00:30 GMT"), none},

		"longest of eight lines": {http.Header{"Retry-After": {"3", "x", in30s, "4", "5", "6", "7", "31"}}, 31 * s},
		"ninth line":             {http.Header{"Retry-After": {"3", "x", in30s, "4", "5", "6", "7", "8", "31"}}, 30 * s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.Equal(t, bubbleStart, time.Now().UTC().Format(http.TimeFormat))
				before := c.header.Clone()
				d, ok := field.RetryAfter(c.header)
				assert.Equal(t, c.want != none, ok)
				assert.Equal(t, max(c.want, 0), d)
				assert.Equal(t, before, c.header, "the header is only read")
			})
		})
	}
}

// A hostile header has 1 MB; net/http accepts 10 MB by default.
func TestRetryAfterOfAHostileServerIsCheap(t *testing.T) {
	// With a megabyte of header, work that is repeated for each line shows in the
	// allocations.
	h := http.Header{"Date": {strings.Repeat("x", 500_000)}}
	for range 10_000 {
		h["Retry-After"] = append(h["Retry-After"], strings.Repeat("y", 50))
	}
	var ok bool
	assert.Less(t, allocated(func() { _, ok = field.RetryAfter(h) }), uint64(1<<20))
	assert.False(t, ok)
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// In a bubble the local clock starts at this moment, and stands still.
const bubbleStart = "Sat, 01 Jan 2000 00:00:00 GMT"

// fields builds a header from names and values in turn. As in a header from a
// connection, names are canonical, and a repeated name has several lines.
func fields(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func FuzzRetryAfter(f *testing.F) {
	const huge, date = "99999999999999999999", "Sun, 06 Nov 1994 08:49:37 GMT"
	for _, seed := range [][6]string{ // Retry-After-Ms, X-Ms-Retry-After-Ms, X-Amz-Retry-After, Retry-After, Date, Age
		{},
		{huge, huge, huge, huge, huge, huge},
		{"-" + huge, "+" + huge, "", "-9223372036854775808", "", ""},
		{"9223372036855", "9223372036854", "", "9223372037", "", ""},
		{"", "", "", strings.Repeat("0", 4000) + "1", "", ""},
		{"1.5", "1e3", "1e3", " \t007\t ", "", ""},
		{"\x00", "\xff", "", "\xf0\x9f\x98\x80", "\x80", "\x00"},
		{"x", "", "", "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", ""},
		{"", "", "", "Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", ""},
		{"", "", "", "Sunday, 06-Nov-94 08:49:37 GMT", date, ""},
		{"", "", "", "Sunday, 06-Nov-68 08:49:37 GMT", "Sunday, 06-Nov-69 08:49:37 GMT", ""},
		{"", "", "", "Sun Nov  6 08:49:37 1994", "Sun Nov  6 08:49:36 1994", "0"},
		{"", "", "", "Sun, 06 Nov 1994 08:49:37.999999999 GMT", date, ""},
		{"", "", "", "Sunday, 06-Nov-94 08:49:37 UTC", date, ""},
		{"", "", "", "Sunday, 06-Nov-+0 08:49:37 GMT", "", ""},
		{"1.5.5", "1.", ".5", "5.5", "", ""},
		{"0.0000001", "", "", "", "", ""},
		{"", "", "9223372036854.775807", "9223372036.854775808", "", ""},
		{"", "", "", "0." + strings.Repeat("0", 4000) + "1", "", ""},
		{"", "", "", huge + "." + huge, "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5])
	}
	f.Fuzz(func(t *testing.T, ms, xms, amz, after, date, age string) {
		h := http.Header{}
		for name, v := range map[string]string{
			"Retry-After-Ms": ms, "X-Ms-Retry-After-Ms": xms, "X-Amz-Retry-After": amz,
			"Retry-After": after, "Date": date, "Age": age,
		} {
			if v != "" {
				h[name] = []string{v}
			}
		}
		d, ok := field.RetryAfter(h)
		if d < 0 || !ok && d != 0 {
			t.Fatalf("%v, %v", d, ok)
		}
		for _, c := range []struct {
			value string
			unit  time.Duration
		}{{ms, time.Millisecond}, {xms, time.Millisecond}, {amz, time.Millisecond}, {after, time.Second}} {
			if want, valid := decimalOf(c.value, c.unit); valid {
				if !ok || d != want {
					t.Fatalf("%v, %v instead of %v", d, ok, want)
				}
				return
			}
		}
		if !ok {
			return
		}
		// The rest are dates. They end in the zone or in the year, and have whole
		// seconds and no other marks.
		trimmed := strings.Trim(after, " \t")
		if strings.ContainsAny(trimmed, "._+\r\n\x00") || strings.Count(trimmed, ":") != 2 ||
			len(trimmed) < len("Sun Nov 6 8:49:37 1994") {
			t.Fatalf("%q was taken for a date: %v", after, d)
		}
		if strings.Contains(trimmed, ",") != strings.HasSuffix(trimmed, " GMT") {
			t.Fatalf("%q was taken for a date in GMT: %v", after, d)
		}
		if d%time.Second != 0 && d != math.MaxInt64 && age == "" && retryAfterDateCounts(date) {
			t.Fatalf("%q after %q is %v, which is no whole number of seconds", after, date, d)
		}
	})
}

var decimal = regexp.MustCompile(`^[ \t]*([0-9]+)(?:\.([0-9]+))?[ \t]*$`)

// decimalOf is an independent reading of 1*DIGIT ["." 1*DIGIT]: so many units in nanoseconds,
// rounded up, with arithmetic that cannot overflow.
func decimalOf(v string, unit time.Duration) (time.Duration, bool) {
	form := decimal.FindStringSubmatch(v)
	if form == nil {
		return 0, false
	}
	const places = 12 // more than a nanosecond needs
	fraction := form[2] + strings.Repeat("0", places)
	n, _ := new(big.Int).SetString(form[1]+fraction[:places], 10)
	n.Mul(n, big.NewInt(int64(unit)))
	n, rest := n.QuoRem(n, big.NewInt(1e12), new(big.Int))
	if rest.Sign() > 0 || strings.Trim(fraction[places:], "0") != "" {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() {
		return math.MaxInt64, true
	}
	return time.Duration(n.Int64()), true
}

// digitsOf is decimalOf without a fraction.
func digitsOf(v string, unit time.Duration) (time.Duration, bool) {
	if strings.Contains(v, ".") {
		return 0, false
	}
	return decimalOf(v, unit)
}

// retryAfterDateCounts reports whether v is certainly a valid Date: one that
// reads the same after it has been written.
func retryAfterDateCounts(v string) bool {
	at, err := time.Parse(http.TimeFormat, v)
	return err == nil && at.Format(http.TimeFormat) == v
}

// testdata/conformance/ratelimit.json has what both kinds of fields mean. Here are
// the cases that it cannot express.
func TestRateLimit(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name      string
		header    http.Header
		remaining int64 // -1: there is no limit
		reset     time.Duration
	}{
		{"nil header", nil, -1, 0},
		{"no lines", http.Header{"Ratelimit": {}, "X-Ratelimit-Remaining": nil}, -1, 0},
		{"no lines beside X-RateLimit", http.Header{"Ratelimit": {}, "X-Ratelimit-Remaining": {"0"}}, 0, 0},
		{"no lines of reset", http.Header{"X-Ratelimit-Remaining": {"3"}, "X-Ratelimit-Reset": {}}, 3, 0},
		{"no lines of Age", http.Header{"Ratelimit": {`"a";r=0;t=5`}, "Age": {}}, 0, 5 * s},
		{"name that is not canonical", http.Header{"RateLimit": {`"a";r=0;t=5`}}, -1, 0},
		{"line end", fields("RateLimit", "\"a\";r=0;t=5\n"), -1, 0},
		{"name split over lines", fields("RateLimit", `"a`, "RateLimit", `b";r=0;t=5`), 0, 5 * s},

		// A header may have any number of lines.
		{"eight lines", http.Header{"Ratelimit": append(slices.Repeat([]string{`"a";r=3`}, 7), `"b";r=0;t=5`)}, 0, 5 * s},
		{"ninth line", http.Header{"Ratelimit": append(slices.Repeat([]string{`"a";r=3`}, 8), `"b";r=0;t=5`)}, 3, 0},
		{"16 KiB", http.Header{"Ratelimit": {fmt.Sprintf("%-16384s", `"a";r=0;t=5`)}}, 0, 5 * s},
		{"more than 16 KiB", http.Header{"Ratelimit": {fmt.Sprintf("%-16385s", `"a";r=0;t=5`)}}, -1, 0},
		{"eight of remaining", http.Header{"X-Ratelimit-Remaining": {"8", "7", "6", "5", "4", "3", "2", "1"}}, 1, 0},
		{"ninth of remaining", http.Header{"X-Ratelimit-Remaining": {"8", "7", "6", "5", "4", "3", "2", "1", "0"}}, 1, 0},
		{
			"ninth line of reset",
			http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1", "2", "3", "4", "5", "6", "7", "x", "9"}},
			0, 7 * s,
		},

		{"zero byte", fields("X-RateLimit-Remaining", "0\x00"), -1, 0},
		{
			"Unix time after the earliest Date",
			fields("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000000", "Date", "Mon, 01 Jan 0001 00:00:00 GMT"),
			0, math.MaxInt64,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.header.Clone()
			remaining, reset, ok := field.RateLimit(c.header)
			_, exhausted := field.Exhausted(c.header)
			assert.Equal(t, c.remaining == 0, exhausted)
			assert.Equal(t, c.remaining >= 0, ok)
			assert.Equal(t, max(c.remaining, 0), remaining)
			assert.Equal(t, c.reset, reset)
			assert.Equal(t, before, c.header, "the header is only read")
		})
	}
}

// Each response that succeeds pays for one of these.
var rateLimits = map[string]http.Header{
	"absent":      fields("Content-Type", "application/json", "Date", bubbleStart, "Vary", "Accept-Encoding"),
	"Age":         fields("RateLimit", `"a";r=0;t=5`, "Age", "5"),
	"RateLimit":   fields("RateLimit", `"a";r=5;t=60;pk=:dHJpYWwxMjEzMjM=:, "b";acme-burst;r=1;t=10`),
	"X-RateLimit": fields("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60"),
	"Unix time":   fields("X-RateLimit-Remaining", "4999", "X-RateLimit-Reset", "1785585630", "Date", bubbleStart),
}

func TestLookForAnExhaustedRateLimitAllocatesNothing(t *testing.T) {
	for name, h := range rateLimits {
		t.Run(name, func(t *testing.T) {
			assert.Zero(t, testing.AllocsPerRun(100, func() { field.Exhausted(h) }))
		})
	}
}

// A hostile header has 1 MB; net/http accepts 10 MB by default. Quadratic work
// would take minutes. A RateLimit of that size is not read.
func TestRateLimitOfAHostileServerIsCheap(t *testing.T) {
	const size = 1 << 20
	for name, h := range map[string]http.Header{
		"many lines of remaining": {"X-Ratelimit-Remaining": lines(strings.Repeat("9", 64), size/64)},
		"many lines of reset": {
			"X-Ratelimit-Remaining": {"0"},
			"X-Ratelimit-Reset":     lines("1000000030", size/10),
			"Date":                  {"Mon, 01 Jan 0001 00:00:00 GMT"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			field.RateLimit(h)
			assert.Less(t, time.Since(start), 10*time.Second)
		})
	}
}

func lines(line string, n int) []string { return strings.Split(strings.Repeat(line+"\n", n), "\n") }

func FuzzRateLimit(f *testing.F) {
	const huge, date = "99999999999999999999", "Sun, 09 Sep 2001 01:46:10 GMT"
	for _, seed := range [][6]string{ // RateLimit twice, X-RateLimit-Remaining, X-RateLimit-Reset, Date, Age
		{},
		{huge, huge, huge, huge, huge, huge},
		{`"a";r=999999999999999;t=999999999999999`, "", "", "", "", ""},
		{`"a";r=` + huge + `;t=` + huge, "", "0", "9223372037", "", ""},
		{`"a";r=0;t=9223372036`, `"b";r=0;t=9223372037`, "1", "1", "", ""},
		{`"a`, `b";r=-0;t=00`, "", "", "", ""},
		{`"a";r=0;t=1,`, "", "0", "999999999", "", "0"},
		{`"a";r=x;r=0;t="";t`, "", "0", "1000000000", date, ""},
		{`"\\\"";r=0`, `"a";pk=:iZ==:;x=?1;y=@-0;z=%"%c3%bc";*=-1.5;u;r=5;t=7`, "", "", "", ""},
		{strings.Repeat(`"a";r=1;t=1,`, 300) + `"a";r=0;t=2`, "", "", "", "", ""},
		{`"a"` + strings.Repeat(";r", 1000) + "=0", "", "", "", "", ""},
		{strings.Repeat(`"a";r=0,`, 1000), strings.Repeat(":", 1000), "0", "", "", ""},
		{`("a" "b");r=0`, "", "0", "999999999999", date, ""},
		{"\t\x00", "\xff", "0", "1000000000000", date, ""},
		{"%\"%", "@", "9223372036854775807", "9223372036854775807", "Mon, 01 Jan 0001 00:00:00 GMT", ""},
		{":", "?", "9223372036854775808", "9223372036854775808", "Fri, 31 Dec 9999 23:59:59 GMT", ""},
		{"", "", strings.Repeat("9", 4000), strings.Repeat("9", 4000), date, ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5])
	}
	f.Fuzz(func(t *testing.T, limit, more, left, reset, date, age string) {
		type result struct {
			remaining int64
			reset     time.Duration
			ok        bool
		}
		read := func(pairs ...string) (got result) {
			h := http.Header{}
			for i := 0; i < len(pairs); i += 2 {
				if v := pairs[i+1]; v != "" {
					h.Add(pairs[i], v)
				}
			}
			got.remaining, got.reset, got.ok = field.RateLimit(h)
			if got.remaining < 0 || got.reset < 0 || !got.ok && got != (result{}) {
				t.Fatalf("%+v from %q", got, h)
			}
			if _, exhausted := field.Exhausted(h); exhausted != (got.ok && got.remaining == 0) {
				t.Fatalf("%+v from %q: exhausted: %t", got, h, exhausted)
			}
			return got
		}
		all := read("RateLimit", limit, "RateLimit", more, "X-RateLimit-Remaining", left, "X-RateLimit-Reset", reset,
			"Date", date, "Age", age)
		if age != "" && all.ok {
			t.Fatalf("%+v in spite of an Age", all)
		}
		if !retryAfterDateCounts(date) {
			return // the clock goes on between readings
		}
		// One of the two kinds of fields counts, and it counts alone.
		want := read("RateLimit", limit, "RateLimit", more, "Age", age)
		if !want.ok {
			want = read("X-RateLimit-Remaining", left, "X-RateLimit-Reset", reset, "Date", date, "Age", age)
			n, counts := digitsOf(left, 1)
			d, resets := digitsOf(reset, time.Second)
			if want.ok != (counts && (resets || reset == "") && age == "") || want.ok && want.remaining != int64(n) {
				t.Fatalf("%+v from %q and %q", want, left, reset)
			}
			if want.ok && d < 5e8*time.Second && want.reset != d { // from there on it is a Unix time
				t.Fatalf("%+v from %q", want, reset)
			}
		}
		if all != want {
			t.Fatalf("%+v instead of %+v", all, want)
		}
	})
}
