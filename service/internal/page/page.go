// Package page holds what the lists have in common: how many items a page has, and where the next one begins.
package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/fault"
)

const (
	// Default is the number of items where none was asked for.
	Default = 50
	// Max is the most items of a page; asking for more counts as asking for Max.
	Max = 500
)

// Size is the number of items of a page for the limit that was asked for; one below 1 was refused before.
func Size(limit int) int {
	if limit < 1 {
		return Default
	}
	return min(limit, Max)
}

// Walk is one list with its filters. A cursor belongs to the walk it came from: it is bound to it, not secret, and whoever
// forges one only begins his own walk elsewhere.
type Walk [16]byte

// Of names a walk by its operation and the text of its filters, absent ones as empty text.
func Of(operation string, filters ...string) Walk {
	h := sha256.New()
	for _, part := range append([]string{operation}, filters...) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	return Walk(h.Sum(nil))
}

// format is the first byte of a cursor, raised when the meaning of positions changes.
const format = 1

// Cursor is the text for going on after a position, which is not empty.
func (w Walk) Cursor(position []byte) string {
	raw := append(append([]byte{format}, w[:]...), position...)
	return base64.RawURLEncoding.EncodeToString(raw)
}

// Position reads a cursor back. Empty text is the beginning, without a position; what is no cursor of this walk with a position
// of size bytes is cursor_invalid.
func (w Walk) Position(cursor string, size int) ([]byte, error) {
	if cursor == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) != 1+len(w)+size || raw[0] != format || !bytes.Equal(raw[1:1+len(w)], w[:]) {
		return nil, fault.New(fault.CursorInvalid, "this cursor is not one of this list with these filters; begin again without a cursor")
	}
	return raw[1+len(w):], nil
}

// Before reads the cursor of a list that is walked from the greatest id down: ids below the answer come next.
func (w Walk) Before(cursor string) (orbit.ID, error) {
	position, err := w.Position(cursor, len(orbit.ID{}))
	if err != nil {
		return orbit.ID{}, err
	}
	if position == nil {
		return Top(), nil
	}
	return orbit.ID(position), nil
}

// Top is where a walk from the greatest id down begins.
func Top() orbit.ID { return orbit.ID(bytes.Repeat([]byte{0xff}, len(orbit.ID{}))) }
