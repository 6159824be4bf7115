package field

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// testdata/conformance/ratelimit.json has what the parameters r and t mean. These are values of others.
func TestTightestLimitKnowsEachTypeOfAParameter(t *testing.T) {
	const valid, invalid = true, false
	for value, want := range map[string]bool{
		"0": valid, "-0": valid, "007": valid, "-42": valid,
		"999999999999999": valid, "-999999999999999": valid,
		"1000000000000000": invalid, "0000000000000001": invalid, "-": invalid, "--1": invalid, "+1": invalid, "1a": invalid,
		"- 1": invalid, "-a": invalid,

		"1.5": valid, "-0.000": valid, "123456789012.123": valid,
		"1234567890123.1": invalid, "1.1234": invalid, "1.": invalid, ".5": invalid, "-.5": invalid, "1..5": invalid,
		"1.5.5": invalid, "1.a": invalid,

		`""`: valid, `" !#$%&'()*+,-./09:;<=>?@AZ[]^_az{|}~"`: valid, `"\"\\"`: valid,
		`"`: invalid, `"a`: invalid, `"\`: invalid, `"\"`: invalid, `"\a"`: invalid, "\"\x1f\"": invalid, "\"\x7f\"": invalid,
		"\"\x80\"": invalid, `"a"b`: invalid, "'a'": invalid,

		"a": valid, "Z": valid, "*": valid, "a!#$%&'*+-.^_`|~:/09AZaz": valid,
		`a"`: invalid, "a(": invalid, "a@": invalid, "a[": invalid, "a{": invalid, "a=1": invalid, "a\x80": invalid,
		"_a": invalid, "!a": invalid, "/a": invalid, "[": invalid, "`": invalid, "{": invalid, "\xe1": invalid,

		"::": valid, ":YQ==:": valid, ":YQ=:": valid, ":YQ:": valid, ":YWI=:": valid, ":YWI:": valid, ":YWJj:": valid,
		":iZ==:": valid, ":AZaz09+/:": valid,
		":": invalid, ":YQ==": invalid, ":Y:": invalid, ":Y===:": invalid, ":YQ===:": invalid, ":YWI==:": invalid,
		":YWJj=:": invalid, ":=:": invalid, ":=YQ=:": invalid, ":Y=Q=:": invalid, ":_-Ah:": invalid, ":Y Q=:": invalid,
		":Y\nQ=:": invalid, ":YQ==:=": invalid,

		"?0": valid, "?1": valid, "?": invalid, "?2": invalid, "?t": invalid, "? 1": invalid, "?10": invalid,

		"@0": valid, "@-1659578233": valid, "@999999999999999": valid,
		"@": invalid, "@-": invalid, "@1.5": invalid, "@1000000000000000": invalid, "@ 1": invalid, "@a": invalid,

		`%""`: valid, `%"a \ b"`: valid, `%"%00%22%25%c3%bc"`: valid, `%"%f4%8f%bf%bf"`: valid,
		"%": invalid, `%"`: invalid, `%"a`: invalid, `%a"`: invalid, `%"%"`: invalid, `%"%6"`: invalid, `%"%6`: invalid,
		`%"%61`: invalid, `%"%C3%BC"`: invalid, `%"%g0"`: invalid, `%"%0g"`: invalid, `%"%g0%90%80%80"`: invalid, `%"%c3"`: invalid,
		`%"%c3a%bc"`: invalid, `%"%ed%a0%80"`: invalid, `%"%c0%80"`: invalid, `%"%f4%90%80%80"`: invalid,
		"%\"\x1f\"": invalid, "%\"\x7f\"": invalid, "%\"\xc3\xbc\"": invalid,

		"(1)": invalid, "()": invalid, "#": invalid, "\x00": invalid, ";": invalid, "=": invalid,
	} {
		r, reset, ok := tightestLimit(`"x;r=9";r=1;a=` + value + `;t=7`)
		assert.Equal(t, want, ok, "%q", value)
		if want {
			assert.Equal(t, [2]int64{1, 7}, [2]int64{r, reset}, "%q", value)
		}
	}
}

func TestTightestLimitKnowsTheSyntaxOfListsAndParameters(t *testing.T) {
	for list, valid := range map[string]bool{
		"a,a": true, "a ,\t a": true, "  a\t": true, "\ta ": true, "a,": false, ",a": false, ",": false, "a,,a": false,
		"a a": false, "a;b,": false, "a\n": false, "a,\na": false, "a;": false, "a;,b": false, "a;;b": false, "a ;b": false,
		"a;b": true, "a;  b;c=1": true, "a;\tb": false, "a; ": false, "a;b=": false, "a;b=,a": false, "a;b =1": false,
		"a;b= 1": false, "a;B=1": false, "a;bC": false, "a;9=1": false, "a;_b": false, "a;-b": false, "a;.b": false,
		"a;*=1": true, "a;b*_-.9=1": true, "a;b=1;b=2": true, "a;\xc3=1": false, "a;b\xc3=1": false, "a;b=(1)": false,
	} {
		_, _, ok := tightestLimit(strings.ReplaceAll(list, "a", `"a";r=0`))
		assert.Equal(t, valid, ok, "%q", list)
	}
}
