// Package sfv reads Structured Field Values for HTTP (RFC 9651): lists of items.
package sfv

import (
	"regexp"
	"sync"
)

// An Item is a member of a list. Its value, and the values of its parameters, are not decoded: a String
// keeps its quotes. A parameter without a value, which is the Boolean true, has "".
type Item struct {
	Value  string
	Params map[string]string
}

// longest is the length of the longest list that is read. Reading one takes some ten milliseconds at most.
const longest = 16 << 10

// Items returns the items of a list, with its lines joined by commas. A list with a syntax error
// anywhere has none (RFC 9651, section 4.2), nor has a list with an inner list, or one that is too long.
func Items(list string) (items []Item) {
	g := grammar()
	if len(list) > longest || !g.list.MatchString(list) {
		return nil
	}
	for _, found := range g.item.FindAllStringSubmatch(list, -1) {
		item := Item{found[1], map[string]string{}}
		for _, param := range g.param.FindAllStringSubmatch(found[2], -1) {
			item.Params[param[1]] = param[2] // the last of a name counts (section 4.2.3.2)
		}
		items = append(items, item)
	}
	return items
}

// syntax is what RFC 9651, section 3, allows.
type syntax struct{ list, item, param *regexp.Regexp }

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

		value = `(?:` + decimal + `|` + integer + `|` + str + `|` + token + `|` + octets + `|` + boolean + `|` + date + `|` + display + `)`
		key   = `[a-z*][a-z0-9_\-.*]*`
		param = `; *` + key + `(?:=` + value + `)?`
		item  = value + `(?:` + param + `)*`
	)
	return syntax{
		list:  regexp.MustCompile(`\A[ \t]*` + item + `(?:[ \t]*,[ \t]*` + item + `)*[ \t]*\z`),
		item:  regexp.MustCompile(`(` + value + `)((?:` + param + `)*)`),
		param: regexp.MustCompile(`; *(` + key + `)(?:=(` + value + `))?`),
	}
})
