package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"
)

// encoding/json agrees with the scanner on syntax, but for three things: it ends at 10,000 levels where the scanner
// goes on; it skips a byte that is not UTF-8 inside a string as the scanner does, and says nothing; and it decodes
// what the other codes refuse. So: broken syntax here is broken syntax there and the reverse, an accepted text has
// the encoding that the plain reference gives it, and every refusal for another reason has its reason.
func FuzzScan(f *testing.F) {
	for _, v := range handDerived {
		for _, text := range v.texts {
			f.Add([]byte(text))
		}
	}
	for _, r := range refusals {
		if len(r.text) < 2000 {
			f.Add([]byte(r.text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, faults := canonical(text)
		if faults == nil {
			want, err := reference(text)
			if err != nil || got != want {
				t.Fatalf("%q: %q, want %q (%v)", text, got, want, err)
			}
			if !utf8.Valid(text) {
				t.Fatalf("%q: accepted and not UTF-8", text)
			}
			again, faults := canonical(spaced(t, text))
			if faults != nil || again != got {
				t.Fatalf("%q: %q with spaces, %q without (%v)", text, again, got, faults)
			}
			return
		}
		broken := false
		for _, fault := range faults {
			broken = broken || fault.Code == InvalidJSON || fault.Code == ByteOrderMark
		}
		if broken == json.Valid(text) {
			t.Fatalf("%q: %v, and encoding/json says %t", text, faults, json.Valid(text))
		}
	})
}

func spaced(t *testing.T, text []byte) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, text, " ", "\t"); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Whatever surrounds it, an item is judged and digested as it is alone.
func FuzzScanItems(f *testing.F) {
	for _, v := range handDerived {
		for _, text := range v.texts {
			f.Add([]byte(text))
		}
	}
	for _, r := range refusals {
		if len(r.text) < 2000 {
			f.Add([]byte(r.text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		alone, errAlone := Scan(subject, text)
		var faults Faults
		errors.As(errAlone, &faults)
		if len(faults) > 0 {
			if last := faults[len(faults)-1].Code; last == InvalidJSON || last == ByteOrderMark {
				return
			}
		}
		body := append([]byte(`{"items":[{"a":1},`), text...)
		body = append(body, `,{"b":[2]}],"more":true}`...)
		items, err := ScanItems(subject, body, Batch{Field: "items", Limit: 3})
		if err != nil || len(items) != 3 {
			t.Fatalf("%q: %d items, %v", text, len(items), err)
		}
		if items[1].Digest != alone || !bytes.Equal(items[1].Raw, bytes.Trim(text, " \t\r\n")) {
			t.Fatalf("%q: raw %q, digest %s, alone %s", text, items[1].Raw, items[1].Digest, alone)
		}
		if len(items[1].Faults) != len(faults) || items[0].Faults != nil || items[2].Faults != nil {
			t.Fatalf("%q: faults %v, alone %v", text, items[1].Faults, faults)
		}
		for i, fault := range faults {
			if items[1].Faults[i] != fault {
				t.Fatalf("%q: fault %v, alone %v", text, items[1].Faults[i], fault)
			}
		}
		for i, want := range map[int]string{0: `{"a":1}`, 2: `{"b":[2]}`} {
			if digest, _ := Scan(subject, []byte(want)); items[i].Digest != digest || string(items[i].Raw) != want {
				t.Fatalf("%q: its neighbour became %q", text, items[i].Raw)
			}
		}
	})
}
