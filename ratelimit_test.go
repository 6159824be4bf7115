package retryhttp_test

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
)

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
		{"zero byte in a name", fields("RateLimit", "\"a\x00\";r=0;t=5"), -1, 0},
		{"invalid UTF-8 in a name", fields("RateLimit", "\"a\xff\";r=0;t=5"), -1, 0},
		{"line end", fields("RateLimit", "\"a\";r=0;t=5\n"), -1, 0},
		{"name split over lines", fields("RateLimit", `"a`, "RateLimit", `b";r=0;t=5`), 0, 5 * s},

		// A header may have any number of lines.
		{"eight lines", http.Header{"Ratelimit": append(slices.Repeat([]string{`"a";r=3`}, 7), `"b";r=0;t=5`)}, 0, 5 * s},
		{"ninth line", http.Header{"Ratelimit": append(slices.Repeat([]string{`"a";r=3`}, 8), `"b";r=0;t=5`)}, 3, 0},
		{"eight lines of remaining", http.Header{"X-Ratelimit-Remaining": {"8", "7", "6", "5", "4", "3", "2", "1"}}, 1, 0},
		{"ninth line of remaining", http.Header{"X-Ratelimit-Remaining": {"8", "7", "6", "5", "4", "3", "2", "1", "0"}}, 1, 0},
		{
			"ninth line of reset",
			http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1", "2", "3", "4", "5", "6", "7", "x", "9"}},
			0, 7 * s,
		},

		// A value that no int64 or Duration can hold is the greatest.
		{"last reset that fits", fields("RateLimit", `"a";r=0;t=9223372036`), 0, 9223372036 * s},
		{"first reset that does not fit", fields("RateLimit", `"a";r=0;t=9223372037`), 0, maxWait},
		{"greatest Integers", fields("RateLimit", `"a";r=999999999999999;t=999999999999999`), 999999999999999, maxWait},
		{"greatest int64", fields("X-RateLimit-Remaining", "9223372036854775807"), math.MaxInt64, 0},
		{"beyond int64", fields("X-RateLimit-Remaining", "9223372036854775808"), math.MaxInt64, 0},
		{
			"a thousand nines",
			fields("X-RateLimit-Remaining", strings.Repeat("9", 1000), "X-RateLimit-Reset", strings.Repeat("9", 1000)),
			math.MaxInt64, maxWait,
		},
		{"zero byte", fields("X-RateLimit-Remaining", "0\x00"), -1, 0},
		{
			"Unix time after the earliest Date",
			fields("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000000", "Date", "Mon, 01 Jan 0001 00:00:00 GMT"),
			0, maxWait,
		},
		{
			"Unix time before the latest Date",
			fields("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000000", "Date", "Fri, 31 Dec 9999 23:59:59 GMT"),
			0, 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.header.Clone()
			remaining, reset, ok := retryhttp.RateLimit(c.header)
			_, exhausted := retryhttp.Exhausted(c.header)
			assert.Equal(t, c.remaining == 0, exhausted)
			assert.Equal(t, c.remaining >= 0, ok)
			assert.Equal(t, max(c.remaining, 0), remaining)
			assert.Equal(t, c.reset, reset)
			assert.Equal(t, before, c.header, "the header is only read")
		})
	}
}

func TestRateLimitUnixTimeCountsDownAsTimePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Unix(1_000_000_000, 0)))
		h := fields("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000030")
		time.Sleep(10*time.Second + 250*time.Millisecond)
		_, reset, ok := retryhttp.RateLimit(h)
		assert.True(t, ok)
		assert.Equal(t, 19750*time.Millisecond, reset)

		time.Sleep(20 * time.Second)
		_, reset, ok = retryhttp.RateLimit(h)
		assert.True(t, ok, "there was a limit, although its moment has passed")
		assert.Zero(t, reset)
	})
}

func TestRateLimitAllocatesNothing(t *testing.T) {
	for name, h := range map[string]http.Header{
		"absent":      usualHeader(),
		"Age":         fields("RateLimit", `"a";r=0;t=5`, "Age", "5"),
		"RateLimit":   fields("RateLimit", `"a";r=5;t=60;pk=:dHJpYWwxMjEzMjM=:, "b";acme-burst;r=0;t=10`),
		"malformed":   fields("RateLimit", `"a";r=5;t=60,b`),
		"X-RateLimit": fields("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60"),
	} {
		t.Run(name, func(t *testing.T) {
			assert.Zero(t, testing.AllocsPerRun(100, func() { retryhttp.RateLimit(h) }))
		})
	}
}

