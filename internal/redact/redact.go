// Package redact removes secrets from log records and from the texts of errors. Secrets are
// the userinfo, query and fragment of any URL, and data that net/http quotes from a peer.
package redact

import (
	"crypto/x509"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// URL returns scheme, host and path of u.
func URL(u *url.URL) string {
	if u == nil {
		return ""
	}
	host := withoutUserinfo(u.Host) // a caller may have put userinfo there
	return (&url.URL{Scheme: u.Scheme, Host: host, Path: u.Path, RawPath: u.RawPath}).String()
}

// Error returns err's text without secrets. Errors of net/http and net/url quote the URL of a
// request, a redirect or a proxy: a quoted URL is shown as [URL] shows it.
func Error(err error) string {
	var b strings.Builder
	for text := withoutHosts(err, err.Error()); text != ""; {
		if quoted, err := strconv.QuotedPrefix(text); err == nil {
			writeQuoted(&b, quoted)
			text = text[len(quoted):]
			continue
		}
		n := 1 + lengthBefore(text[1:], '"')
		writeWords(&b, text[:n])
		text = text[n:]
	}
	return b.String()
}

// lengthBefore returns the length of s up to the first byte c.
func lengthBefore(s string, c byte) int {
	if i := strings.IndexByte(s, c); i >= 0 {
		return i
	}
	return len(s)
}

// follows reports whether what comes next follows one of the phrases, perhaps as the first of a list.
func follows(b *strings.Builder, phrases ...string) bool {
	before := strings.TrimSuffix(b.String(), "[")
	return slices.ContainsFunc(phrases, func(phrase string) bool { return strings.HasSuffix(before, phrase) })
}

// naming lists the phrases after which net and crypto/x509 name a host.
var naming = [...]string{"lookup ", "address ", ", not "}

// quoting lists the phrases after which net/http and net/textproto quote data. The data is a
// header of a response, or bytes of a body in its place. It may also be a header of a request,
// or an address with a password.
var quoting = [...]string{
	"malformed HTTP response ",
	"malformed HTTP status code ",
	"malformed HTTP version ",
	"malformed MIME header initial line: ",
	"malformed MIME header line: ",
	"malformed MIME header: missing colon: ",
	"Content-Length ",
	"Content-Length headers; got ",
	"transfer encoding: ",
	"transfer encodings: ",
	"bad trailer key ",
	"invalid header field name ",
	"invalid trailer field name ",
	"invalid HTTP header name ",
	"invalid HTTP trailer name ",
	"invalid pseudo-header ",
	"Upgrade request header: ",
	"Location header ",
	"invalid proxy address ",
	"invalid port ",
	"parse ",
	"debug=", // the debug data of a GOAWAY
	"... ",   // in a list, after what was left out
}

// writeQuoted writes what takes the place of a quoted string.
func writeQuoted(b *strings.Builder, quoted string) {
	s, _ := strconv.Unquote(quoted)
	hides, isURL := follows(b, quoting[:]...) && !isHarmless(b, s), strings.Contains(s, "://")
	switch u, err := url.Parse(s); {
	case !hides && !isURL:
		writeWords(b, quoted)
	case hides || err != nil:
		b.WriteString("...")
	default:
		b.WriteString(strconv.Quote(URL(u)))
	}
}

// isHarmless reports whether a quoted string says what to mend, and is no secret: a length, or the name of
// a header of the request. A program may have put a whole line in the place of the name.
func isHarmless(b *strings.Builder, s string) bool {
	if follows(b, "Content-Length ") {
		return len(s) <= 32 && strings.Trim(s, "+-0123456789., ") == ""
	}
	return follows(b, "net/http: invalid header field name ", "net/http: invalid trailer field name ") &&
		!strings.ContainsAny(s, ":=")
}

// withoutHosts removes from err's text the userinfo that a caller has put into a host. Such a host
// may have any characters, so it is taken from the errors that name it.
func withoutHosts(err error, text string) string {
	var host string
	switch x := err.(type) {
	case *net.DNSError:
		host = x.Name
	case *net.AddrError:
		host = x.Addr
	case x509.HostnameError:
		host = x.Host
	case *net.OpError:
		if x.Addr != nil { // the destination, behind a SOCKS proxy
			host = x.Addr.String()
		}
	}
	text = strings.ReplaceAll(text, host, withoutUserinfo(host))
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		text = withoutHosts(x.Unwrap(), text)
	case interface{ Unwrap() []error }:
		for _, inner := range x.Unwrap() {
			text = withoutHosts(inner, text)
		}
	}
	return text
}

// withoutUserinfo returns a host, or a URL's authority, without what a caller has put before an "@".
func withoutUserinfo(host string) string { return host[strings.LastIndexByte(host, '@')+1:] }

// writeWords writes a text without the secrets of its words.
func writeWords(b *strings.Builder, text string) {
	for text != "" {
		end := strings.IndexAny(text, " \t\r\n\"`<>")
		if end < 0 {
			end = len(text)
		}
		if follows(b, naming[:]...) {
			b.WriteString(withoutUserinfo(text[:end]))
		} else {
			writeURL(b, text[:end])
		}
		b.WriteString(text[end:min(end+1, len(text))])
		text = text[min(end+1, len(text)):]
	}
}

// writeURL writes a word without the userinfo, query and fragment of a URL. A URL may contain another URL.
func writeURL(b *strings.Builder, word string) {
	word = word[:lengthBefore(word, '?')]
	before, after, found := strings.Cut(word, "://")
	after = after[:lengthBefore(after, '#')]
	for found {
		b.WriteString(before)
		b.WriteString("://")
		at := strings.LastIndexByte(after[:lengthBefore(after, '/')], '@')
		before, after, found = strings.Cut(after[at+1:], "://")
	}
	b.WriteString(before)
}
