package sfv

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Value is a Bare Item.
type Value struct {
	Kind Kind
	Int  int64 // the number, if Kind is Integer
}

// A Kind is the type of a Value.
type Kind int

const (
	Other Kind = iota // Decimal, Token, Byte Sequence, Boolean, Date or Display String
	Integer
	String
)

// readValue reads the Bare Item at the start of s, and returns its length. In readValue and
// the functions below, a length of 0 means that the item is invalid.
func readValue(s string) (value Value, length int) {
	if s == "" {
		return Value{}, 0
	}
	switch c := s[0]; {
	case c == '-' || isDigit(c):
		return readNumber(s)
	case c == '"':
		return Value{Kind: String}, lenString(s)
	case c == '*' || isAlpha(c):
		return Value{}, span(s, isTokenPart)
	case c == ':':
		return Value{}, lenByteSequence(s)
	case c == '?':
		return Value{}, lenBoolean(s)
	case c == '@':
		return Value{}, lenDate(s)
	case c == '%':
		return Value{}, lenDisplayString(s)
	}
	return Value{}, 0
}

// readNumber reads an Integer or a Decimal. An Integer has at most 15 digits; a
// Decimal has at most 12, a point, and 1 to 3 more.
func readNumber(s string) (value Value, length int) {
	unsigned := strings.TrimPrefix(s, "-")
	digits := span(unsigned, isDigit)
	length = len(s) - len(unsigned) + digits
	if fraction, found := strings.CutPrefix(s[length:], "."); found {
		places := span(fraction, isDigit)
		if digits < 1 || digits > 12 || places < 1 || places > 3 {
			return Value{}, 0
		}
		return Value{}, length + 1 + places
	}
	if digits < 1 || digits > 15 {
		return Value{}, 0
	}
	n, _ := strconv.ParseInt(s[:length], 10, 64) // 15 digits always fit
	return Value{Integer, n}, length
}

func lenString(s string) int {
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return 0
			}
		case !isPrintable(c):
			return 0
		}
	}
	return 0
}

// lenByteSequence accepts bits beyond the last byte and a lack of padding, as RFC 9651,
// section 4.2.7, asks. It does not use encoding/base64, which would skip line breaks.
func lenByteSequence(s string) int {
	encoded, _, closed := strings.Cut(s[1:], ":")
	data := strings.TrimRight(encoded, "=")
	padding := len(encoded) - len(data)
	switch {
	case !closed, span(data, isBase64) < len(data):
		return 0
	case len(data)%4 == 1: // six bits do not make a byte
		return 0
	case padding > -len(data)&3: // more than fills a group of four
		return 0
	}
	return len(encoded) + 2
}

func lenBoolean(s string) int {
	if len(s) < 2 || s[1] != '0' && s[1] != '1' {
		return 0
	}
	return 2
}

func lenDate(s string) int {
	seconds, n := readNumber(s[1:])
	if seconds.Kind != Integer {
		return 0
	}
	return 1 + n
}

func lenDisplayString(s string) int {
	if !strings.HasPrefix(s, `%"`) {
		return 0
	}
	var text []byte
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			if !utf8.Valid(text) {
				return 0
			}
			return i + 1
		case !isPrintable(c):
			return 0
		case c == '%':
			octet, ok := hexOctet(s[i+1:])
			if !ok {
				return 0
			}
			text = append(text, octet)
			i += 2
		default:
			text = append(text, c)
		}
	}
	return 0
}

// hexOctet reads two hexadecimal digits. RFC 9651 allows them in lower case only.
func hexOctet(s string) (octet byte, ok bool) {
	const digits = "0123456789abcdef"
	if len(s) < 2 {
		return 0, false
	}
	high, low := strings.IndexByte(digits, s[0]), strings.IndexByte(digits, s[1])
	return byte(high<<4 | low), high >= 0 && low >= 0
}

// span returns the length of the longest prefix of s whose bytes are all in class.
func span(s string, class func(byte) bool) int {
	for i := range len(s) {
		if !class(s[i]) {
			return i
		}
	}
	return len(s)
}

func isDigit(c byte) bool     { return '0' <= c && c <= '9' }
func isLower(c byte) bool     { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool     { return isLower(c | 0x20) }
func isPrintable(c byte) bool { return ' ' <= c && c <= '~' }
func isKeyStart(c byte) bool  { return isLower(c) || c == '*' }
func isKeyPart(c byte) bool   { return isKeyStart(c) || isDigit(c) || in("_-.", c) }
func isTokenPart(c byte) bool { return isAlpha(c) || isDigit(c) || in("!#$%&'*+-.^_`|~:/", c) }
func isBase64(c byte) bool    { return isAlpha(c) || isDigit(c) || in("+/", c) }

func in(class string, c byte) bool { return strings.IndexByte(class, c) >= 0 }
