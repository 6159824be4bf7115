package retryhttp_test

import (
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/script"
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

// No context interrupts the reading of a header.
func TestRetryAfterIsReadOncePerAttempt(t *testing.T) {
	none := http.Header{}
	invalid := http.Header{"Retry-After": {"x", "x", "x", "x", "x", "x", "x", "x"}} // an invalid date allocates
	for name, p := range map[string]retryhttp.Policy{
		"retried":     {Backoff: retryhttp.Constant(0), Budget: retryhttp.Unlimited{}, MaxAttempts: 2},
		"not retried": {MaxAttempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(h http.Header) float64 {
				rt := retryhttp.New(script.Step(func(req *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 503, Header: h, Body: http.NoBody, Request: req}, nil
				}), p)
				req := get(t, t.Context())
				return testing.AllocsPerRun(100, func() { _, _ = rt.RoundTrip(req) })
			}
			once := testing.AllocsPerRun(100, func() { retryhttp.RetryAfter(invalid) })
			require.Positive(t, once)
			assert.Equal(t, float64(p.MaxAttempts)*once, cost(invalid)-cost(none))
		})
	}
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
