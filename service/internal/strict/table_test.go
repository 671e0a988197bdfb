package strict

import "strings"

// handDerived was worked out from docs/digest.md with pencil and paper: no program made these encodings.
var handDerived = []struct {
	name     string
	encoding string
	texts    []string
}{
	{"null", "n", []string{`null`, ` null`, "\t\r\n null \n"}},
	{"true", "t", []string{`true`, ` true `}},
	{"false", "f", []string{`false`, "\tfalse\r\n"}},

	{"zero", "d0e0;", []string{`0`, `-0`, `0.0`, `0.000`, `-0.0`, `0e0`, `0E+5`, `-0.0e+12`, `0e-7`,
		`0e-99999999999999999999999`, `0e308`, `0.0e309`}},
	{"one", "d1e0;", []string{`1`, `1.0`, `1.000`, `1e0`, `1E+0`, `1e-0`, `10e-1`, `0.1e1`, `0.01E+2`, `1000e-003`}},
	{"minus one", "d-1e0;", []string{`-1`, `-1.0`, `-10e-1`, `-0.1e1`}},
	{"a hundred", "d1e2;", []string{`100`, `1e2`, `1.00e02`, `100.0`, `0.1e3`, `1000e-1`}},
	{"1050", "d105e1;", []string{`1050`, `1.05e3`, `105e1`, `1050.00`}},
	{"a tenth", "d1e-1;", []string{`0.1`, `0.1000`, `1e-1`, `10e-2`, `0.01e1`}},
	{"three digits behind the point", "d-12345e-3;", []string{`-12.345`, `-12.3450`, `-12345e-3`, `-0.012345e3`}},
	{"beyond 64-bit doubles: 2^53 + 1", "d9007199254740993e0;", []string{`9007199254740993`, `9007199254740993.0`, `9.007199254740993e15`}},
	{"2^53", "d9007199254740992e0;", []string{`9007199254740992`}},
	{"a 64-bit id", "d388910826520445003e1;", []string{`3889108265204450030`, `3889108265204450030.00`, `388910826520445003e1`}},
	{"2^64", "d18446744073709551616e0;", []string{`18446744073709551616`, `1.8446744073709551616e19`}},
	{"a decimal of 38 digits", "d-99999999999999999999999999999999999999e-10;", []string{
		`-9999999999999999999999999999.9999999999`, `-99999999999999999999999999999999999999e-10`}},
	{"0.1 + 0.2 is not 0.3", "d30000000000000004e-17;", []string{`0.30000000000000004`}},
	{"0.3", "d3e-1;", []string{`0.3`, `0.30000000000000000`}},
	{"a power that is never written out", "d1e-1000000;", []string{`1e-1000000`, `10e-1000001`, `0.1e-999999`}},
	{"the power below the smallest int64", "d15e-9223372036854775809;", []string{`1.5e-9223372036854775808`, `15e-9223372036854775809`}},
	{"a power of 21 digits", "d1e-99999999999999999998;", []string{`100e-100000000000000000000`, `1e-99999999999999999998`}},
	{"a power that grows a digit", "d1e-100000000000000000003;", []string{`0.001e-100000000000000000000`}},
	{"1e308", "d1e308;", []string{`1e308`, `10e307`, `0.1e309`, `1` + strings.Repeat("0", 308)}},
	{"the largest double", "d17976931348623157e292;", []string{`1.7976931348623157e308`, `1.7976931348623157E+308`, `17976931348623157e292`,
		`0.17976931348623157e309`}},
	{"minus the largest double", "d-17976931348623157e292;", []string{`-1.7976931348623157e+308`}},
	{"just below the limit", "d179769313486229999e291;", []string{`1.79769313486229999e308`, `179769313486229999000e288`}},
	{"the smallest double and below", "d49e-325;", []string{`4.9e-324`, `0.49e-323`}},

	{"the empty string", "s0:", []string{`""`, ` "" `}},
	{"a", "s1:a", []string{`"a"`, `"\u0061"`}},
	{"a digit is not a number", "s1:1", []string{`"1"`, `"\u0031"`}},
	{"every short escape", "s8:\"\\/\b\f\n\r\t", []string{`"\"\\\/\b\f\n\r\t"`, `"\u0022\u005c/\u0008\u000C\u000a\u000D\u0009"`}},
	{"NUL", "s1:\x00", []string{`"\u0000"`}},
	{"a control character", "s1:\x1f", []string{`"\u001f"`, `"\u001F"`}},
	{"DEL needs no escape", "s1:\x7f", []string{"\"\x7f\"", `"\u007f"`}},
	{"two bytes", "s2:\xc3\xa9", []string{`"é"`, `"\u00e9"`, `"\u00E9"`}},
	{"not normalised", "s3:e\xcc\x81", []string{`"e\u0301"`, "\"e\u0301\""}},
	{"three bytes", "s6:\xe4\xbb\xbb\xe5\x8a\xa1", []string{`"任务"`, `"\u4efb\u52a1"`, `"任\u52A1"`}},
	{"four bytes", "s4:\xf0\x9f\x98\x80", []string{`"😀"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`}},
	{"the last code point", "s4:\xf4\x8f\xbf\xbf", []string{`"\udbff\udfff"`, "\"\U0010ffff\""}},
	{"a noncharacter", "s3:\xef\xbf\xbf", []string{`"\uffff"`, "\"\uffff\""}},
	{"the replacement character is a character", "s3:\xef\xbf\xbd", []string{`"\ufffd"`, "\"\ufffd\""}},
	{"a byte order mark inside a string", "s4:\xef\xbb\xbfa", []string{`"\ufeffa"`, "\"\ufeffa\""}},
	{"an escaped backslash before a u", "s6:\\u0061", []string{`"\\u0061"`, `"\u005cu0061"`}},
	{"text that looks like an encoding", "s6:s1:ad1", []string{`"s1:ad1"`}},
	{"a length of three digits", "s100:" + strings.Repeat("x", 100), []string{`"` + strings.Repeat("x", 100) + `"`}},

	{"the empty array", "[]", []string{`[]`, ` [ ] `, "[\n]"}},
	{"nested arrays", "[[][[]]]", []string{`[[],[[]]]`, `[ [ ] , [ [ ] ] ]`}},
	{"an array keeps its order", "[d1e0;d2e0;]", []string{`[1,2]`, ` [ 1.0 , 20e-1 ] `}},
	{"and the other order", "[d2e0;d1e0;]", []string{`[2,1]`}},
	{"kinds do not mix", "[d1e0;s1:1tn[]{}]", []string{`[1,"1",true,null,[],{}]`}},
	{"strings cannot run together", "[s1:as1:b]", []string{`["a","b"]`}},
	{"one string instead", "[s2:ab]", []string{`["ab"]`}},
	{"depth 100", strings.Repeat("[", 100) + strings.Repeat("]", 100), []string{nested(100)}},

	{"the empty object", "{}", []string{`{}`, `{ }`, " {\r\n}\t"}},
	{"null is not absence", "{s1:an}", []string{`{"a":null}`}},
	{"members are sorted", "{s1:ad2e0;s1:bd1e0;}", []string{`{"b":1,"a":2}`, `{"a":2,"b":1}`, `{ "b" : 1e0 , "\u0061" : 2.0 }`}},
	{"the empty name, and a name that begins another", "{s0:d4e0;s1:ad3e0;s2:aad1e0;s1:bd2e0;}", []string{`{"aa":1,"b":2,"a":3,"":4}`}},
	{"capitals before small letters", "{s1:Ad3e0;s1:Bd1e0;s1:ad2e0;}", []string{`{"B":1,"a":2,"A":3}`}},
	{"digits are sorted as text", "{s1:1d3e0;s2:10d1e0;s1:9d2e0;}", []string{`{"10":1,"9":2,"1":3}`}},
	{"by UTF-8 and not by UTF-16", "{s3:\xef\xbf\xbfd2e0;s4:\xf0\x9f\x98\x80d1e0;}", []string{`{"\ud83d\ude00":1,"\uffff":2}`, `{"\uffff":2,"😀":1}`}},
	{"a longer name whose length has more digits", "{s10:aaaaaaaaaad2e0;s1:bd1e0;}", []string{`{"b":1,"aaaaaaaaaa":2}`}},
	{"a NUL in a name", "{s1:ad1e0;s2:a\x00d2e0;}", []string{`{"a\u0000":2,"a":1}`}},
	{"names equal in their first eight bytes", "{s8:abcdefghd3e0;s9:abcdefgh1d2e0;s9:abcdefgh2d1e0;}", []string{
		`{"abcdefgh2":1,"abcdefgh1":2,"abcdefgh":3}`}},
	{"composed and decomposed names are two", "{s3:e\xcc\x81d2e0;s2:\xc3\xa9d1e0;}", []string{`{"é":1,"e\u0301":2}`}},
	{"one name at two places", "{s1:a{s1:ad1e0;}}", []string{`{"a":{"a":1}}`}},
	{"objects in objects", "{s1:ys0:s1:z{s1:ad0e0;s1:b[{s1:cd2e0;s1:dd1e0;}]}}", []string{
		`{"z":{"b":[{"d":1,"c":2}],"a":0},"y":""}`, `{"y":"","z":{"a":-0.0,"b":[{"c":2,"d":1}]}}`}},
	{"seventeen members", "{s1:ad0e0;s1:bd0e0;s1:cd0e0;s1:dd0e0;s1:ed0e0;s1:fd0e0;s1:gd0e0;s1:hd0e0;s1:id0e0;s1:jd0e0;s1:kd0e0;" +
		"s1:ld0e0;s1:md0e0;s1:nd0e0;s1:od0e0;s1:pd0e0;s1:qd0e0;}", []string{
		`{"q":0,"p":0,"o":0,"n":0,"m":0,"l":0,"k":0,"j":0,"i":0,"h":0,"g":0,"f":0,"e":0,"d":0,"c":0,"b":0,"a":0}`}},
}
