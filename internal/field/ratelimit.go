package field

import (
	"regexp"
	"strconv"
	"sync"
)

// longestList is the length of the longest list that is read. Reading one takes some ten milliseconds at most.
const longestList = 16 << 10

// TightestLimit reads a RateLimit field (draft-ietf-httpapi-ratelimit-headers-11), with its lines joined by
// commas. It returns the limit with the least remaining, and its reset in seconds, or 0 if that is missing.
// If several limits have as little remaining, the longest reset counts. A list with an error anywhere has no limit.
func TightestLimit(list string) (remaining, reset int64, ok bool) {
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
