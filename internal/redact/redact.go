// Package redact removes secrets from log records and from the texts of errors. Secrets are
// the userinfo, query and fragment of any URL, and data that net/http quotes from a peer.
package redact

import (
	"crypto/x509"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
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
	text := withoutTyped(err, err.Error())
	if !strings.ContainsAny(text, `"@#?`) {
		return text
	}
	for _, r := range rules() {
		text = r.secret.ReplaceAllString(text, r.shown)
	}
	return text
}

// rule says what is shown in the place of a secret. Each of its expressions begins with literal text, which
// makes the search quick in a long text.
type rule struct {
	secret *regexp.Regexp
	shown  string
}

// quoting lists the phrases after which net/http and net/textproto quote data. The data is a
// header of a response, or bytes of a body in its place. It may also be a header of a request,
// or an address with a password.
var quoting = [...]string{
	"malformed HTTP (?:response|status code|version) ",
	"malformed MIME header(?: initial line| line|: missing colon): ",
	"Content-Length headers; got ",
	"transfer encodings?: ",
	"bad trailer key ",
	"; invalid header field name ", // over HTTP/2
	"invalid HTTP (?:header|trailer) name ",
	"pseudo-header ",
	" request header: ",
	"Location header ",
	"invalid proxy address ",
	"invalid port ",
	"parse ",
	"debug=", // the debug data of a GOAWAY
}

// rules is made when an error quotes something for the first time, and not when a program begins.
var rules = sync.OnceValue(func() (rules []rule) {
	add := func(secret, shown string) { rules = append(rules, rule{regexp.MustCompile("(?s)" + secret), shown}) }
	const (
		char   = `(?:[^"\\]|\\.)` // of a quoted string
		text   = char + `*"`
		list   = `\["` + text + `(?: "` + text + `)*\]`
		urlEnd = " \t\r\n\"`<>"
	)
	// The userinfo of a host in a text whose errors have lost their types. Such a host ends before ": ", and
	// may contain a space.
	for _, naming := range [...]string{"lookup ", "address ", ", not "} {
		add(naming+`(?:[^:]|:+[^: ])*:*@`, naming)
	}
	for _, phrase := range quoting {
		add(`(`+phrase+`)(?:"`+text+`|`+list+`)`, "$1...")
	}
	// A length that is none.
	add(`Content-Length "(?:[-+0-9., ]{33}|[-+0-9., ]*(?:[^-+0-9., "\\]|\\.))`+text, "Content-Length ...")
	// A name of the program's own, and a whole line in its place.
	add(`(net/http: invalid (?:header|trailer) field name "(?:[^":=\\]|\\.)*[:=])`+char+text, `$1"...`)
	// The fragment, the userinfo and the query of a URL. The rest of any other word is left out from its question
	// mark on, too.
	add(`(://[^#`+urlEnd+`]*)#[^`+urlEnd+`]*`, "$1")
	add(`://[^/?`+urlEnd+`]*@`, "://")
	add(`\?[^`+urlEnd+`]*`, "")
	return rules
})

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
	var host string // a caller may have put userinfo into it
	switch x := err.(type) {
	case *url.Error:
		text = withoutURL(x, text)
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
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		text = strings.ReplaceAll(text, host, host[at+1:])
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
