package strict

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/orbit-run/orbit"
)

var update = flag.Bool("update", false, "write docs/digest-vectors.json anew")

const vectorFile = "../../../docs/digest-vectors.json"

type vectors struct {
	About    []string         `json:"about"`
	Version  string           `json:"version"`
	Accepted []acceptedVector `json:"accepted"`
	Refused  []refusedVector  `json:"refused"`
}

type acceptedVector struct {
	Name      string `json:"name"`
	Operation string `json:"operation"`
	Path      string `json:"path"`
	Omit      string `json:"omit,omitempty"`
	vectorBody
	Canonical string `json:"canonical_hex,omitempty"`
	Digest    string `json:"digest"`
}

type refusedVector struct {
	Name string `json:"name"`
	Code Code   `json:"code"`
	vectorBody
}

// vectorBody has one member, or none where the request has no body.
type vectorBody struct {
	Text   *string  `json:"body,omitempty"`
	Base64 string   `json:"body_base64,omitempty"`
	Repeat [][2]any `json:"body_repeat,omitempty"`
}

func bodyOf(text string) vectorBody {
	switch {
	case !utf8.ValidString(text):
		return vectorBody{Base64: base64.StdEncoding.EncodeToString([]byte(text))}
	case len(text) > 200:
		return vectorBody{Repeat: runs(text)}
	}
	return vectorBody{Text: &text}
}

// runs writes a long text as parts and how often each stands there.
func runs(text string) [][2]any {
	var parts [][2]any
	for len(text) > 0 {
		unit, times := longestRun(text)
		if n := len(parts); times == 1 && n > 0 && parts[n-1][1] == 1 {
			parts[n-1][0] = parts[n-1][0].(string) + unit
		} else {
			parts = append(parts, [2]any{unit, times})
		}
		text = text[len(unit)*times:]
	}
	return parts
}

func longestRun(text string) (unit string, times int) {
	_, size := utf8.DecodeRuneInString(text)
	unit, times = text[:size], 1
	for width := 1; width <= 8 && width <= len(text); width++ {
		n := 1
		for strings.HasPrefix(text[n*width:], text[:width]) {
			n++
		}
		if n > 8 && n*width > len(unit)*times && utf8.ValidString(text[:width]) {
			unit, times = text[:width], n
		}
	}
	return unit, times
}

func (b vectorBody) bytes(t *testing.T) []byte {
	switch {
	case b.Text != nil:
		return []byte(*b.Text)
	case b.Base64 != "":
		text, err := base64.StdEncoding.DecodeString(b.Base64)
		if err != nil {
			t.Fatal(err)
		}
		return text
	case b.Repeat != nil:
		var text []byte
		for _, part := range b.Repeat {
			text = append(text, strings.Repeat(part[0].(string), int(part[1].(float64)))...)
		}
		return text
	}
	return nil
}

