// Package redact removes secrets from log records and from the texts of errors. Secrets are
// the userinfo, query and fragment of any URL, and data that net/http quotes from a peer.
package redact

import (
	"crypto/x509"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// URL returns scheme, host and path of u.
func URL(u *url.URL) string {
	if u == nil {
		return ""
	}
	// A caller may have put userinfo into the host.
	host := u.Host[strings.LastIndexByte(u.Host, '@')+1:]
	return (&url.URL{Scheme: u.Scheme, Host: host, Path: u.Path, RawPath: u.RawPath}).String()
}

// Error returns err's text without secrets. Errors of net/http and net/url quote
// the URL of a request, a redirect, or a proxy. Errors of net quote its host.
func Error(err error) string {
	return withoutURLSecrets(withoutQuoted(withoutHosts(withoutTyped(err, err.Error()))))
}

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
	fieldName,
	trailerName,
	"invalid HTTP header name ",
	"invalid HTTP trailer name ",
	"pseudo-header ",
	" request header: ",
	"Location header ",
	"invalid proxy address ",
	"invalid port ",
	"parse ",
	"debug=", // the debug data of a GOAWAY
}

const (
	fieldName   = "invalid header field name "
	trailerName = "invalid trailer field name "
)

// withoutQuoted removes the strings that are quoted after the phrases of quoting.
func withoutQuoted(text string) string {
	for _, label := range quoting {
		text = withoutQuotes(text, label)
	}
	return text
}

// withoutQuotes removes the strings that are quoted after each label, except what is shown.
func withoutQuotes(text, label string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, label)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString(label)
		text = unquoted(rest)
		if quoted := rest[:len(rest)-len(text)]; quoted != "" {
			b.WriteString(shown(before, label, quoted))
		}
	}
}

// shown returns what takes the place of a string that is quoted after before and label.
func shown(before, label, quoted string) string {
	const most = 32 // characters of a length
	s, err := strconv.Unquote(quoted)
	switch {
	case err != nil: // a list
	case label == "Content-Length " && len(s) <= most && strings.Trim(s, "+-0123456789., ") == "":
		return quoted
	case (label == fieldName || label == trailerName) && strings.HasSuffix(before, "net/http: "):
		// A name of the program's own.
		name, value := s, ""
		if i := strings.IndexAny(s, ":="); i >= 0 {
			name, value = s[:i+1], s[i+1:] // a whole line, in the place of its name
		}
		if value == "" {
			return quoted
		}
		return strconv.Quote(name) + "..."
	}
	return "..."
}

// unquoted removes the quoted string, or the list of quoted strings, at the start of text.
func unquoted(text string) string {
	rest, list := strings.CutPrefix(text, "[")
	for {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return text
		}
		rest = rest[len(quoted):]
		if !list {
			return rest
		}
		if after, ended := strings.CutPrefix(rest, "]"); ended {
			return after
		}
		rest = strings.TrimPrefix(rest, " ")
	}
}

// withoutTyped replaces the URLs and hosts that the errors in err quote. A nil error quotes nothing.
func withoutTyped(err error, text string) string {
	switch x := err.(type) {
	// Inner errors first, before replacing an outer error changes their quotes.
	case interface{ Unwrap() error }:
		text = withoutTyped(x.Unwrap(), text)
	case interface{ Unwrap() []error }:
		for _, inner := range x.Unwrap() {
			text = withoutTyped(inner, text)
		}
	}
	switch x := err.(type) {
	case *url.Error:
		text = withoutURL(x, text)
	case *net.DNSError:
		text = withoutUserinfoOf(x.Name, text)
	case *net.AddrError:
		text = withoutUserinfoOf(x.Addr, text)
	case x509.HostnameError:
		text = withoutUserinfoOf(x.Host, text)
	case *net.OpError:
		if x.Addr != nil { // the destination, behind a SOCKS proxy
			text = withoutUserinfoOf(x.Addr.String(), text)
		}
	}
	return text
}

// withoutURL replaces the URL that u quotes. An error about parsing is replaced as a whole, because
// its reason may quote any part of the URL.
func withoutURL(u *url.Error, text string) string {
	if u.Op == "parse" {
		return strings.ReplaceAll(text, u.Error(), "invalid URL")
	}
	public := "invalid URL"
	if parsed, err := url.Parse(u.URL); err == nil {
		public = URL(parsed)
	}
	return strings.ReplaceAll(text, strconv.Quote(u.URL), strconv.Quote(public))
}

// withoutUserinfoOf removes the userinfo that a caller has put into host.
func withoutUserinfoOf(host, text string) string {
	at := strings.LastIndexByte(host, '@')
	if at < 0 {
		return text
	}
	return strings.ReplaceAll(text, host, host[at+1:])
}

// naming lists the phrases after which net and crypto/x509 name a host.
var naming = [...]string{"lookup ", "address ", ", not "}

// withoutHosts removes the userinfo from hosts in a text whose errors have lost their types. Such a
// host ends before ": ", and may contain a space.
func withoutHosts(text string) string {
	if !strings.Contains(text, "@") {
		return text
	}
	parts := strings.Split(text, ": ")
	for i, part := range parts {
		for _, label := range naming {
			before, host, _ := strings.Cut(part, label)
			if at := strings.LastIndexByte(host, '@'); at >= 0 {
				part = before + label + host[at+1:]
			}
		}
		parts[i] = part
	}
	return strings.Join(parts, ": ")
}

// urlEnd holds the characters that end a URL in an error's text.
const urlEnd = " \t\r\n\"`<>"

// withoutURLSecrets removes the userinfo and the fragments of URLs. Of each word, it also removes a
// question mark and the text that follows it.
func withoutURLSecrets(text string) string {
	var b strings.Builder
	for text != "" {
		end := strings.IndexAny(text, urlEnd)
		if end < 0 {
			end = len(text)
		}
		word, _, _ := strings.Cut(withoutUserinfo(text[:end]), "?")
		b.WriteString(word)
		b.WriteString(text[end:min(end+1, len(text))])
		text = text[min(end+1, len(text)):]
	}
	return b.String()
}

// withoutUserinfo returns one word without userinfo and fragments. A URL in the word may
// contain another URL.
func withoutUserinfo(word string) string {
	var b strings.Builder
	before, after, found := strings.Cut(word, "://")
	after, _, _ = strings.Cut(after, "#")
	for found {
		b.WriteString(before)
		b.WriteString("://")
		authority := strings.IndexAny(after, "/?")
		if authority < 0 {
			authority = len(after)
		}
		after = after[strings.LastIndexByte(after[:authority], '@')+1:]
		before, after, found = strings.Cut(after, "://")
	}
	b.WriteString(before)
	return b.String()
}
