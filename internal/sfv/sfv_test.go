package sfv_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp/internal/sfv"
)

func TestItemsAreInOrder(t *testing.T) {
	assert.Equal(t, []sfv.Item{
		{"1", map[string]string{"a": "5"}}, {"-2", map[string]string{}}, {"3", map[string]string{}},
	}, sfv.Items(" 1;a=5 ,\t-2,3\t"))
	for _, list := range []string{"", " ", "\t", " \t ", "1, 2, (3), 4"} {
		assert.Empty(t, sfv.Items(list), "%q", list)
	}
}

func TestParametersOfAnItem(t *testing.T) {
	assert.Equal(t, []sfv.Item{{`"x;c=0"`, map[string]string{
		"a":        "2", // the last one
		"b":        "",  // a Boolean
		"*":        "-3",
		"ab":       `"4;x=1, \"\""`,
		"a.b_c-*9": "5",
	}}}, sfv.Items(`"x;c=0";a=1;b;a=2;*=-3; ab="4;x=1, \"\"";a.b_c-*9=5`))
}

func TestValues(t *testing.T) {
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
		var read []sfv.Item
		if want {
			read = []sfv.Item{{Value: value, Params: map[string]string{}}}
		}
		assert.Equal(t, read, sfv.Items(value), "%q", value)

		// It is the same as a parameter.
		if want {
			read = []sfv.Item{{Value: "x", Params: map[string]string{"a": value, "b": "7"}}}
		}
		assert.Equal(t, read, sfv.Items("x;a="+value+";b=7"), "%q", value)
	}
}

func TestSyntaxOfListsAndParameters(t *testing.T) {
	for field, valid := range map[string]bool{
		"a,b": true, "a ,\t b": true, "  a\t": true, "\ta ": true, "a,": false, ",a": false, ",": false, "a,,b": false,
		"a b": false, "a;b,": false, "a\n": false, "a,\nb": false, "a;": false, "a;,b": false, "a;;b": false, "a ;b": false,
		"a;b": true, "a;  b;c=1": true, "a;\tb": false, "a; ": false, "a;b=": false, "a;b=,c": false, "a;b =1": false,
		"a;b= 1": false, "a;B=1": false, "a;bC": false, "a;9=1": false, "a;_b": false, "a;-b": false, "a;.b": false,
		"a;*=1": true, "a;b*_-.9=1": true, "a;b=1;b=2": true, "a;\xc3=1": false, "a;b\xc3=1": false, "a;b=(1)": false,
	} {
		assert.Equal(t, valid, sfv.Items(field) != nil, "%q", field)
	}
}
