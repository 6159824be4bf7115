package retryhttp_test

import (
	"fmt"
	"math"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRetryAfter(t *testing.T) {
	const (
		s, ms, hour = time.Second, time.Millisecond, time.Hour
		in30s       = "Sat, 01 Jan 2000 00:00:30 GMT"
		none        = time.Duration(-1) // nothing was asked
		date1994    = "Sun, 06 Nov 1994 08:49:37 GMT"
	)
	for _, c := range []struct {
		name   string
		header http.Header
		want   time.Duration
	}{
		{"absent", fields(), none},
		{"nil header", nil, none},
		{"no lines", http.Header{"Retry-After": {}}, none},

		// Seconds.
		{"seconds", fields("Retry-After", "120"), 120 * s},
		{"one second", fields("Retry-After", "1"), s},
		{"zero", fields("Retry-After", "0"), 0},
		{"many zeros", fields("Retry-After", "0000"), 0},
		{"leading zeros", fields("Retry-After", "007"), 7 * s},
		{"more leading zeros than a number has digits", fields("Retry-After", strings.Repeat("0", 60)+"7"), 7 * s},
		{"white space around", fields("Retry-After", " \t 5\t "), 5 * s},
		{"other white space", fields("Retry-After", "5\v"), none},
		{"line end", fields("Retry-After", "5\r\n"), none},
		{"no-break space", fields("Retry-After", "5\u00a0"), none},
		{"white space within", fields("Retry-After", "1 0"), none},
		{"empty", fields("Retry-After", ""), none},
		{"blank", fields("Retry-After", " \t"), none},
		{"negative", fields("Retry-After", "-5"), none},
		{"minus zero", fields("Retry-After", "-0"), none},
		{"plus sign", fields("Retry-After", "+5"), none},
		{"fraction", fields("Retry-After", "1.5"), 1500 * ms},
		{"fraction of zero", fields("Retry-After", "5.0"), 5 * s},
		{"fraction of many zeros", fields("Retry-After", "5."+strings.Repeat("0", 60)), 5 * s},
		{"fraction with white space around", fields("Retry-After", "\t1.5 "), 1500 * ms},
		{"a nanosecond", fields("Retry-After", "0.000000001"), 1},
		{"all nanoseconds", fields("Retry-After", "0.123456789"), 123456789},
		{"less than a nanosecond", fields("Retry-After", "0.0000000001"), 1},
		{"far less than a nanosecond", fields("Retry-After", "0."+strings.Repeat("0", 400)+"1"), 1},
		{"fraction that is not a whole number of nanoseconds", fields("Retry-After", "1.0000000011"), s + 2},
		{"fraction that carries over", fields("Retry-After", "1.9999999991"), 2 * s},
		{"no fraction after the point", fields("Retry-After", "5."), none},
		{"no digit before the point", fields("Retry-After", ".5"), none},
		{"point only", fields("Retry-After", "."), none},
		{"two fractions", fields("Retry-After", "1.5.5"), none},
		{"two points", fields("Retry-After", "1..5"), none},
		{"sign in a fraction", fields("Retry-After", "1.-5"), none},
		{"white space in a fraction", fields("Retry-After", "1. 5"), none},
		{"exponent in a fraction", fields("Retry-After", "1.5e3"), none},
		{"hexadecimal fraction", fields("Retry-After", "0x1.8p1"), none},
		{"decimal comma", fields("Retry-After", "1,5"), none},
		{"exponent", fields("Retry-After", "1e3"), none},
		{"hexadecimal", fields("Retry-After", "0x10"), none},
		{"underscore", fields("Retry-After", "1_000"), none},
		{"infinite", fields("Retry-After", "Inf"), none},
		{"not a number", fields("Retry-After", "NaN"), none},
		{"superscript digit", fields("Retry-After", "²"), none},
		{"arabic digits", fields("Retry-After", "٥"), none},
		{"full-width digits", fields("Retry-After", "５"), none},
		{"unit", fields("Retry-After", "5s"), none},
		{"quoted", fields("Retry-After", `"5"`), none},
		{"words", fields("Retry-After", "soon"), none},
		{"zero byte", fields("Retry-After", "5\x00"), none},
		{"list", fields("Retry-After", "5, 10"), none},
		{"list without space", fields("Retry-After", "5,10"), none},
		{"parameters", fields("Retry-After", "5; comment=busy"), none},

		// A value that no Duration can hold is the longest Duration.
		{"last that fits", fields("Retry-After", "9223372036"), 9223372036 * s},
		{"last fraction that fits", fields("Retry-After", "9223372036.854775806"), maxWait - 1},
		{"fraction that does not fit", fields("Retry-After", "9223372036.9"), maxWait},
		{"fraction of what does not fit", fields("Retry-After", strings.Repeat("9", 1000)+"."+strings.Repeat("9", 1000)), maxWait},
		{"first that does not fit", fields("Retry-After", "9223372037"), maxWait},
		{"would wrap to something small", fields("Retry-After", "18446744074"), maxWait},
		{"greatest int64", fields("Retry-After", "9223372036854775807"), maxWait},
		{"beyond int64", fields("Retry-After", "9223372036854775808"), maxWait},
		{"beyond uint64", fields("Retry-After", "99999999999999999999"), maxWait},
		{"a thousand nines", fields("Retry-After", strings.Repeat("9", 1000)), maxWait},

		// Dates against the local clock.
		{"IMF-fixdate", fields("Retry-After", in30s), 30 * s},
		{"RFC 850", fields("Retry-After", "Saturday, 01-Jan-00 00:00:30 GMT"), 30 * s},
		{"asctime", fields("Retry-After", "Sat Jan  1 00:00:30 2000"), 30 * s},
		{"asctime, two-digit day", fields("Retry-After", "Tue Jan 11 00:00:00 2000"), 240 * hour},
		{"asctime, zero before the day", fields("Retry-After", "Sat Jan 01 00:00:30 2000"), 30 * s},
		{"RFC 850, the longest day", fields("Retry-After", "Wednesday, 05-Jan-00 00:00:00 GMT"), 96 * hour},
		{"RFC 850, sign in the year", fields("Retry-After", "Saturday, 01-Jan-+5 00:00:30 GMT"), none},
		{"RFC 850, minus in the year", fields("Retry-After", "Saturday, 01-Jan--1 00:00:30 GMT"), none},
		{"date with white space around", fields("Retry-After", "\t "+in30s+" \t"), 30 * s},
		{"now", fields("Retry-After", bubbleStart), 0},
		{"past IMF-fixdate", fields("Retry-After", date1994), 0},
		{"past RFC 850", fields("Retry-After", "Sunday, 06-Nov-94 08:49:37 GMT"), 0},
		{"past asctime", fields("Retry-After", "Sun Nov  6 08:49:37 1994"), 0},
		{"one second past", fields("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"), 0},
		{"year one", fields("Retry-After", "Mon, 01 Jan 0001 00:00:00 GMT"), 0},
		{"wrong weekday", fields("Retry-After", "Mon, 01 Jan 2000 00:00:30 GMT"), 30 * s},
		{"farther than a Duration reaches", fields("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), maxWait},
		{"two-digit year of the last century", fields("Retry-After", "Friday, 31-Dec-99 23:59:59 GMT"), 0},
		{"leap second", fields("Retry-After", "Sat, 01 Jan 2000 23:59:60 GMT"), 24*hour - s},
		{"leap second, RFC 850", fields("Retry-After", "Saturday, 01-Jan-00 23:59:60 GMT"), 24*hour - s},
		{"leap second, asctime", fields("Retry-After", "Sat Jan  1 23:59:60 2000"), 24*hour - s},
		{"second 60 elsewhere", fields("Retry-After", "Sat, 01 Jan 2000 12:34:60 GMT"), none},
		{"second 61", fields("Retry-After", "Sat, 01 Jan 2000 23:59:61 GMT"), none},
		{"hour 24", fields("Retry-After", "Sat, 01 Jan 2000 24:00:00 GMT"), none},
		{"day that does not exist", fields("Retry-After", "Wed, 30 Feb 2000 00:00:00 GMT"), none},
		{"single-digit day", fields("Retry-After", "Sat, 1 Jan 2000 00:00:30 GMT"), none},
		{"lower case", fields("Retry-After", "sat, 01 jan 2000 00:00:30 gmt"), none},
		{"lower-case zone", fields("Retry-After", "Sat, 01 Jan 2000 00:00:30 gmt"), none},
		{"zone UTC", fields("Retry-After", "Sat, 01 Jan 2000 00:00:30 UTC"), none},
		{"numeric zone", fields("Retry-After", "Sat, 01 Jan 2000 00:00:30 +0000"), none},
		{"other zone", fields("Retry-After", "Sat, 01 Jan 2000 00:00:30 PST"), none},
		{"no zone", fields("Retry-After", "Sat, 01 Jan 2000 00:00:30"), none},
		{"RFC 850 in zone UTC", fields("Retry-After", "Saturday, 01-Jan-00 00:00:30 UTC"), none},
		{"RFC 850 in zone EST", fields("Retry-After", "Saturday, 01-Jan-00 00:00:30 EST"), none},
		{"RFC 850 east of GMT", fields("Retry-After", "Saturday, 01-Jan-00 00:00:30 GMT+3"), none},
		{"asctime with a zone", fields("Retry-After", "Sat Jan  1 00:00:30 2000 GMT"), none},
		{"fraction in IMF-fixdate", fields("Retry-After", "Sat, 01 Jan 2000 00:00:30.5 GMT"), none},
		{"fraction in RFC 850", fields("Retry-After", "Saturday, 01-Jan-00 00:00:30.5 GMT"), none},
		{"fraction in asctime", fields("Retry-After", "Sat Jan  1 00:00:30.5 2000"), none},
		{"comma fraction in IMF-fixdate", fields("Retry-After", "Sat, 01 Jan 2000 00:00:30,5 GMT"), none},
		{"comma fraction in asctime", fields("Retry-After", "Sat Jan  1 00:00:30,5 2000"), none},
		{"ISO 8601", fields("Retry-After", "2000-01-01T00:00:30Z"), none},
		{"two dates", fields("Retry-After", in30s+", "+in30s), none},

		// Dates against the response's own clock.
		{"against Date", fields("Retry-After", date1994, "Date", "Sun, 06 Nov 1994 08:49:07 GMT"), 30 * s},
		{
			"Date of a server that is ahead",
			fields("Retry-After", "Sun, 06 Nov 2094 08:49:37 GMT", "Date", "Sun, 06 Nov 2094 08:49:36 GMT"), s,
		},
		{"Date in RFC 850", fields("Retry-After", date1994, "Date", "Sunday, 06-Nov-94 08:49:07 GMT"), 30 * s},
		{"Date in asctime", fields("Retry-After", date1994, "Date", "Sun Nov  6 08:49:07 1994"), 30 * s},
		{"Date with white space around", fields("Retry-After", date1994, "Date", " Sun, 06 Nov 1994 08:49:07 GMT\t"), 30 * s},
		{
			"Date with a leap second",
			fields("Retry-After", "Sun, 01 Jan 2017 00:00:00 GMT", "Date", "Sat, 31 Dec 2016 23:59:60 GMT"), s,
		},
		{"the moment of Date", fields("Retry-After", in30s, "Date", in30s), 0},
		{"before Date", fields("Retry-After", in30s, "Date", "Sat, 01 Jan 2000 00:00:31 GMT"), 0},
		{
			"Date of another form than Retry-After",
			fields("Retry-After", "Sun Nov  6 08:49:37 1994", "Date", "Sunday, 06-Nov-94 08:49:07 GMT"), 30 * s,
		},
		{
			"Date far in the past",
			fields("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT", "Date", "Mon, 01 Jan 0001 00:00:00 GMT"), maxWait,
		},
		{"Date invalid", fields("Retry-After", in30s, "Date", "yesterday"), 30 * s},
		{"Date of digits", fields("Retry-After", in30s, "Date", "5"), 30 * s},
		{"Date empty", fields("Retry-After", in30s, "Date", ""), 30 * s},
		{"Date in another zone", fields("Retry-After", in30s, "Date", "Sun, 06 Nov 1994 08:49:07 PST"), 30 * s},
		{"Date in lower case", fields("Retry-After", in30s, "Date", "sun, 06 nov 1994 08:49:07 gmt"), 30 * s},
		{"Date with a fraction", fields("Retry-After", in30s, "Date", "Sun, 06 Nov 1994 08:49:07.5 GMT"), 30 * s},
		{"Date does not touch seconds", fields("Retry-After", "5", "Date", "Sun, 06 Nov 1994 08:49:07 GMT"), 5 * s},
		{"Age", fields("Retry-After", in30s, "Date", "Sun, 06 Nov 1994 08:49:07 GMT", "Age", "3600"), 30 * s},
		{"Age zero", fields("Retry-After", in30s, "Date", "Sun, 06 Nov 1994 08:49:07 GMT", "Age", "0"), 30 * s},
		{"Age and a past date", fields("Retry-After", date1994, "Date", "Sun, 06 Nov 1994 08:49:07 GMT", "Age", "9"), 0},
		{"Age does not touch seconds", fields("Retry-After", "5", "Age", "3"), 5 * s},

		// Milliseconds.
		{"milliseconds", fields("Retry-After-Ms", "1500"), 1500 * ms},
		{"x milliseconds", fields("X-Ms-Retry-After-Ms", "1500"), 1500 * ms},
		{"milliseconds, zero", fields("Retry-After-Ms", "0"), 0},
		{"milliseconds, leading zeros", fields("Retry-After-Ms", "0010"), 10 * ms},
		{"milliseconds, white space around", fields("Retry-After-Ms", " 10\t"), 10 * ms},
		{"amz milliseconds", fields("X-Amz-Retry-After", "1500"), 1500 * ms},
		{"milliseconds, fraction", fields("Retry-After-Ms", "5000.5"), 5000*ms + 500*time.Microsecond},
		{"x milliseconds, fraction", fields("X-Ms-Retry-After-Ms", "1.5"), 1500 * time.Microsecond},
		{"amz milliseconds, fraction", fields("X-Amz-Retry-After", "1.5"), 1500 * time.Microsecond},
		{"milliseconds, less than a nanosecond", fields("Retry-After-Ms", "0.0000001"), 1},
		{"milliseconds, no fraction after the point", fields("Retry-After-Ms", "5."), none},
		{"milliseconds, negative", fields("Retry-After-Ms", "-1"), none},
		{"milliseconds, plus sign", fields("Retry-After-Ms", "+1"), none},
		{"milliseconds, exponent", fields("X-Ms-Retry-After-Ms", "1e3"), none},
		{"milliseconds, infinite", fields("Retry-After-Ms", "Inf"), none},
		{"milliseconds are no date", fields("Retry-After-Ms", in30s), none},
		{"milliseconds, last that fit", fields("Retry-After-Ms", "9223372036854"), 9223372036854 * ms},
		{"milliseconds, last fraction that fits", fields("Retry-After-Ms", "9223372036854.775806"), maxWait - 1},
		{"milliseconds, first that do not fit", fields("Retry-After-Ms", "9223372036855"), maxWait},
		{"milliseconds, beyond int64", fields("Retry-After-Ms", "99999999999999999999"), maxWait},
		{"x milliseconds, beyond int64", fields("X-Ms-Retry-After-Ms", "99999999999999999999"), maxWait},
		{"amz milliseconds, beyond int64", fields("X-Amz-Retry-After", "99999999999999999999"), maxWait},
		{"amz milliseconds are no date", fields("X-Amz-Retry-After", in30s), none},
		{"name of another", fields("X-Retry-After-Ms", "5", "Ratelimit-Reset", "5", "X-Ratelimit-Reset", "5"), none},

		// Precedence of the headers.
		{"milliseconds come first", fields("Retry-After", "3", "X-Ms-Retry-After-Ms", "2", "Retry-After-Ms", "1"), ms},
		{
			"x milliseconds come second",
			fields("Retry-After", "3", "X-Amz-Retry-After", "4", "X-Ms-Retry-After-Ms", "2"), 2 * ms,
		},
		{"amz milliseconds come third", fields("Retry-After", "3", "X-Amz-Retry-After", "4"), 4 * ms},
		{"zero milliseconds come first", fields("Retry-After", "3", "Retry-After-Ms", "0"), 0},
		{"the first counts, not the longest", fields("Retry-After", "1", "Retry-After-Ms", "99999999999999999999"), maxWait},
		{"invalid milliseconds hide nothing", fields("Retry-After", "3", "Retry-After-Ms", "1.5.5"), 3 * s},
		{"invalid amz milliseconds hide nothing", fields("Retry-After", "3", "X-Amz-Retry-After", "5s"), 3 * s},
		{"invalid x milliseconds hide nothing", fields("Retry-After", "3", "X-Ms-Retry-After-Ms", "-2"), 3 * s},
		{
			"invalid milliseconds hide no x milliseconds",
			fields("Retry-After", "3", "X-Ms-Retry-After-Ms", "2", "Retry-After-Ms", "x"), 2 * ms,
		},
		{"empty milliseconds hide nothing", fields("Retry-After", "3", "Retry-After-Ms", ""), 3 * s},
		{
			"both milliseconds invalid", fields("Retry-After", in30s, "X-Ms-Retry-After-Ms", "", "Retry-After-Ms", "NaN"),
			30 * s,
		},
		{
			"invalid x milliseconds hide no amz milliseconds",
			fields("Retry-After", "3", "X-Amz-Retry-After", "2", "X-Ms-Retry-After-Ms", "x"), 2 * ms,
		},
		{
			"all invalid",
			fields("Retry-After", "x", "X-Amz-Retry-After", "x", "X-Ms-Retry-After-Ms", "x", "Retry-After-Ms", "x"), none,
		},
		{"RateLimit does not compete", fields("Retry-After", "5", "RateLimit", `"default";r=0;t=60`), 5 * s},
		{"RateLimit alone asks for nothing", fields("RateLimit", `"default";r=0;t=60`), none},

		// Several lines.
		{"longest of several lines", fields("Retry-After", "3", "Retry-After", "10", "Retry-After", "5"), 10 * s},
		{"first of several is the longest", fields("Retry-After", "10", "Retry-After", "3"), 10 * s},
		{"seconds and a date, the date longer", fields("Retry-After", "3", "Retry-After", in30s), 30 * s},
		{"seconds and a date, the seconds longer", fields("Retry-After", in30s, "Retry-After", "31"), 31 * s},
		{"invalid line beside a valid one", fields("Retry-After", "-3", "Retry-After", "5", "Retry-After", "x"), 5 * s},
		{"invalid line beside zero", fields("Retry-After", "x", "Retry-After", "0"), 0},
		{"past date beside seconds", fields("Retry-After", date1994, "Retry-After", "2"), 2 * s},
		{"overflow among several lines", fields("Retry-After", "99999999999999999999", "Retry-After", "5"), maxWait},
		{"all lines invalid", fields("Retry-After", "5, 10", "Retry-After", ""), none},
		{"longest of several milliseconds", fields("Retry-After-Ms", "3", "Retry-After-Ms", "10"), 10 * ms},
		{"longest of eight lines", http.Header{"Retry-After": {"1", "2", "3", "4", "5", "6", "7", "8"}}, 8 * s},
		{"ninth line", http.Header{"Retry-After": {"1", "2", "3", "4", "5", "6", "7", "x", "9"}}, 7 * s},
		{"eight invalid lines", http.Header{"Retry-After": {"x", "x", "x", "x", "x", "x", "x", "x", "9"}}, none},
		{"eight invalid lines of milliseconds", http.Header{"Retry-After-Ms": {"x", "x", "x", "x", "x", "x", "x", "x", "9"}}, none},
		{"invalid line of milliseconds", fields("Retry-After", "3", "Retry-After-Ms", "x", "Retry-After-Ms", "7"), 7 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.Equal(t, bubbleStart, time.Now().UTC().Format(http.TimeFormat))
				before := c.header.Clone()
				d, ok := retryhttp.RetryAfter(c.header)
				if c.want == none {
					assert.False(t, ok)
					assert.Zero(t, d)
				} else {
					assert.True(t, ok)
					assert.Equal(t, c.want, d)
				}
				assert.Equal(t, before, c.header, "the header is only read")
			})
		})
	}
}

