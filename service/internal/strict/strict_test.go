package strict

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/orbit-run/orbit"
)

var subject = Subject{Operation: "submitTask", Path: "/v1/tasks"}

func TestEncoding(t *testing.T) {
	for _, v := range handDerived {
		for _, text := range v.texts {
			if got, faults := canonical([]byte(text)); got != v.encoding || faults != nil {
				t.Errorf("%s: %q, %v, want %q", text, got, faults, v.encoding)
			}
		}
	}
}

func TestDigest(t *testing.T) {
	got, err := Scan(subject, []byte(`{"type":"mail","queue":"q"}`))
	want := orbit.Digest(sha256.Sum256([]byte("[s15:orbit.digest.v1s10:submitTasks9:/v1/tasks{s5:queues1:qs4:types4:mail}]")))
	if err != nil || got != want {
		t.Errorf("Scan = %s, %v, want %s", got, err, want)
	}
	if got, want := subject.NoBody(), orbit.Digest(sha256.Sum256([]byte("[s15:orbit.digest.v1s10:submitTasks9:/v1/tasks]"))); got != want {
		t.Errorf("NoBody = %s, want %s", got, want)
	}
}

func TestDigestCoversTheSubject(t *testing.T) {
	seen := map[orbit.Digest]Subject{}
	for _, s := range []Subject{{"a", "b"}, {"ab", ""}, {"", "ab"}, {"as1:b", ""}, {"b", "a"}} {
		d, err := Scan(s, []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []orbit.Digest{d, s.NoBody()} {
			if other, ok := seen[d]; ok {
				t.Errorf("%+v and %+v have one digest", s, other)
			}
			seen[d] = s
		}
	}
}

type refusal struct {
	text    string
	code    Code
	pointer string
}

var refusals = []refusal{
	{``, InvalidJSON, ``},
	{` `, InvalidJSON, ``},
	{`{`, InvalidJSON, ``},
	{`[`, InvalidJSON, `/0`},
	{`[1`, InvalidJSON, `/0`},
	{`[1,`, InvalidJSON, `/1`},
	{`[1,]`, InvalidJSON, `/1`},
	{`[,1]`, InvalidJSON, `/0`},
	{`[1 2]`, InvalidJSON, `/0`},
	{`[1}`, InvalidJSON, `/0`},
	{`{"a":1]`, InvalidJSON, `/a`},
	{`{"a"}`, InvalidJSON, `/a`},
	{`{"a":}`, InvalidJSON, `/a`},
	{`{"a":1,}`, InvalidJSON, ``},
	{`{"a":1 "b":2}`, InvalidJSON, `/a`},
	{`{,}`, InvalidJSON, ``},
	{`{a:1}`, InvalidJSON, ``},
	{`{1:1}`, InvalidJSON, ``},
	{`{'a':1}`, InvalidJSON, ``},
	{`]`, InvalidJSON, ``},
	{`1 1`, InvalidJSON, ``},
	{`{}{}`, InvalidJSON, ``},
	{`{},`, InvalidJSON, ``},
	{`tru`, InvalidJSON, ``},
	{`truex`, InvalidJSON, ``},
	{`True`, InvalidJSON, ``},
	{`nul`, InvalidJSON, ``},
	{`NaN`, InvalidJSON, ``},
	{`Infinity`, InvalidJSON, ``},
	{`-Infinity`, InvalidJSON, ``},
	{`+1`, InvalidJSON, ``},
	{`-`, InvalidJSON, ``},
	{`.5`, InvalidJSON, ``},
	{`5.`, InvalidJSON, ``},
	{`5.e1`, InvalidJSON, ``},
	{`1e`, InvalidJSON, ``},
	{`1e+`, InvalidJSON, ``},
	{`01`, InvalidJSON, ``},
	{`-01`, InvalidJSON, ``},
	{`0x10`, InvalidJSON, ``},
	{`1_000`, InvalidJSON, ``},
	{`"`, InvalidJSON, ``},
	{`"a`, InvalidJSON, ``},
	{`"\`, InvalidJSON, ``},
	{`"\"`, InvalidJSON, ``},
	{`"\x"`, InvalidJSON, ``},
	{`"\u12"`, InvalidJSON, ``},
	{`"\u12g4"`, InvalidJSON, ``},
	{`"\U0041"`, InvalidJSON, ``},
	{`"\ud83d\u12"`, InvalidJSON, ``},
	{"\"\n\"", InvalidJSON, ``},
	{"\"\x00\"", InvalidJSON, ``},
	{"\"\x1f\"", InvalidJSON, ``},
	{"\"eight by\tes\"", InvalidJSON, ``},
	{"\x00", InvalidJSON, ``},
	{"1\x00", InvalidJSON, ``},
	{"\x0b1", InvalidJSON, ``},
	{"\u00a01", InvalidJSON, ``},
	{"[1,\xff]", InvalidJSON, `/1`},
	{"// c\n1", InvalidJSON, ``},
	{`[1]/**/`, InvalidJSON, ``},
	{"\ufeff1", ByteOrderMark, ``},
	{"\ufeff", ByteOrderMark, ``},
	{"\xff\xfe1\x00", InvalidJSON, ``},
	{" \ufeff1", InvalidJSON, ``},
	{"[1]\ufeff", InvalidJSON, ``},

	{"\"\xff\"", InvalidUTF8, ``},
	{"\"\xc3\"", InvalidUTF8, ``},
	{"\"\xc0\xaf\"", InvalidUTF8, ``},
	{"\"\xed\xa0\x80\"", InvalidUTF8, ``},
	{"\"\xf4\x90\x80\x80\"", InvalidUTF8, ``},
	{"\"\xe2\x82\\n\xac\"", InvalidUTF8, ``},
	{"\"\\n\xff\\n\"", InvalidUTF8, ``},
	{"\"0123456789abcdef\xff\"", InvalidUTF8, ``},
	{"{\"a\":[0,\"\xff\"]}", InvalidUTF8, `/a/1`},
	{"{\"a\":{\"\xff\":1}}", InvalidUTF8, `/a`},
	{"{\"\xff\":[\"\xff\"]}", InvalidUTF8, "/\ufffd/0"},

	{`"\ud800"`, LoneSurrogate, ``},
	{`"\udc00"`, LoneSurrogate, ``},
	{`"\udbff"`, LoneSurrogate, ``},
	{`"\uDFFF"`, LoneSurrogate, ``},
	{`"\ude00\ud83d"`, LoneSurrogate, ``},
	{`"\ud83d\ud83d\ude00"`, LoneSurrogate, ``},
	{`"\ud83dx\ude00"`, LoneSurrogate, ``},
	{`"\ud83d\n"`, LoneSurrogate, ``},
	{`"\ud83d\u0041"`, LoneSurrogate, ``},
	{`{"\ud800":1}`, LoneSurrogate, ``},
	{`[{"a/b~c":"\ud800"}]`, LoneSurrogate, `/0/a~1b~0c`},

	{`{"a":1,"a":1}`, DuplicateKey, `/a`},
	{`{"a":1,"b":2,"a":3}`, DuplicateKey, `/a`},
	{`{"b":1,"a":2,"b":3}`, DuplicateKey, `/b`},
	{`{"a":1,"\u0061":2}`, DuplicateKey, `/a`},
	{`{"":1,"":2}`, DuplicateKey, `/`},
	{`{"x":[{"a":1,"a":1,"a":1}]}`, DuplicateKey, `/x/0/a`},
	{`{"é":1,"\u00e9":2}`, DuplicateKey, `/é`},

	{`1e309`, NumberOutOfRange, ``},
	{`1e400`, NumberOutOfRange, ``},
	{`-1e400`, NumberOutOfRange, ``},
	{`1e1000000`, NumberOutOfRange, ``},
	{`1e999999999999999999999999999999`, NumberOutOfRange, ``},
	{`0e309`, NumberOutOfRange, ``},
	{`0.0e310`, NumberOutOfRange, ``},
	{`0e999999999999999999999999999999`, NumberOutOfRange, ``},
	{`1.7976931348623158e308`, NumberOutOfRange, ``},
	{`1.79769313486231570e308`, NumberOutOfRange, ``},
	{`1.7976931348623e308`, NumberOutOfRange, ``},
	{`1` + strings.Repeat("0", 309), NumberOutOfRange, ``},
	{`1` + strings.Repeat("0", 309) + `e-300`, NumberOutOfRange, ``},
	{`1` + strings.Repeat("0", 309) + `.5`, NumberOutOfRange, ``},
	{`2` + strings.Repeat("0", 308) + `e-1`, NumberOutOfRange, ``},
	{`{"a":[1e400]}`, NumberOutOfRange, `/a/0`},
	{strings.Repeat("1", 1001), NumberTooLong, ``},
	{`0.` + strings.Repeat("1", 1000), NumberTooLong, ``},
	{`1e-` + strings.Repeat("0", 1000), NumberTooLong, ``},

	{nested(101), TooDeep, strings.Repeat("/0", 100)},
	{nested(10_000), TooDeep, strings.Repeat("/0", 100)},
	{nested(1_000_000), TooDeep, strings.Repeat("/0", 100)},
	{strings.Repeat(`{"a":`, 101) + `1` + strings.Repeat(`}`, 101), TooDeep, strings.Repeat("/a", 100)},
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestRefusals(t *testing.T) {
	for _, r := range refusals {
		digest, err := Scan(subject, []byte(r.text))
		var faults Faults
		if !errors.As(err, &faults) {
			t.Errorf("%.60q: accepted, want %s", r.text, r.code)
			continue
		}
		last := faults[len(faults)-1]
		if last.Code != r.code || last.Pointer != r.pointer {
			t.Errorf("%.60q: %s at %q, want %s at %q", r.text, last.Code, last.Pointer, r.code, r.pointer)
		}
		if last.Detail == "" || err.Error() == "" {
			t.Errorf("%.60q: no words for %s", r.text, last.Code)
		}
		if !digest.IsZero() {
			t.Errorf("%.60q: a digest beside a fault", r.text)
		}
	}
}

func TestDeepAndBroken(t *testing.T) {
	_, err := Scan(subject, []byte(strings.Repeat("[", 1_000_000)))
	faults, ok := err.(Faults)
	if !ok || len(faults) != 2 || faults[0].Code != TooDeep || faults[1].Code != InvalidJSON {
		t.Errorf("%v, want too_deep and then invalid_json", err)
	}
}

func TestAtTheLimits(t *testing.T) {
	for _, text := range []string{
		nested(100),
		strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100),
		`1` + strings.Repeat("0", 308),
		`0.` + strings.Repeat("1", 999),
		strings.Repeat("1", 300) + `.` + strings.Repeat("1", 700),
		`1e-` + strings.Repeat("9", 999),
		`1.79769313486229999999999e308`,
		`17976931348622` + strings.Repeat("9", 295),
		`{"` + strings.Repeat("k", 100_000) + `":1}`,
	} {
		got, faults := canonical([]byte(text))
		want, err := reference([]byte(text))
		if faults != nil || err != nil || got != want {
			t.Errorf("%.60q…: %v, %.80q, want %.80q (%v)", text, faults, got, want, err)
		}
	}
}

func TestSyntaxDetail(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,}`: "after 7 bytes: expected the name of a member in double quotes, found }",
		`[1`:       "at /0: after 2 bytes: expected a comma or ], found the end",
		"\"\x01\"": "after 1 bytes: expected an escape instead of a control character, found byte 0x01",
	} {
		if _, err := Scan(subject, []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestSeveralFaults(t *testing.T) {
	_, err := Scan(subject, []byte(`{"a":1e400,"b":["\ud800",{"c":1,"c":2}],"a":0`+"\n"+`,"d":"`+"\xff"+`"}`))
	want := "/a number_out_of_range, /b/0 lone_surrogate, /b/1/c duplicate_key, /d invalid_utf8, /a duplicate_key"
	var got []string
	for _, f := range err.(Faults) {
		got = append(got, f.Pointer+" "+string(f.Code))
	}
	if strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
	if !strings.HasSuffix(err.Error(), "(and 4 more)") {
		t.Errorf("Error() = %s", err)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	_, err := Scan(subject, []byte(`[`+strings.Repeat(`"\ud800",`, 100_000)+`0]`))
	if n := len(err.(Faults)); n != MaxFaults {
		t.Errorf("%d faults, want %d", n, MaxFaults)
	}
	_, err = Scan(subject, []byte(`[`+strings.Repeat(`1e400,`, 100)+`}`))
	if n := len(err.(Faults)); n != MaxFaults+1 || err.(Faults)[n-1].Code != InvalidJSON {
		t.Errorf("%d faults, want %d, the broken syntax last", n, MaxFaults+1)
	}
	long := strings.Repeat("k", maxPointer)
	_, err = Scan(subject, []byte(`{"a":{"`+long+`":{"b":1e400}}}`))
	if p := err.(Faults)[0].Pointer; p != "/a" {
		t.Errorf("pointer of %d bytes, want /a", len(p))
	}
}

func TestNeighboursOfADeepValue(t *testing.T) {
	text := `{"a":` + strings.Repeat(`{"x":[`, 200) + `"\ud800",1e400,{"d":1,"d":2}` + strings.Repeat(`]}`, 200) + `,"b":"\ud800"}`
	_, err := Scan(subject, []byte(text))
	var codes []Code
	for _, f := range err.(Faults) {
		codes = append(codes, f.Code)
	}
	want := []Code{TooDeep, LoneSurrogate, NumberOutOfRange, LoneSurrogate}
	if len(codes) != 4 || codes[0] != want[0] || codes[1] != want[1] || codes[2] != want[2] || codes[3] != want[3] {
		t.Errorf("codes %v, want %v", codes, want)
	}
	if p := err.(Faults)[3].Pointer; p != "/b" {
		t.Errorf("the last pointer is %s, want /b", p)
	}
}

var batch = Batch{Field: "items", Omit: "idempotency_key", Limit: 1000}

func TestItems(t *testing.T) {
	good := ` {"type":"a","idempotency_key":"k1","payload":{"n":1.50}}`
	body := []byte(`{"x":1,"items":[` + good + `,
		{"idempotency_key":"k2","payload":{"a":1,"a":2}},
		{"payload":"\ud800"},
		{"payload":` + "\"\xff\"" + `},
		{"payload":` + nested(100) + `},
		{"payload":` + nested(99) + `},
		[1e400],
		{"payload":{"n":15e-1},"type":"\u0061"},
		7 ],"y":2}`)
	items, err := ScanItems(subject, body, batch)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"", "/payload/a duplicate_key", "/payload lone_surrogate", "/payload invalid_utf8",
		"/payload" + strings.Repeat("/0", 99) + " too_deep", "", "/0 number_out_of_range", "", ""}
	if len(items) != len(want) {
		t.Fatalf("%d items, want %d", len(items), len(want))
	}
	for i, item := range items {
		var got []string
		for _, f := range item.Faults {
			got = append(got, f.Pointer+" "+string(f.Code))
		}
		if strings.Join(got, " ") != want[i] {
			t.Errorf("item %d: %v, want %s", i, got, want[i])
		}
		if (item.Faults == nil) == item.Digest.IsZero() {
			t.Errorf("item %d: digest %s beside faults %v", i, item.Digest, item.Faults)
		}
		if !bytes.Contains(body, item.Raw) || len(item.Raw) == 0 {
			t.Errorf("item %d: raw %s", i, item.Raw)
		}
	}
	if got := string(items[0].Raw); got != strings.TrimSpace(good) {
		t.Errorf("raw = %s", got)
	}
	single, err := Scan(subject, []byte(`{"payload":{"n":1.5},"type":"a"}`))
	if err != nil || items[0].Digest != single || items[7].Digest != single {
		t.Errorf("digests %s and %s, want that of the single body %s (%v)", items[0].Digest, items[7].Digest, single, err)
	}
	if string(items[8].Raw) != "7" {
		t.Errorf("raw = %q", items[8].Raw)
	}
}

func TestItemsOmitAtTheTopOfAnItemOnly(t *testing.T) {
	body := []byte(`{"items":[{"payload":{"idempotency_key":"a"}},{"payload":{"idempotency_key":"b"}},{"payload":{}},{"idempotency_key":"a"},{}]}`)
	items, err := ScanItems(subject, body, batch)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		single, _ := Scan(subject, items[i].Raw)
		if items[i].Digest != single {
			t.Errorf("item %d: a member further inside was left out", i)
		}
	}
	if items[3].Digest != items[4].Digest {
		t.Error("the key was not left out")
	}
	if items, err = ScanItems(subject, body, Batch{Field: "items", Limit: 10}); err != nil || items[3].Digest == items[4].Digest {
		t.Errorf("a member was left out unasked (%v)", err)
	}
	twice := []byte(`{"items":[{"idempotency_key":"a","idempotency_key":"b"},{"idempotency_key":1e400}]}`)
	if items, err = ScanItems(subject, twice, batch); err != nil || items[0].Faults == nil || items[1].Faults == nil {
		t.Errorf("an omitted member was not judged: %v, %v", items, err)
	}
}

func TestItemsWholeBodyFaults(t *testing.T) {
	for _, r := range []refusal{
		{`{"items":[{"a":1},{"b":]}`, InvalidJSON, `/items/1/b`},
		{`{"items":[{"a":1}`, InvalidJSON, `/items/0`},
		{`{"items":[{"a":1}]`, InvalidJSON, `/items`},
		{`{"items":[]}x`, InvalidJSON, ``},
		{`{"items":[],"items":[]}`, DuplicateKey, `/items`},
		{`{"items":[1],"x":{"a":1,"a":1}}`, DuplicateKey, `/x/a`},
		{`{"x":` + nested(100) + `,"items":[]}`, TooDeep, `/x` + strings.Repeat("/0", 99)},
		{`{"items":[` + strings.Repeat(`1,`, 1000) + `1]}`, TooManyItems, `/items`},
		{`{"items":[1,2],"x":"` + "\xff" + `"}`, InvalidUTF8, `/x`},
		{"\ufeff{}", ByteOrderMark, ``},
		{``, InvalidJSON, ``},
	} {
		items, err := ScanItems(subject, []byte(r.text), batch)
		var faults Faults
		if !errors.As(err, &faults) || items != nil {
			t.Errorf("%.60s: %d items, %v", r.text, len(items), err)
			continue
		}
		if len(faults) != 1 || faults[0].Code != r.code || faults[0].Pointer != r.pointer {
			t.Errorf("%.60s: %v, want %s at %q", r.text, faults, r.code, r.pointer)
		}
	}
}

func TestItemsAbsent(t *testing.T) {
	for _, body := range []string{`{}`, `{"x":1}`, `{"items":{}}`, `{"items":null}`, `[1]`, `1`, `{"x":{"items":[1]}}`} {
		if items, err := ScanItems(subject, []byte(body), batch); items != nil || err != nil {
			t.Errorf("%s: %v, %v", body, items, err)
		}
	}
	if items, err := ScanItems(subject, []byte(`{"items":[ ]}`), batch); items == nil || len(items) != 0 || err != nil {
		t.Errorf("empty: %v, %v", items, err)
	}
	if items, err := ScanItems(subject, []byte(`{"items":[`+strings.Repeat("0,", 999)+`0]}`), batch); len(items) != 1000 || err != nil {
		t.Errorf("at the limit: %d, %v", len(items), err)
	}
}