// A hostile header has 1 MB; net/http accepts 10 MB by default. Quadratic work
// would take minutes.
func TestRateLimitOfAHostileServerIsCheap(t *testing.T) {
	const size = 1 << 20
	for name, h := range map[string]http.Header{
		"one long name":           fields("RateLimit", `"`+strings.Repeat("a", size)+`";r=0;t=5`),
		"name without an end":     fields("RateLimit", strings.Repeat(`"a`, size)),
		"many items":              fields("RateLimit", strings.Repeat(`"a";r=1,`, size/8)+`"a";r=0;t=5`),
		"many parameters":         fields("RateLimit", `"a"`+strings.Repeat(";r=1;t", size/6)+";r=0;t=5"),
		"many byte sequences":     fields("RateLimit", `"a"`+strings.Repeat(";x=::", size/5)+";r=0;t=5"),
		"many display strings":    fields("RateLimit", `"a"`+strings.Repeat(`;x=%"%61"`, size/9)+";r=0;t=5"),
		"long byte sequence":      fields("RateLimit", `"a";x=:`+strings.Repeat("=", size)+":;r=0;t=5"),
		"many inner lists":        fields("RateLimit", strings.Repeat("(", size)),
		"white space":             fields("RateLimit", `"a"`+strings.Repeat(" ", size)+","+strings.Repeat("\t", size)+`"b"`),
		"many lines":              {"Ratelimit": lines(`"a";r=1`, size/8)},
		"many lines of remaining": {"X-Ratelimit-Remaining": lines(strings.Repeat("9", 64), size/64)},
		"many lines of reset":     {"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": lines("1000000030", size/10)},
		"many lines of reset and a Date of year one": {
			"X-Ratelimit-Remaining": {"0"},
			"X-Ratelimit-Reset":     lines("1000000030", size/10),
			"Date":                  {"Mon, 01 Jan 0001 00:00:00 GMT"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			retryhttp.RateLimit(h)
			assert.Less(t, time.Since(start), 10*time.Second)
		})
	}
}

func lines(line string, n int) []string { return strings.Split(strings.Repeat(line+"\n", n), "\n") }

func usualHeader() http.Header {
	return fields(
		"Cache-Control", "no-store",
		"Content-Encoding", "gzip",
		"Content-Length", "1234",
		"Content-Type", "application/json",
		"Date", bubbleStart,
		"Etag", `"33a64df5"`,
		"Server", "nginx",
		"Strict-Transport-Security", "max-age=31536000",
		"Vary", "Accept-Encoding",
		"X-Request-Id", "8f14e45f-ceea-467f-a0e6-2a0d5e0f7d3c",
	)
}

// Each successful response pays for this.
func BenchmarkRateLimitAbsent(b *testing.B) { benchmarkRateLimit(b, usualHeader()) }

func BenchmarkRateLimit(b *testing.B) {
	h := usualHeader()
	h.Set("RateLimit", `"default";r=50;t=30`)
	benchmarkRateLimit(b, h)
}

func BenchmarkRateLimitUnixTime(b *testing.B) {
	h := usualHeader()
	h.Set("X-RateLimit-Remaining", "4999")
	h.Set("X-RateLimit-Reset", "1785585630")
	benchmarkRateLimit(b, h)
}

func benchmarkRateLimit(b *testing.B, h http.Header) {
	b.ReportAllocs()
	for b.Loop() {
		retryhttp.RateLimit(h)
	}
}

func FuzzRateLimit(f *testing.F) {
	const huge, date = "99999999999999999999", "Sun, 09 Sep 2001 01:46:10 GMT"
	for _, seed := range [][6]string{ // RateLimit twice, X-RateLimit-Remaining, X-RateLimit-Reset, Date, Age
		{},
		{huge, huge, huge, huge, huge, huge},
		{`"a";r=999999999999999;t=999999999999999`, "", "", "", "", ""},
		{`"a";r=-999999999999999;t=-999999999999999`, "", "0", "", "", ""},
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
		{"", "", "18446744073709551616", "18446744073709551616", date, ""},
		{"", "", strings.Repeat("9", 4000), strings.Repeat("9", 4000), date, ""},
		{"", "", "-0", "+1", "", ""},
		{"", "", " 0\t", "\t1000000030 ", date, ""},
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
			got.remaining, got.reset, got.ok = retryhttp.RateLimit(h)
			if got.remaining < 0 || got.reset < 0 || !got.ok && got != (result{}) {
				t.Fatalf("%+v from %q", got, h)
			}
			if _, exhausted := retryhttp.Exhausted(h); exhausted != (got.ok && got.remaining == 0) {
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
			if want.ok && d < 1e9*time.Second && want.reset != d { // from there on it is a Unix time
				t.Fatalf("%+v from %q", want, reset)
			}
		}
		if all != want {
			t.Fatalf("%+v instead of %+v", all, want)
		}
	})
}