// The names of days and months are case-sensitive (RFC 9110, section 5.6.7), but
// time.Parse ignores case.
func TestRetryAfterDateNamesAreCaseSensitive(t *testing.T) {
	for _, v := range []string{
		"sat, 01 jan 2000 00:00:30 GMT",
		"SAT, 01 JAN 2000 00:00:30 GMT",
		"Sat, 01 jan 2000 00:00:30 GMT",
		"saturday, 01-jan-00 00:00:30 GMT",
		"sat jan  1 00:00:30 2000",
	} {
		t.Run(v, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ok := retryhttp.RetryAfter(fields("Retry-After", v))
				assert.False(t, ok)
			})
		})
	}
}

func TestRetryAfterDateCountsDownAsTimePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := fields("Retry-After", "Sat, 01 Jan 2000 00:00:30 GMT")
		time.Sleep(10*time.Second + 250*time.Millisecond)
		d, ok := retryhttp.RetryAfter(h)
		assert.True(t, ok)
		assert.Equal(t, 19750*time.Millisecond, d)

		time.Sleep(20 * time.Second)
		d, ok = retryhttp.RetryAfter(h)
		assert.True(t, ok, "a moment that has passed was asked for all the same")
		assert.Zero(t, d)

		h.Set("Date", "Sat, 01 Jan 2000 00:00:00 GMT")
		d, _ = retryhttp.RetryAfter(h)
		assert.Equal(t, 30*time.Second, d, "the server's clock does not move with ours")
	})
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
	assert.Less(t, allocated(func() { _, ok = retryhttp.RetryAfter(h) }), uint64(1<<20))
	assert.False(t, ok)
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
		{"", "9223372036855", "", "9223372036", "", ""},
		{"", "", "", "18446744073709551616", "", ""},
		{"", "", "", strings.Repeat("9", 4000), "", ""},
		{"", "", "", strings.Repeat("0", 4000) + "1", "", ""},
		{"1.5", "1e3", "1e3", " \t007\t ", "", ""},
		{"Inf", "NaN", "", "0x10", "", ""},
		{"1_000", "²", "", "5, 10", "", ""},
		{"\x00", "\xff", "", "\xf0\x9f\x98\x80", "\x80", "\x00"},
		{"x", "", "", "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", ""},
		{"", "", "", "Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", ""},
		{"", "", "", "Sat, 31 Dec 2016 23:59:60 GMT", "Sat, 31 Dec 2016 23:59:59 GMT", ""},
		{"", "", "", "Sunday, 06-Nov-94 08:49:37 GMT", date, ""},
		{"", "", "", "Sunday, 06-Nov-68 08:49:37 GMT", "Sunday, 06-Nov-69 08:49:37 GMT", ""},
		{"", "", "", "Sun Nov  6 08:49:37 1994", "Sun Nov  6 08:49:36 1994", "0"},
		{"", "", "", "Sun, 06 Nov 1994 08:49:37.999999999 GMT", date, ""},
		{"", "", "", "Sun, 06 Nov 1994 08:49:37,999 GMT", date, ""},
		{"", "", "", "Sunday, 06-Nov-94 08:49:37 UTC", date, ""},
		{"", "", "", "Sunday, 06-Nov-+0 08:49:37 GMT", "", ""},
		{"", "", "", "sun, 06 nov 1994 08:49:37 gmt", date, ""},
		{"", "", "5000", "1", "", ""},
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
		d, ok := retryhttp.RetryAfter(h)
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