// expectedVectors never asks the scanner: encodings come from the table worked out by hand or from the reference on
// top of encoding/json, digests from crypto/sha256 over a line put together here.
func expectedVectors(t *testing.T) vectors {
	v := vectors{
		About: []string{
			"Test vectors of the request digest; docs/digest.md describes the algorithm.",
			"A body is given as text (body), as base64 where it is not UTF-8 (body_base64), or as a list of texts and how often each stands there (body_repeat); where none is given the request has no body.",
			"canonical_hex is the canonical encoding of the body alone, given where it is short; digest is the SHA-256 of the whole array.",
			"Each refused body has one fault, so that the order in which an implementation looks for faults does not matter.",
		},
		Version: Version,
	}
	add := func(name string, s Subject, omit, text, encoding string) {
		line := fmt.Sprintf("[s15:orbit.digest.v1s%d:%ss%d:%s%s]", len(s.Operation), s.Operation, len(s.Path), s.Path, encoding)
		sum := sha256.Sum256([]byte(line))
		vector := acceptedVector{Name: name, Operation: s.Operation, Path: s.Path, Omit: omit, vectorBody: bodyOf(text), Digest: hex.EncodeToString(sum[:])}
		if len(encoding) <= 200 {
			vector.Canonical = hex.EncodeToString([]byte(encoding))
		}
		if encoding == "" {
			vector.vectorBody = vectorBody{}
		}
		v.Accepted = append(v.Accepted, vector)
	}
	for _, group := range handDerived {
		for i, text := range group.texts {
			add(fmt.Sprintf("%s (%d)", group.name, i+1), subject, "", text, group.encoding)
		}
	}

	task := `{"queue":"mail","type":"mail.send","payload":{"total":129.90,"id":3889108265204450030},"priority":5}`
	encoded := "{s7:payload{s2:idd388910826520445003e1;s5:totald1299e-1;}s8:priorityd5e0;s5:queues4:mails4:types9:mail.send}"
	add("a submitted task", subject, "", task, encoded)
	add("the same task in a batch, its key left out", subject, "idempotency_key", `{"idempotency_key":"k-1",`+task[1:], encoded)
	add("a member left out that is not there", subject, "idempotency_key", task, encoded)
	add("a member is left out at the top only", subject, "idempotency_key", `{"payload":{"idempotency_key":1},"idempotency_key":2}`,
		"{s7:payload{s15:idempotency_keyd1e0;}}")
	add("a member left out by its resolved name", subject, "idempotency_key", `{"\u0069dempotency_key":2}`, "{}")
	add("a member is not left out unasked", subject, "", `{"idempotency_key":"k-1"}`, "{s15:idempotency_keys3:k-1}")
	add("nothing is left out of an array", subject, "a", `[{"a":1}]`, "[{s1:ad1e0;}]")
	add("another operation", Subject{"createQueue", "/v1/queues"}, "", task, encoded)
	add("another path", Subject{"submitTask", "/v1/tasks:batch"}, "", task, encoded)
	add("the border between operation and path", Subject{"submit", "Task/v1/tasks"}, "", task, encoded)
	add("a path beyond ASCII", Subject{"x", "/é"}, "", `{}`, "{}")
	add("no body", Subject{"cancelTask", "/v1/tasks/0123456789abcdef0123456789abcdef:cancel"}, "", "", "")
	add("an empty object is not no body", Subject{"cancelTask", "/v1/tasks/0123456789abcdef0123456789abcdef:cancel"}, "", "{}", "{}")
	add("null is not no body", Subject{"cancelTask", "/v1/tasks/0123456789abcdef0123456789abcdef:cancel"}, "", "null", "n")
	add("operation and path that hold the marks of an encoding", Subject{"s1:a", "]{}"}, "", `1`, "d1e0;")

	for _, long := range []struct{ name, text string }{
		{"an exponent of 999 digits", `1e-` + strings.Repeat("9", 999)},
		{"999 digits behind the point", `0.` + strings.Repeat("7", 999)},
		{"an integer of 309 digits below the limit", `17976931348622` + strings.Repeat("9", 295)},
		{"a fraction of 700 digits", strings.Repeat("1", 300) + `.` + strings.Repeat("2", 700)},
		{"objects 100 deep", strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100)},
		{"a string of 4,000 bytes", `"` + strings.Repeat("任务", 500) + strings.Repeat("mail", 250) + `"`},
		{"a long name", `{"` + strings.Repeat("k", 1000) + `":1,"a":2}`},
		{"an array of 1,000 numbers", `[` + strings.Repeat(`1.0,`, 999) + `1]`},
	} {
		add(long.name, subject, "", long.text, mustReference(t, long.text))
	}
	random := rand.New(rand.NewPCG(4711, 1))
	for i := range 60 {
		text := randomText(random, 4)
		add(fmt.Sprintf("random (%d)", i+1), subject, "", text, mustReference(t, text))
	}

	for i, r := range refusals {
		name := fmt.Sprintf("%s (%d)", strings.ReplaceAll(string(r.code), "_", " "), i+1)
		v.Refused = append(v.Refused, refusedVector{Name: name, Code: r.code, vectorBody: bodyOf(r.text)})
	}
	return v
}

func mustReference(t *testing.T, text string) string {
	encoding, err := reference([]byte(text))
	if err != nil {
		t.Fatalf("%.60s: %v", text, err)
	}
	return encoding
}

func randomText(r *rand.Rand, depth int) string {
	pick := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	space := pick("", "", "", " ", "\n  ")
	kind := r.IntN(9)
	if depth == 0 {
		kind = r.IntN(6)
	}
	switch kind {
	case 0:
		return space + pick("null", "true", "false")
	case 1, 2:
		return space + fmt.Sprintf("%s%d%s%s", pick("", "-"), r.Int64N(1<<(1+r.IntN(62))), pick("", "", ".50", ".0", fmt.Sprintf(".%d", r.Int64N(1<<40))),
			pick("", "", "e3", "E-12", "e+20", "e-300"))
	case 3, 4, 5:
		return space + randomString(r)
	}
	var parts []string
	seen := map[string]bool{}
	for range r.IntN(5) {
		part := randomText(r, depth-1)
		if kind == 8 {
			parts = append(parts, part)
			continue
		}
		name := randomString(r)
		var resolved string
		if err := json.Unmarshal([]byte(name), &resolved); err != nil || seen[resolved] {
			continue
		}
		seen[resolved] = true
		parts = append(parts, space+name+pick("", " ")+":"+part)
	}
	if kind == 8 {
		return space + "[" + strings.Join(parts, space+",") + space + "]"
	}
	return space + "{" + strings.Join(parts, ",") + space + "}"
}

