package strict

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Code names a kind of fault. Codes are stable.
type Code string

const (
	InvalidJSON   Code = "invalid_json"    // broken syntax; the scan ended here
	ByteOrderMark Code = "byte_order_mark" // the body begins with U+FEFF; the scan ended here
	InvalidUTF8   Code = "invalid_utf8"    // a string holds bytes that are not UTF-8
	LoneSurrogate Code = "lone_surrogate"  // a string escapes half of a surrogate pair
	DuplicateKey  Code = "duplicate_key"   // an object has two members of one name; told once for each name
	TooDeep       Code = "too_deep"        // more than MaxDepth containers inside one another; nothing else is judged in there but syntax, text and numbers
	NumberTooLong Code = "number_too_long" // more than MaxDigits digits

	// NumberOutOfRange: the number, or its integer part alone, is not below 1.7976931348623e308 in magnitude, or it is
	// a zero whose exponent less its fraction digits is above 308. The largest double, 1.7976931348623157e308, is
	// taken if its digits are written without more zeros behind them.
	//
	// It is the range of a double made a little smaller, so that JSON_VALID refuses nothing in it: MySQL rounds on its
	// way, and counts the exponent of a zero.
	NumberOutOfRange Code = "number_out_of_range"

	TooManyItems Code = "too_many_items" // more items than Batch.Limit
)

// Fault is one thing wrong with a body.
type Fault struct {
	Pointer string // RFC 6901, to the value at fault, or to the object where the fault is in a member's name
	Code    Code
	Detail  string // for the person who reads it; quotes nothing of the body but single characters
}

// Faults is what is wrong with a body or an item, in the order in which it was met; never empty.
type Faults []Fault

func (f Faults) Error() string {
	first := f[0].Detail
	if f[0].Pointer != "" {
		first = "at " + f[0].Pointer + ": " + first
	}
	if len(f) == 1 {
		return first
	}
	return fmt.Sprintf("%s (and %d more)", first, len(f)-1)
}

// A pointer longer than this is cut back to a container that holds the value at fault.
const maxPointer = 512

// verdict is nil or what is wrong with the whole body.
func (s *scanner) verdict() error {
	if s.broken != nil {
		s.faults = append(s.faults, *s.broken)
	}
	if s.faults == nil {
		return nil
	}
	return s.faults
}

// fault records what the scan can go on after. The pointer begins at the container numbered from.
func (s *scanner) fault(from int, code Code, detail string) {
	if len(s.faults) < MaxFaults {
		s.faults = append(s.faults, Fault{s.pointer(from), code, detail})
	}
}

// syntax records what ends the scan, and returns false.
func (s *scanner) syntax(expected string) bool {
	if s.pos == 0 && bytes.HasPrefix(s.in, []byte("\ufeff")) {
		s.broken = &Fault{"", ByteOrderMark, "the body begins with a byte order mark; send UTF-8 without one"}
		return false
	}
	detail := fmt.Sprintf("after %d bytes: expected %s, found %s", s.pos, expected, s.found())
	s.broken = &Fault{s.pointer(0), InvalidJSON, detail}
	return false
}

func (s *scanner) found() string {
	if s.pos >= len(s.in) {
		return "the end"
	}
	if c := s.in[s.pos]; ' ' < c && c < 0x7f {
		return string(rune(c))
	} else {
		return fmt.Sprintf("byte 0x%02x", c)
	}
}

// pointer names the value that is being read, from the container numbered from on.
func (s *scanner) pointer(from int) string {
	var p []byte
	for _, f := range s.frames[min(from, len(s.frames)):] {
		mark := len(p)
		if f.array {
			p = strconv.AppendInt(append(p, '/'), int64(f.index), 10)
		} else if f.index >= 0 {
			m := s.members[f.index]
			p = appendPointer(p, s.out[m.key:m.keyEnd])
		} else {
			break
		}
		if len(p) > maxPointer {
			return string(p[:mark])
		}
	}
	return string(p)
}

func appendPointer(p, key []byte) []byte {
	text := strings.ToValidUTF8(string(key), "\ufffd")
	text = strings.ReplaceAll(text, "~", "~0")
	return append(append(p, '/'), strings.ReplaceAll(text, "/", "~1")...)
}