// decimalOf is an independent reading of 1*DIGIT ["." 1*DIGIT]: so many units in nanoseconds,
// rounded up, with arithmetic that cannot overflow.
func decimalOf(v string, unit time.Duration) (time.Duration, bool) {
	whole, fraction, split := strings.Cut(strings.Trim(v, " \t"), ".")
	if split && fraction == "" || whole != strings.Trim(whole, " \t") || strings.Trim(fraction, "0123456789") != "" {
		return 0, false
	}
	const places = 12 // more than a nanosecond needs
	read := fraction + strings.Repeat("0", places)
	part, _ := new(big.Int).SetString(read[:places], 10)
	part.Mul(part, big.NewInt(int64(unit)))
	rest := new(big.Int)
	part.QuoRem(part, big.NewInt(1e12), rest)
	if rest.Sign() > 0 || strings.Trim(read[places:], "0") != "" {
		part.Add(part, big.NewInt(1))
	}
	d, ok := digitsOf(whole, unit)
	if d > math.MaxInt64-time.Duration(part.Int64()) {
		return math.MaxInt64, ok
	}
	return d + time.Duration(part.Int64()), ok
}

// digitsOf is an independent reading of 1*DIGIT: the number of units in v as a
// Duration, with arithmetic that cannot overflow.
func digitsOf(v string, unit time.Duration) (time.Duration, bool) {
	for strings.HasPrefix(v, " ") || strings.HasPrefix(v, "\t") {
		v = v[1:]
	}
	for strings.HasSuffix(v, " ") || strings.HasSuffix(v, "\t") {
		v = v[:len(v)-1]
	}
	product := new(big.Int)
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return 0, false
		}
		if product.BitLen() < 128 { // beyond all limits already, and slow to go on with
			product.Mul(product, big.NewInt(10)).Add(product, big.NewInt(int64(v[i]-'0')))
		}
	}
	product.Mul(product, big.NewInt(int64(unit)))
	if !product.IsInt64() {
		return math.MaxInt64, v != ""
	}
	return time.Duration(product.Int64()), v != ""
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
		// The clock of a bubble begins in the year 2000, and users' tests have bubbles, too.
		h := fields("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", fmt.Sprint(time.Now().Unix()+30))
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
			if want.ok && d < 5e8*time.Second && want.reset != d { // from there on it is a Unix time
				t.Fatalf("%+v from %q", want, reset)
			}
		}
		if all != want {
			t.Fatalf("%+v instead of %+v", all, want)
		}
	})
}
