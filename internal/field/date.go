package field

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// HTTPDate reads an HTTP-date by its grammar, which is case-sensitive. [http.ParseTime] is more
// permissive: it accepts names in any case, fractions of a second, signs, and any time zone. Like
// http.ParseTime, HTTPDate does not check that the day of the week is correct. The grammar allows
// a leap second, which counts as the previous second.
func HTTPDate(v string) (time.Time, bool) {
	if v == "" || len(v) > len("Wednesday, 31-Dec-99 23:59:59 GMT") {
		return time.Time{}, false // early: a Parse that fails allocates, and copies all of v
	}
	v = strings.Replace(v, "23:59:60", "23:59:59", 1)
	forms := [...]string{
		http.TimeFormat,                  // IMF-fixdate
		"Monday, 02-Jan-06 15:04:05 GMT", // RFC 850
		"Mon Jan _2 15:04:05 2006",       // asctime with a day that is padded with a space
		"Mon Jan 02 15:04:05 2006",       // asctime with a day that is padded with a zero
	}
	for _, form := range forms {
		t, err := time.Parse(form, v)
		if err != nil {
			continue
		}
		day, rest, _ := strings.Cut(v, " ")
		var buf [len("Wednesday, 31-Dec-99 23:59:59 GMT")]byte
		_, exact, _ := bytes.Cut(t.AppendFormat(buf[:0], form), []byte(" "))
		if rest == string(exact) && day == strings.ToUpper(day[:1])+strings.ToLower(day[1:]) {
			return t, true
		}
	}
	return time.Time{}, false
}

// ServerNow returns the moment that a date in the response's header is compared with: the Date, or
// the time of this machine's clock if there is no Date. The Date does not count either if there is
// an Age, because then a cache has kept the response.
func ServerNow(h http.Header) time.Time {
	if len(h["Age"]) == 0 {
		if date, ok := HTTPDate(strings.Trim(h.Get("Date"), " \t")); ok {
			return date
		}
	}
	return time.Now()
}
