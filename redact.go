package retryhttp

import (
	"net/url"
	"strconv"
	"strings"
)

// What is told of a request, in a log or an error's text, must hold no secret:
// no userinfo, query or fragment of any URL.

// publicURL is what may be told of a URL.
func publicURL(u *url.URL) string {
	if u == nil {
		return ""
	}
	host := u.Host[strings.LastIndexByte(u.Host, '@')+1:] // where somebody has put userinfo into the host by hand
	return (&url.URL{Scheme: u.Scheme, Host: host, Path: u.Path, RawPath: u.RawPath}).String()
}

// failureText is err's text without secrets. Errors of net/http and net/url quote
// URLs: that of a request, of a redirect, of a proxy.
func failureText(err error) string {
	if err == nil {
		return "no error was recorded" // an Error that somebody else made
	}
	return withoutQueries(withoutUserinfo(withoutURLErrors(err, err.Error())))
}

// withoutURLErrors replaces what the url.Errors in err quote. One that could not
// parse a URL may quote any part of it for the reason, and is replaced as a
// whole.
func withoutURLErrors(err error, text string) string {
	switch x := err.(type) { // from the inside, before what is outside changes the quotes
	case interface{ Unwrap() error }:
		if inner := x.Unwrap(); inner != nil {
			text = withoutURLErrors(inner, text)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range x.Unwrap() {
			if inner != nil {
				text = withoutURLErrors(inner, text)
			}
		}
	}
	if u, ok := err.(*url.Error); ok {
		if u.Op == "parse" {
			return strings.ReplaceAll(text, u.Error(), "invalid URL")
		}
		public := "invalid URL"
		if parsed, err := url.Parse(u.URL); err == nil {
			public = publicURL(parsed)
		}
		text = strings.ReplaceAll(text, strconv.Quote(u.URL), strconv.Quote(public))
	}
	return text
}

// urlEnd holds what ends a URL in an error's text.
const urlEnd = " \t\r\n\"`<>"

// withoutQueries cuts each question mark with what follows it in the same word.
func withoutQueries(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		end := strings.IndexAny(after, urlEnd)
		if end < 0 {
			return b.String()
		}
		text = after[end:]
	}
}

// withoutUserinfo cuts what stands between "://" and "@" in the same word, and
// the fragment.
func withoutUserinfo(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "://")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("://")
		end := strings.IndexAny(after, urlEnd+"/?#")
		if end < 0 {
			end = len(after)
		}
		after = after[strings.LastIndexByte(after[:end], '@')+1:]
		if end = strings.IndexAny(after, urlEnd); end < 0 {
			end = len(after)
		}
		public, _, _ := strings.Cut(after[:end], "#")
		text = public + after[end:]
	}
}
