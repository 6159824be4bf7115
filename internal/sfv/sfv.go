// Package sfv reads Structured Field Values for HTTP (RFC 9651): lists of items.
package sfv

import "strings"

const ows = " \t" // optional white space (RFC 9110, section 5.6.3)

// A List is the value of a field that is a List, its lines joined with commas.
type List string

// Items yields the items in order. At a syntax error Items yields false and stops:
// RFC 9651, section 4.2, ignores the whole field then, earlier items included. An
// inner list is an error too.
func (l List) Items(yield func(item Item, ok bool) bool) {
	rest := strings.Trim(string(l), ows) // RFC 9110, section 5.5: no part of the value
	for more := rest != ""; more; {
		item, after, ok := readItem(rest)
		after = strings.TrimLeft(after, ows)
		rest, more = strings.CutPrefix(after, ",")
		ok = ok && (more || after == "")
		if !yield(item, ok) { // after an error there is no more
			return
		}
		rest = strings.TrimLeft(rest, ows)
	}
}

// An Item is a value with parameters.
type Item struct {
	Value
	params string // their text, which is valid
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

// Param returns the value of the parameter with the given key, and whether there is
// one. RFC 9651, section 4.2.3.2, lets the last of several count.
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

// readParam reads a parameter from a text that starts with its semicolon.
func readParam(s string) (key string, value Value, rest string, ok bool) {
	s = strings.TrimLeft(s[1:], " ")
	if s == "" || !isKeyStart(s[0]) {
		return "", Value{}, "", false
	}
	n := span(s, isKeyPart)
	key, rest = s[:n], s[n:]
	text, given := strings.CutPrefix(rest, "=")
	if !given {
		return key, Value{}, rest, true // a Boolean that is true
	}
	value, n = readValue(text)
	return key, value, text[n:], n > 0
}
