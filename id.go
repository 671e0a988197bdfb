package orbit

import (
	"bytes"
	"crypto/rand"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// ID names one row: 128 bits, ordered by the time of its making to the millisecond, unguessable in its tail.
//
// An ID made by [NewID] has the layout of a UUIDv7 (RFC 9562), most significant bit first:
//
//	48 bits  Unix time in milliseconds
//	 4 bits  version, 0111
//	12 bits  random
//	 2 bits  variant, 10
//	62 bits  random
//
// The 74 random bits come from the operating system's generator. Two ids of one millisecond have no order between
// them. An ID made elsewhere need not have this layout: nothing reads the time back out of an ID, and every 16-byte
// value is a valid one.
//
// Outside the process an ID is 32 lower-case hexadecimal digits; in the database it is BINARY(16).
type ID [16]byte

// ErrID is what [ParseID] and [ID.UnmarshalText] return for text that is not an id.
var ErrID = errors.New("an id is exactly 32 lower-case hexadecimal digits")

// NewID makes an ID at the time now, which is taken from the caller's clock, never from the host's.
// A time before 1970 counts as 1970.
func NewID(now time.Time) ID {
	var id ID
	rand.Read(id[6:]) // never fails: the runtime ends the process if the system has no randomness
	ms := max(now.UnixMilli(), 0)
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// ParseID reads 32 lower-case hexadecimal digits. Every other text, upper-case and hyphenated forms included, is [ErrID].
func ParseID(s string) (ID, error) {
	var id ID
	if !decodeLowerHex(id[:], s) {
		return ID{}, ErrID
	}
	return id, nil
}

// IsZero reports whether id is the zero value, which names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// Compare orders ids as the database orders BINARY(16): -1, 0 or +1.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// String is the form used outside the process: 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText gives the form of [ID.String].
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText accepts what [ParseID] accepts and leaves id unchanged otherwise.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Value gives the 16 bytes for a BINARY(16) column. The zero ID is 16 zero bytes, not NULL: see [NullID].
func (id ID) Value() (driver.Value, error) { return id[:], nil }

// Scan reads a BINARY(16) column. NULL and every other length are errors.
func (id *ID) Scan(src any) error { return scanBytes("orbit.ID", id[:], src) }

// NullID is an ID or SQL NULL.
type NullID struct {
	ID    ID
	Valid bool // false is NULL
}

// Null gives the NullID that holds id; the zero ID becomes NULL.
func (id ID) Null() NullID { return NullID{ID: id, Valid: !id.IsZero()} }

// Value gives the 16 bytes, or NULL when not Valid.
func (n NullID) Value() (driver.Value, error) {
	if !n.Valid {
		return nil, nil
	}
	return n.ID.Value()
}

// Scan reads a nullable BINARY(16) column.
func (n *NullID) Scan(src any) error {
	*n = NullID{}
	if src == nil {
		return nil
	}
	if err := n.ID.Scan(src); err != nil {
		return err
	}
	n.Valid = true
	return nil
}

// scanBytes copies, because a driver may use the memory of src again for the next row.
func scanBytes(name string, dst []byte, src any) error {
	b, ok := src.([]byte)
	if !ok {
		return fmt.Errorf("%s: cannot scan %T, want []byte", name, src)
	}
	if len(b) != len(dst) {
		return fmt.Errorf("%s: cannot scan %d bytes, want %d", name, len(b), len(dst))
	}
	copy(dst, b)
	return nil
}

// decodeLowerHex fills dst from exactly 2*len(dst) digits and reports whether it could.
func decodeLowerHex(dst []byte, s string) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	for i := range dst {
		hi, ok1 := lowerHexDigit(s[2*i])
		lo, ok2 := lowerHexDigit(s[2*i+1])
		if !ok1 || !ok2 {
			return false
		}
		dst[i] = hi<<4 | lo
	}
	return true
}

func lowerHexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
