// Package sfv reads Structured Field Values for HTTP (RFC 9651): lists of items.
package sfv

import "strings"

const ows = " \t" // optional white space (RFC 9110, section 5.6.3)

// A List is the value of a List field, with its lines joined by commas.
type List string

// Items yields the items in order. At a syntax error Items yields false and stops: RFC 9651,
// section 4.2, then ignores the whole field, including earlier items. An inner list is an
// error too.
func (l List) Items(yield func(item Item, ok bool) bool) {
	rest := strings.Trim(string(l), ows) // RFC 9110, section 5.5: not part of the value
	for more := rest != ""; more; {
		item, after, ok := readItem(rest)
		after = strings.TrimLeft(after, ows)
		rest, more = strings.CutPrefix(after, ",")
		ok = ok && (more || after == "")
		if !yield(item, ok) { // more is false after an error
			return
		}
		rest = strings.TrimLeft(rest, ows)
	}
}

// An Item is a value with parameters.
type Item struct {
	Value
	params string // the text of the parameters, which is valid
}

func readItem(s string) (item Item, rest string, ok bool) {
	value, n := readValue(s)
	if n == 0 {
		return Item{}, "", false
	}
	rest = s[n:]
	for strings.HasPrefix(rest, ";") {
		if _, _, rest, ok = readParam(rest); !ok {
			return Item{}, "", false
		}
	}
	return Item{value, s[n : len(s)-len(rest)]}, rest, true
}

// Param returns the value of the parameter with the given key, and whether the parameter
// exists. If a key has several parameters, the last one counts (RFC 9651, section 4.2.3.2).
func (i Item) Param(key string) (value Value, found bool) {
	for rest := i.params; rest != ""; {
		var k string
		var v Value
		if k, v, rest, _ = readParam(rest); k == key {
			value, found = v, true
		}
	}
	return value, found
}

// readParam reads a parameter from a text that starts with the parameter's semicolon.
func readParam(s string) (key string, value Value, rest string, ok bool) {
	s = strings.TrimLeft(s[1:], " ")
	if s == "" || !isKeyStart(s[0]) {
		return "", Value{}, "", false
	}
	n := span(s, isKeyPart)
	key, rest = s[:n], s[n:]
	text, given := strings.CutPrefix(rest, "=")
	if !given {
		return key, Value{}, rest, true // the Boolean true
	}
	value, n = readValue(text)
	return key, value, text[n:], n > 0
}
