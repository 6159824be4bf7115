package field

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/retryhttp/retryhttp/internal/durations"
)

// RateLimit returns the limit of which the least remains, from the field RateLimit or from
// X-RateLimit-Remaining and X-RateLimit-Reset. ok is false if h has no valid limit, or comes from a cache.
func RateLimit(h http.Header) (remaining int64, reset time.Duration, ok bool) {
	if len(h["Age"]) > 0 {
		return 0, 0, false
	}
	if r, t, ok := tightestLimit(strings.Join(FirstLines(h["Ratelimit"]), ",")); ok {
		return r, durations.Times(t, time.Second), true
	}
	if remaining, ok = least(h["X-Ratelimit-Remaining"]); ok && len(h["X-Ratelimit-Reset"]) > 0 {
		reset, ok = latestReset(h)
	}
	if !ok {
		return 0, 0, false
	}
	return remaining, reset, true
}

// Exhausted returns the reset of a limit of which nothing remains. RateLimit alone would be
// enough. But some servers report limits on every response, and most report that something
// remains. Exhausted detects this case in less than a microsecond.
func Exhausted(h http.Header) (reset time.Duration, ok bool) {
	n, valid := least(h["X-Ratelimit-Remaining"])
	if (!valid || n > 0) && !slices.ContainsFunc(FirstLines(h["Ratelimit"]), mayHaveNone) {
		return 0, false
	}
	remaining, reset, ok := RateLimit(h)
	return reset, ok && remaining == 0
}

// mayHaveNone reports whether a line of RateLimit may hold an r of 0. A zero can also be written
// as 00 or -0.
func mayHaveNone(line string) bool {
	return strings.Contains(line, "r=0") || strings.Contains(line, "r=-0")
}

// least returns the smallest valid number among a field's lines.
func least(lines []string) (least int64, found bool) {
	for _, line := range FirstLines(lines) {
		if n, ok := Digits(strings.Trim(line, " \t")); ok && (!found || n < least) {
			least, found = n, true
		}
	}
	return least, found
}

// latestReset returns the latest reset among the lines of X-RateLimit-Reset. No standard defines
// what the number means, but its size reveals the meaning. A delay of 5*10^8 seconds would be 16
// years, and as a Unix time it is 1985: before the year 2000, in which the clock of a
// testing/synctest bubble begins. 10^12 seconds after 1970 is the year 33658.
func latestReset(h http.Header) (time.Duration, bool) {
	return longest(h["X-Ratelimit-Reset"], func(v string) (time.Duration, bool) {
		n, ok := Digits(v) // n is 0 if v is invalid
		if n < 5e8 {
			return durations.Times(n, time.Second), ok
		}
		at := time.UnixMilli(n)
		if n < 1e12 {
			at = time.Unix(n, 0)
		}
		return max(at.Sub(ServerNow(h)), 0), true
	})
}

// longestList is the length of the longest list that is read. Reading one takes some ten milliseconds at most.
const longestList = 16 << 10

// tightestLimit reads a RateLimit field (draft-ietf-httpapi-ratelimit-headers-11), with its lines joined by
// commas. It returns the limit with the least remaining, and its reset in seconds, or 0 if that is missing.
// If several limits have as little remaining, the longest reset counts. A list with an error anywhere has no limit.
func tightestLimit(list string) (remaining, reset int64, ok bool) {
	g := grammar()
	if len(list) > longestList || !g.list.MatchString(list) {
		return 0, 0, false
	}
	for i, member := range g.member.FindAllStringSubmatch(list, -1) {
		r, t := int64(-1), int64(0)
		for _, param := range g.param.FindAllStringSubmatch(member[1], -1) {
			n, err := strconv.ParseInt(param[2], 10, 64)
			if err != nil {
				n = -1
			}
			switch param[1] { // the last of a name counts (RFC 9651, section 4.2.3.2)
			case "r":
				r = n
			case "t":
				t = n
			}
		}
		if r < 0 || t < 0 {
			return 0, 0, false
		}
		if i == 0 || r < remaining || r == remaining && t > reset {
			remaining, reset = r, t
		}
	}
	return remaining, reset, true
}

// syntax is what RFC 9651, section 3, allows in a list of Strings with parameters.
type syntax struct{ list, member, param *regexp.Regexp }

// grammar is made when a field is read for the first time, and not when a program begins.
var grammar = sync.OnceValue(func() syntax {
	const (
		integer = `-?[0-9]{1,15}`
		decimal = `-?[0-9]{1,12}\.[0-9]{1,3}`
		str     = `"(?:[ !#-\[\]-~]|\\["\\])*"`
		token   = "[A-Za-z*][!#$%&'*+\\-.^_`|~0-9A-Za-z:/]*"
		// Bits beyond the last byte and a lack of padding should not fail (section 4.2.7).
		octets  = `:(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}={0,2}|[A-Za-z0-9+/]{3}=?)?:`
		boolean = `\?[01]`
		date    = `@` + integer
		// A Display String is UTF-8 (RFC 3629, section 4), with bytes beyond ASCII as %xx.
		tail    = `%[89ab][0-9a-f]`
		display = `%"(?:[ !#$&-~]|%[0-7][0-9a-f]|(?:%c[2-9a-f]|%d[0-9a-f])` + tail +
			`|(?:%e0%[ab][0-9a-f]|%e[1-9a-cef]` + tail + `|%ed%[89][0-9a-f])` + tail +
			`|(?:%f0%[9ab][0-9a-f]|%f[123]` + tail + `|%f4%8[0-9a-f])` + tail + tail + `)*"`

		value  = `(?:` + decimal + `|` + integer + `|` + str + `|` + token + `|` + octets + `|` + boolean + `|` + date + `|` + display + `)`
		key    = `[a-z*][a-z0-9_\-.*]*`
		param  = `; *` + key + `(?:=` + value + `)?`
		member = str + `(?:` + param + `)*`
	)
	return syntax{
		list:   regexp.MustCompile(`\A[ \t]*` + member + `(?:[ \t]*,[ \t]*` + member + `)*[ \t]*\z`),
		member: regexp.MustCompile(str + `((?:` + param + `)*)`),
		param:  regexp.MustCompile(`; *(` + key + `)(?:=(` + value + `))?`),
	}
})
