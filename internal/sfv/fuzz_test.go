package sfv_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/retryhttp/retryhttp/internal/sfv"
)

// The syntax as regular expressions, by the grammar in RFC 9651, section 3, and
// the grammar of UTF-8 in RFC 3629, section 4.
const (
	integerSyntax = `-?[0-9]{1,15}`
	decimalSyntax = `-?[0-9]{1,12}\.[0-9]{1,3}`
	stringSyntax  = `"(?:[ !#-\[\]-~]|\\["\\])*"`
	tokenSyntax   = "[A-Za-z*][!#$%&'*+\\-.^_`|~0-9A-Za-z:/]*"
	bytesSyntax   = `:(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}={0,2}|[A-Za-z0-9+/]{3}=?)?:`
	boolSyntax    = `\?[01]`
	dateSyntax    = `@` + integerSyntax
	tailSyntax    = `%[89ab][0-9a-f]`
	displaySyntax = `%"(?:[ !#$&-~]|%[0-7][0-9a-f]|(?:%c[2-9a-f]|%d[0-9a-f])` + tailSyntax +
		`|(?:%e0%[ab][0-9a-f]|%e[1-9a-cef]` + tailSyntax + `|%ed%[89][0-9a-f])` + tailSyntax +
		`|(?:%f0%[9ab][0-9a-f]|%f[123]` + tailSyntax + `|%f4%8[0-9a-f])` + tailSyntax + tailSyntax + `)*"`
	valueSyntax = `(?:` + decimalSyntax + `|` + integerSyntax + `|` + stringSyntax + `|` + tokenSyntax + `|` +
		bytesSyntax + `|` + boolSyntax + `|` + dateSyntax + `|` + displaySyntax + `)`
	keySyntax   = `[a-z*][a-z0-9_\-.*]*`
	paramSyntax = `; *` + keySyntax + `(?:=` + valueSyntax + `)?`
	itemSyntax  = valueSyntax + `(?:` + paramSyntax + `)*`
)

var (
	listForm  = regexp.MustCompile(`\A[ \t]*(?:` + itemSyntax + `(?:[ \t]*,[ \t]*` + itemSyntax + `)*)?[ \t]*\z`)
	itemForm  = regexp.MustCompile(`\A[ \t,]*(` + valueSyntax + `)((?:` + paramSyntax + `)*)`)
	paramForm = regexp.MustCompile(`\A; *(` + keySyntax + `)(?:=(` + valueSyntax + `))?`)
	integer   = regexp.MustCompile(`\A` + integerSyntax + `\z`)
)

func valueOf(text string) sfv.Value {
	switch {
	case strings.HasPrefix(text, `"`):
		return sfv.Value{Kind: sfv.String}
	case integer.MatchString(text):
		n, _ := strconv.ParseInt(text, 10, 64)
		return sfv.Value{Kind: sfv.Integer, Int: n}
	}
	return sfv.Value{}
}

func FuzzList(f *testing.F) {
	for _, seed := range []string{
		"", ",", "1,", " \t", "-", "-0", "999999999999999", "-1000000000000000", "999999999999.999", "1.", `"`, `"\`, `"\"`,
		`"\\";a`, "*", ":", "::", ":=:", ":YQ:", ":YQ===:", "?", "?1", "@", "@-0", "@1.5", "%", `%"`, `%"%`, `%"%c3%bc"`,
		`%"%ed%a0%80"`, "(", "(1)", ";", "a;", "a; *=1;*;*=2", "a;b=", `"default";r=0;t=30;pk=:YQ==:, "b";r=5`,
		"\x00", "\xff", "\"\x7f\"", strings.Repeat(`"a";r=1,`, 100), strings.Repeat(";", 100),
		strings.Repeat(`a;b=%"%61"`, 50),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, field string) {
		valid := listForm.MatchString(field)
		rest, end := field, false
		for item, ok := range sfv.List(field).Items {
			if end {
				t.Fatalf("%q goes on after its end", field)
			}
			if end = !ok; end {
				if valid {
					t.Fatalf("%q is valid", field)
				}
				continue
			}
			form := itemForm.FindStringSubmatch(rest)
			if form == nil || item.Value != valueOf(form[1]) {
				t.Fatalf("%+v at %q", item, rest)
			}
			rest = rest[len(form[0]):]
			compareParams(t, item, form[2])
		}
		if !valid && !end {
			t.Fatalf("%q is malformed", field)
		}
		if valid && strings.Trim(rest, " \t") != "" {
			t.Fatalf("%q was not read, of %q", rest, field)
		}
	})
}

func compareParams(t *testing.T, item sfv.Item, text string) {
	last := map[string]sfv.Value{}
	for text != "" {
		form := paramForm.FindStringSubmatch(text)
		last[form[1]] = valueOf(form[2])
		text = text[len(form[0]):]
	}
	for key, want := range last {
		if got, found := item.Param(key); !found || got != want {
			t.Fatalf("%s is %+v, %v instead of %+v", key, got, found, want)
		}
	}
	if got, found := item.Param(""); found {
		t.Fatalf("%+v for no key", got)
	}
}
