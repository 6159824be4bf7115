// Package field reads header fields, and knows the registered methods. Dates and numbers must match the
// grammars of RFC 9110. The parsers of the standard library accept more.
package field

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// mostLines is the number of lines that are read of a field which should have only one. A header
// may have hundreds of thousands of lines, and no context interrupts the parsing of a header.
const mostLines = 8

// FirstLines returns the lines to read of a field which should have only one.
func FirstLines(lines []string) []string { return lines[:min(len(lines), mostLines)] }

// OnlyLine returns the value of a field that has exactly one line, or "".
func OnlyLine(h http.Header, name string) string {
	if lines := h[name]; len(lines) == 1 {
		return strings.Trim(lines[0], " \t")
	}
	return ""
}

// Has reports whether h has a field with a value other than "". The case of the name does not
// matter.
func Has(h http.Header, name string) bool {
	for n, lines := range h {
		if strings.EqualFold(n, name) && slices.ContainsFunc(lines, func(v string) bool { return v != "" }) {
			return true
		}
	}
	return false
}

// MediaType returns the type and subtype of h's Content-Type, in lower case.
func MediaType(h http.Header) string {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// Status returns the status with its name, if it has one.
func Status(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}

// Digits reads 1*DIGIT. A number beyond the range of int64 counts as the largest int64. strconv
// alone is too permissive: it accepts a sign, and ParseFloat accepts Inf, NaN, hexadecimal numbers
// and underscores.
func Digits(v string) (int64, bool) {
	if !IsDigits(v) {
		return 0, false
	}
	// Saturates if v is out of range; no other error is possible.
	n, _ := strconv.ParseInt(v, 10, 64)
	return n, true
}

// IsDigits reports whether v is 1*DIGIT.
func IsDigits(v string) bool { return v != "" && strings.Trim(v, "0123456789") == "" }
