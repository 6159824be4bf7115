package retryhttp_test

import (
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryhttp/retryhttp"
)

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

// retryAfterDateCounts reports whether v is certainly a valid Date: one that
// reads the same after it has been written.
func retryAfterDateCounts(v string) bool {
	at, err := time.Parse(http.TimeFormat, v)
	return err == nil && at.Format(http.TimeFormat) == v
}

func FuzzBackoff(f *testing.F) {
	extremes := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	ratios := []float64{
		math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, -1, 0, 0.5, 1, 2,
	}
	for i, base := range extremes {
		for j, limit := range extremes {
			for k, n := range []int64{math.MinInt64, 0, 1, 62, 63, 64, 65, math.MaxInt64} {
				ratio := ratios[(3*i+5*j+k)%len(ratios)]
				f.Add(base, limit, ratio, ratios[(i+j+k)%len(ratios)], extremes[(i+k)%5], n, extremes[(j+k)%5])
			}
		}
	}
	f.Fuzz(func(t *testing.T, baseNS, limitNS int64, ratio, factor float64, extraNS, n64, prevNS int64) {
		base, limit := time.Duration(baseNS), time.Duration(limitNS)
		extra, prev, n := time.Duration(extraNS), time.Duration(prevNS), int(n64)
		within := func(name string, d, lo, hi time.Duration) {
			if d < lo || d > hi {
				t.Fatalf("%s: %v (%d) is not within [%v, %v]", name, d, d, lo, hi)
			}
		}
		top := limit
		if limit <= 0 {
			top = math.MaxInt64
		}
		clip := func(x *big.Int) time.Duration { // to [0, top]
			switch {
			case base <= 0:
				return 0
			case x.Cmp(big.NewInt(int64(top))) > 0:
				return top
			}
			return time.Duration(x.Int64())
		}
		sum := func(a, b time.Duration) time.Duration { // saturating
			x := new(big.Int).Add(big.NewInt(int64(a)), big.NewInt(int64(b)))
			if !x.IsInt64() {
				return math.MaxInt64
			}
			return time.Duration(x.Int64())
		}
		retry := max(n, 1)
		linear := clip(new(big.Int).Mul(big.NewInt(baseNS), big.NewInt(int64(retry))))
		exponential := clip(new(big.Int).Lsh(big.NewInt(baseNS), uint(min(retry-1, 200))))
		lowest, highest := time.Duration(0), time.Duration(0) // of what DecorrelatedJitter draws
		if base > 0 {
			lowest = min(base, top)
			highest = min(top, sum(sum(max(prev, base), max(prev, base)), max(prev, base)))
		}
		for name, c := range map[string]struct {
			backoff retryhttp.Backoff
			lo, hi  time.Duration
		}{
			"Constant":           {retryhttp.Constant(base), max(base, 0), max(base, 0)},
			"Linear":             {retryhttp.Linear(base, limit), linear, linear},
			"Exponential":        {retryhttp.Exponential(base, limit), exponential, exponential},
			"Geometric":          {retryhttp.Geometric(base, limit, ratio), 0, top},
			"FullJitter":         {retryhttp.FullJitter(base, limit), 0, exponential},
			"EqualJitter":        {retryhttp.EqualJitter(base, limit), exponential / 2, exponential},
			"DecorrelatedJitter": {retryhttp.DecorrelatedJitter(base, limit), lowest, highest},
			"nil":                {retryhttp.Backoff(nil).PlusJitter(0), 0, 30 * time.Second},
			"anything":           {func(int, time.Duration) time.Duration { return base }, minWait, maxWait},
		} {
			d := c.backoff(n, prev)
			within(name, d, c.lo, c.hi)
			lo, hi := max(c.lo, 0), max(c.hi, 0)
			within(name+".PlusJitter", c.backoff.PlusJitter(extra)(n, prev), lo, sum(hi, max(extra, 0)))
			within(name+".PlusJitter.Plus", c.backoff.PlusJitter(extra).PlusJitter(extra)(n, prev), lo,
				sum(hi, sum(max(extra, 0), max(extra, 0))))
			within(name+".Spread", c.backoff.Spread(factor)(n, prev), 0, sum(hi, hi))
			if !(factor > 0) {
				within(name+".Spread by nothing", c.backoff.Spread(factor)(n, prev), lo, hi)
			}
			within(name+".Spread.Plus", c.backoff.Spread(factor).PlusJitter(extra)(n, prev), 0, sum(sum(hi, hi), max(extra, 0)))
		}
	})
}

func FuzzBudget(f *testing.F) {
	ops := []byte("\x04\x00\x08\x10\x18\x03\x0b\x06\x00\x0d\x05\xfd\x00\x07\x00\x01\x02\xff\x00\x03\xfe\x00")
	for _, ratio := range []float64{
		math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, -1, 0, 0.1, 1,
	} {
		f.Add(ratio, math.MaxInt, int64(math.MaxInt64), math.Inf(1), ops)
		f.Add(ratio, math.MinInt, int64(math.MinInt64), math.NaN(), ops)
		f.Add(ratio, 0, int64(0), 0.0, ops)
		f.Add(ratio, 1, int64(1), math.SmallestNonzeroFloat64, ops)
		f.Add(ratio, -1, int64(time.Second), 2.5, ops)
	}
	f.Add(0.0, -1, int64(time.Second), 0.5, []byte("\x00\x03\x06\x00")) // a token of MinPerSecond comes back
	f.Fuzz(func(t *testing.T, ratio float64, burst int, window int64, perSecond float64, ops []byte) {
		b := &retryhttp.TokenBucket{Ratio: ratio, Burst: burst, Window: time.Duration(window), MinPerSecond: perSecond}
		within := func(x, lo, hi float64) bool { return lo <= x && x <= hi }
		modeled := (ratio == 0 || within(math.Abs(ratio), 1e-3, 10)) && within(float64(burst), -1000, 1000) &&
			(window <= 0 || within(float64(window), 1e6, 3600e9)) && (perSecond <= 0 || within(perSecond, 1e-3, 1000))
		synctest.Test(t, func(t *testing.T) { compareWithModel(t, b, modeled, ops[:min(len(ops), 200)]) })
	})
}