func randomString(r *rand.Rand) string {
	pieces := []string{"a", "b", "queue", "Z", "0", " ", `\n`, `\"`, `\\`, `\/`, "/", `\u0000`, `\u00e9`, "é", "ß", "任", "😀", `\ud83d\ude80`, "\uffff", `\uFFFE`, "\u0301"}
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return `"` + b.String() + `"`
}

func TestVectorFileIsFresh(t *testing.T) {
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	v := expectedVectors(t)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(vectorFile, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/digest-vectors.json is not what this test would write; run it with -update and look at the difference")
	}
	if len(v.Accepted) < 200 || len(v.Refused) < 100 {
		t.Errorf("%d accepted and %d refused vectors", len(v.Accepted), len(v.Refused))
	}
}

func TestVectors(t *testing.T) {
	text, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	for _, vector := range v.Accepted {
		body, s := vector.bytes(t), Subject{vector.Operation, vector.Path}
		digest, faults := s.NoBody(), Faults(nil)
		if body != nil {
			digest, faults = digestOf(t, s, body, vector.Omit)
		}
		if faults != nil || digest.String() != vector.Digest {
			t.Errorf("%s: %s, %v, want %s", vector.Name, digest, faults, vector.Digest)
		}
		if encoding, _ := canonical(body); body != nil && vector.Omit == "" && vector.Canonical != "" && hex.EncodeToString([]byte(encoding)) != vector.Canonical {
			t.Errorf("%s: %q, want %s", vector.Name, encoding, vector.Canonical)
		}
	}
	for _, vector := range v.Refused {
		_, err := Scan(subject, vector.bytes(t))
		if faults, ok := err.(Faults); !ok || faults[0].Code != vector.Code {
			t.Errorf("%s: %v, want %s", vector.Name, err, vector.Code)
		}
	}
}

// digestOf goes through a batch, which is where members are left out.
func digestOf(t *testing.T, s Subject, body []byte, omit string) (orbit.Digest, Faults) {
	t.Helper()
	items, err := ScanItems(s, []byte(`{"items":[`+string(body)+`]}`), Batch{Field: "items", Omit: omit, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if alone, err := Scan(s, body); omit == "" && (err != nil || alone != items[0].Digest) {
		t.Errorf("%.60s: %s alone, %s in a batch (%v)", body, alone, items[0].Digest, err)
	}
	return items[0].Digest, items[0].Faults
}

func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/digest.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	_, after, _ := strings.Cut(page, "```json\n")
	example, _, _ := strings.Cut(after, "\n```")
	digest, err := Scan(subject, []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	encoding, _ := canonical([]byte(example))
	cancel := Subject{"cancelTask", "/v1/tasks/0123456789abcdef0123456789abcdef:cancel"}
	for _, want := range []string{"`" + encoding + "`", "`" + string(subject.begin(nil)) + encoding + "]`", digest.String(),
		"`" + string(cancel.begin(nil)) + "]`", cancel.NoBody().String(), Version} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/digest.md lacks %s", want)
		}
	}
	_, after, _ = strings.Cut(page, "| written | encoding |\n|---|---|\n")
	table, _, _ := strings.Cut(after, "\n\n")
	for _, row := range strings.Split(table, "\n") {
		written, encoding, _ := strings.Cut(strings.Trim(row, "| "), " | ")
		for _, text := range strings.Split(written, ", ") {
			got, faults := canonical([]byte(strings.Trim(text, "`")))
			if want := strings.Trim(encoding, "`"); got != want || faults != nil {
				t.Errorf("%s: %q, %v, and docs/digest.md says %s", text, got, faults, want)
			}
		}
	}
	for _, r := range refusals {
		if !strings.Contains(page, "| `"+string(r.code)+"` |") {
			t.Errorf("docs/digest.md lacks the code %s", r.code)
		}
	}
}
