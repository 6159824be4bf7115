package retryhttp_test

import (
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryhttp/retryhttp"
)

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
