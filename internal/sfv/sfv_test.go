package sfv_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/sfv"
)

func TestListYieldsItemsInOrder(t *testing.T) {
	var ints []int64
	for item, ok := range sfv.List(" 1;a=5 ,\t-2,3\t").Items {
		require.True(t, ok)
		require.Equal(t, sfv.Integer, item.Kind)
		ints = append(ints, item.Int)
	}
	assert.Equal(t, []int64{1, -2, 3}, ints)
}

func TestListStopsAtAnError(t *testing.T) {
	var oks []bool
	for _, ok := range sfv.List("1, 2, (3), 4").Items {
		oks = append(oks, ok)
	}
	assert.Equal(t, []bool{true, true, false}, oks)
}

func TestListStopsWhereTheCallerDoes(t *testing.T) {
	for item := range sfv.List("1, 2").Items {
		require.Equal(t, int64(1), item.Int)
		break
	}
}

func TestListWithoutItems(t *testing.T) {
	for _, field := range []sfv.List{"", " ", "\t", " \t "} {
		for item, ok := range field.Items {
			assert.Fail(t, "an item of an empty list", "%+v, %v", item, ok)
		}
	}
}

func TestParam(t *testing.T) {
	for item, ok := range sfv.List(`"x";a=1;b;a=2;*=-3;ab=4;a.b_c-*9=5`).Items {
		require.True(t, ok)
		assert.Equal(t, sfv.Value{Kind: sfv.String}, item.Value)
		for key, want := range map[string]sfv.Value{
			"a":        {Kind: sfv.Integer, Int: 2}, // the last one
			"b":        {},                          // a Boolean
			"*":        {Kind: sfv.Integer, Int: -3},
			"ab":       {Kind: sfv.Integer, Int: 4},
			"a.b_c-*9": {Kind: sfv.Integer, Int: 5},
		} {
			value, found := item.Param(key)
			assert.True(t, found, key)
			assert.Equal(t, want, value, key)
		}
		for _, key := range []string{"", "c", "A", "a.b", "x"} {
			value, found := item.Param(key)
			assert.False(t, found, key)
			assert.Zero(t, value, key)
		}
	}
}

func TestValues(t *testing.T) {
	integer := func(n int64) []sfv.Value { return []sfv.Value{{Kind: sfv.Integer, Int: n}} }
	text, other, invalid := []sfv.Value{{Kind: sfv.String}}, []sfv.Value{{}}, []sfv.Value(nil)
	for field, want := range map[string][]sfv.Value{
		"0": integer(0), "-0": integer(0), "007": integer(7), "-42": integer(-42),
		"999999999999999": integer(999999999999999), "-999999999999999": integer(-999999999999999),
		"1000000000000000": invalid, "0000000000000001": invalid, "-": invalid, "--1": invalid, "+1": invalid, "1a": invalid,
		"- 1": invalid, "-a": invalid,

		"1.5": other, "-0.000": other, "123456789012.123": other,
		"1234567890123.1": invalid, "1.1234": invalid, "1.": invalid, ".5": invalid, "-.5": invalid, "1..5": invalid,
		"1.5.5": invalid, "1.a": invalid,

		`""`: text, `" !#$%&'()*+,-./09:;<=>?@AZ[]^_az{|}~"`: text, `"\"\\"`: text,
		`"`: invalid, `"a`: invalid, `"\`: invalid, `"\"`: invalid, `"\a"`: invalid, "\"\x1f\"": invalid, "\"\x7f\"": invalid,
		"\"\x80\"": invalid, `"a"b`: invalid, "'a'": invalid,

		"a": other, "Z": other, "*": other, "a!#$%&'*+-.^_`|~:/09AZaz": other,
		`a"`: invalid, "a(": invalid, "a@": invalid, "a[": invalid, "a{": invalid, "a=1": invalid, "a\x80": invalid,
		"_a": invalid, "!a": invalid, "/a": invalid, "[": invalid, "`": invalid, "{": invalid, "\xe1": invalid,

		"::": other, ":YQ==:": other, ":YQ=:": other, ":YQ:": other, ":YWI=:": other, ":YWI:": other, ":YWJj:": other,
		":iZ==:": other, ":AZaz09+/:": other,
		":": invalid, ":YQ==": invalid, ":Y:": invalid, ":Y===:": invalid, ":YQ===:": invalid, ":YWI==:": invalid,
		":YWJj=:": invalid, ":=:": invalid, ":=YQ=:": invalid, ":Y=Q=:": invalid, ":_-Ah:": invalid, ":Y Q=:": invalid,
		":Y\nQ=:": invalid, ":YQ==:=": invalid,

		"?0": other, "?1": other, "?": invalid, "?2": invalid, "?t": invalid, "? 1": invalid, "?10": invalid,

		"@0": other, "@-1659578233": other, "@999999999999999": other,
		"@": invalid, "@-": invalid, "@1.5": invalid, "@1000000000000000": invalid, "@ 1": invalid, "@a": invalid,

		`%""`: other, `%"a \ b"`: other, `%"%00%22%25%c3%bc"`: other, `%"%f4%8f%bf%bf"`: other,
		"%": invalid, `%"`: invalid, `%"a`: invalid, `%a"`: invalid, `%"%"`: invalid, `%"%6"`: invalid, `%"%6`: invalid,
		`%"%61`: invalid, `%"%C3%BC"`: invalid, `%"%g0"`: invalid, `%"%0g"`: invalid, `%"%g0%90%80%80"`: invalid, `%"%c3"`: invalid,
		`%"%c3a%bc"`: invalid, `%"%ed%a0%80"`: invalid, `%"%c0%80"`: invalid, `%"%f4%90%80%80"`: invalid,
		"%\"\x1f\"": invalid, "%\"\x7f\"": invalid, "%\"\xc3\xbc\"": invalid,

		"(1)": invalid, "()": invalid, "#": invalid, "\x00": invalid, ";": invalid, "=": invalid,
	} {
		assert.Equal(t, want, values(field), "%q", field)

		// It is the same as a parameter.
		params := []sfv.Value(nil)
		for item, ok := range sfv.List("x;a=" + field + ";b=7").Items {
			if ok {
				a, _ := item.Param("a")
				b, _ := item.Param("b")
				require.Equal(t, sfv.Value{Kind: sfv.Integer, Int: 7}, b)
				params = append(params, a)
			}
		}
		assert.Equal(t, want, params, "%q", field)
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
		assert.Equal(t, valid, values(field) != nil, "%q", field)
	}
}

// values returns the values of a list's items, or nil if the list is empty or malformed.
func values(field string) (list []sfv.Value) {
	for item, ok := range sfv.List(field).Items {
		if !ok {
			return nil
		}
		list = append(list, item.Value)
	}
	return list
}

func TestNothingIsAllocated(t *testing.T) {
	field := sfv.List(strings.Repeat(`"a";b=1;c=-2.5;d=?1;e=:YQ==:;f=@5;g=h;i,`, 3) + "5")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for item := range field.Items {
			item.Param("b")
		}
	}))
}
