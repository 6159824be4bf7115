package retryhttp_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
)

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
