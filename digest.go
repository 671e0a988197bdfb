package orbit

import (
	"bytes"
	"database/sql/driver"
	"encoding/hex"
	"errors"
)

// Digest is a SHA-256. In text it is 64 lower-case hexadecimal digits; in the database BINARY(32) or VARBINARY(32).
//
// Where a digest stands for a secret, compare with crypto/subtle and not with ==.
type Digest [32]byte

// ErrDigest is what [ParseDigest] and [Digest.UnmarshalText] return for text that is not a digest.
var ErrDigest = errors.New("a digest is exactly 64 lower-case hexadecimal digits")

// ParseDigest reads 64 lower-case hexadecimal digits. Every other text is [ErrDigest].
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if !decodeLowerHex(d[:], s) {
		return Digest{}, ErrDigest
	}
	return d, nil
}

// IsZero reports whether d is the zero value, which no known input has.
func (d Digest) IsZero() bool { return d == Digest{} }

// Compare orders digests as the database orders their bytes: -1, 0 or +1.
func (d Digest) Compare(other Digest) int { return bytes.Compare(d[:], other[:]) }

// String is 64 lower-case hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText gives the form of [Digest.String].
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText accepts what [ParseDigest] accepts and leaves d unchanged otherwise.
func (d *Digest) UnmarshalText(text []byte) error {
	parsed, err := ParseDigest(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// Value gives the 32 bytes. The zero Digest is 32 zero bytes, not NULL: see [NullDigest].
func (d Digest) Value() (driver.Value, error) { return d[:], nil }

// Scan reads a column of 32 bytes. NULL and every other length are errors.
func (d *Digest) Scan(src any) error { return scanBytes("orbit.Digest", d[:], src) }

// NullDigest is a Digest or SQL NULL.
type NullDigest struct {
	Digest Digest
	Valid  bool // false is NULL
}

// Null gives the NullDigest that holds d; the zero Digest becomes NULL.
func (d Digest) Null() NullDigest { return NullDigest{Digest: d, Valid: !d.IsZero()} }

// Value gives the 32 bytes, or NULL when not Valid.
func (n NullDigest) Value() (driver.Value, error) {
	if !n.Valid {
		return nil, nil
	}
	return n.Digest.Value()
}

// Scan reads a nullable column of 32 bytes.
func (n *NullDigest) Scan(src any) error {
	*n = NullDigest{}
	if src == nil {
		return nil
	}
	if err := n.Digest.Scan(src); err != nil {
		return err
	}
	n.Valid = true
	return nil
}
