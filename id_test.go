package orbit

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

var (
	_ sql.Scanner   = (*ID)(nil)
	_ driver.Valuer = ID{}
	_ sql.Scanner   = (*NullID)(nil)
	_ driver.Valuer = NullID{}
	_ sql.Scanner   = (*Digest)(nil)
	_ driver.Valuer = Digest{}
	_ sql.Scanner   = (*NullDigest)(nil)
	_ driver.Valuer = NullDigest{}
)

func TestNewIDLayout(t *testing.T) {
	at := time.UnixMilli(0x0123456789ab).Add(999 * time.Microsecond)
	for range 1000 {
		id := NewID(at)
		if got := id.String(); !strings.HasPrefix(got, "0123456789ab7") {
			t.Fatalf("id %s does not begin with the milliseconds and version 7", got)
		}
		if id[8]>>6 != 0b10 {
			t.Fatalf("id %s has variant %02b", id, id[8]>>6)
		}
	}
}

func TestNewIDIsRandomInEveryOtherBit(t *testing.T) {
	var ones, zeros [16]byte
	for range 200 {
		id := NewID(time.UnixMilli(0))
		for i, b := range id {
			ones[i] |= b
			zeros[i] |= ^b
		}
	}
	free := [16]byte{6: 0x0f, 7: 0xff, 8: 0x3f, 9: 0xff, 10: 0xff, 11: 0xff, 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff}
	for i, mask := range free {
		if both := ones[i] & zeros[i]; both != mask {
			t.Errorf("byte %d: bits that took both values %08b, want %08b", i, both, mask)
		}
	}
}

func TestNewIDOrder(t *testing.T) {
	early, late := NewID(time.UnixMilli(1_700_000_000_000)), NewID(time.UnixMilli(1_700_000_000_001))
	if early.Compare(late) != -1 || late.Compare(early) != 1 || early.Compare(early) != 0 {
		t.Errorf("%s and %s are not in the order of their time", early, late)
	}
	if got := NewID(time.UnixMilli(-5)); !strings.HasPrefix(got.String(), "000000000000") {
		t.Errorf("an id from before 1970 is %s", got)
	}
}

func TestParseID(t *testing.T) {
	const text = "0123456789abcdef0123456789abcdef"
	id, err := ParseID(text)
	if err != nil || id.String() != text {
		t.Fatalf("ParseID(%q) = %s, %v", text, id, err)
	}
	for _, bad := range []string{
		"", text[1:], text + "0", strings.ToUpper(text), "01234567-89ab-cdef-0123-456789abcdef",
		text[:31] + "g", text[:31] + " ", text[:31] + "\x00", text[:30] + "é",
	} {
		if got, err := ParseID(bad); !errors.Is(err, ErrID) || !got.IsZero() {
			t.Errorf("ParseID(%q) = %s, %v", bad, got, err)
		}
	}
}

func TestIDText(t *testing.T) {
	id := NewID(time.UnixMilli(1))
	b, err := json.Marshal(map[ID]ID{id: id})
	if want := `{"` + id.String() + `":"` + id.String() + `"}`; err != nil || string(b) != want {
		t.Fatalf("Marshal = %s, %v, want %s", b, err, want)
	}
	var back map[ID]ID
	if err := json.Unmarshal(b, &back); err != nil || back[id] != id {
		t.Fatalf("Unmarshal = %v, %v", back, err)
	}
	kept := id
	if err := kept.UnmarshalText([]byte("x")); !errors.Is(err, ErrID) || kept != id {
		t.Errorf("UnmarshalText of bad text: %s, %v", kept, err)
	}
}

func TestIDColumn(t *testing.T) {
	id := NewID(time.UnixMilli(1))
	v, err := id.Value()
	column, ok := v.([]byte)
	if err != nil || !ok || !bytes.Equal(column, id[:]) {
		t.Fatalf("Value = %v, %v", v, err)
	}
	var back ID
	if err := back.Scan(column); err != nil || back != id {
		t.Fatalf("Scan = %s, %v", back, err)
	}
	column[0] ^= 0xff
	if back != id {
		t.Error("Scan kept the driver's memory")
	}
	for _, bad := range []any{nil, "0123456789abcdef", make([]byte, 15), make([]byte, 17), int64(1)} {
		if err := new(ID).Scan(bad); err == nil {
			t.Errorf("Scan(%#v) succeeded", bad)
		}
	}
}

func TestNullID(t *testing.T) {
	if v, err := (ID{}).Null().Value(); v != nil || err != nil {
		t.Errorf("zero id: %v, %v, want NULL", v, err)
	}
	id := NewID(time.UnixMilli(1))
	v, err := id.Null().Value()
	if err != nil {
		t.Fatal(err)
	}
	n := NullID{ID: NewID(time.UnixMilli(2)), Valid: true}
	if err := n.Scan(v); err != nil || n != id.Null() {
		t.Errorf("Scan = %+v, %v", n, err)
	}
	if err := n.Scan(nil); err != nil || n != (NullID{}) {
		t.Errorf("Scan(nil) = %+v, %v", n, err)
	}
	if err := n.Scan([]byte{1}); err == nil || n.Valid {
		t.Errorf("Scan of one byte = %+v, %v", n, err)
	}
}

func TestDigest(t *testing.T) {
	d := NewToken().Digest()
	parsed, err := ParseDigest(d.String())
	if err != nil || parsed != d || d.IsZero() {
		t.Fatalf("ParseDigest(%s) = %s, %v", d, parsed, err)
	}
	for _, bad := range []string{"", d.String()[1:], strings.ToUpper(strings.Repeat("ab", 32)), d.String() + "00"} {
		if _, err := ParseDigest(bad); !errors.Is(err, ErrDigest) {
			t.Errorf("ParseDigest(%q): %v", bad, err)
		}
	}
	text, _ := d.MarshalText()
	var back Digest
	if err := back.UnmarshalText(text); err != nil || back != d {
		t.Errorf("UnmarshalText(%s) = %s, %v", text, back, err)
	}
	v, _ := d.Value()
	if b, ok := v.([]byte); !ok || len(b) != 32 {
		t.Fatalf("Value = %v", v)
	}
	var column Digest
	if err := column.Scan(v); err != nil || column != d {
		t.Errorf("Scan = %s, %v", column, err)
	}
	if err := column.Scan(make([]byte, 16)); err == nil {
		t.Error("Scan of 16 bytes succeeded")
	}
	var n NullDigest
	if err := n.Scan(v); err != nil || n != d.Null() {
		t.Errorf("NullDigest.Scan = %+v, %v", n, err)
	}
	if err := n.Scan(nil); err != nil || n.Valid {
		t.Errorf("NullDigest.Scan(nil) = %+v, %v", n, err)
	}
	if v, err := (Digest{}).Null().Value(); v != nil || err != nil {
		t.Errorf("zero digest: %v, %v, want NULL", v, err)
	}
}
