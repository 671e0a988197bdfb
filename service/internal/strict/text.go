package strict

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string and appends its encoding, of which the last length bytes are its text.
func (s *scanner) text() (length int, ok bool) {
	from := s.pos + 1
	to, ascii := skipPlain(s.in, from)
	if to == len(s.in) || s.in[to] != '"' {
		return s.escapedText(from)
	}
	text := s.in[from:to]
	if !ascii && !utf8.Valid(text) {
		s.invalidUTF8()
	}
	s.pos = to + 1
	s.out = append(appendTextHead(s.out, len(text)), text...)
	return len(text), true
}

func appendTextHead(out []byte, length int) []byte {
	switch {
	case length < 10:
		return append(out, 's', '0'+byte(length), ':')
	case length < 100:
		return append(out, 's', '0'+byte(length/10), '0'+byte(length%10), ':')
	}
	out = strconv.AppendInt(append(out, 's'), int64(length), 10)
	return append(out, ':')
}

// escapedText is text for a string that is not plain to its end.
func (s *scanner) escapedText(from int) (length int, ok bool) {
	valid, paired := true, true
	text := s.unescaped[:0]
	for {
		to, ascii := skipPlain(s.in, from)
		segment := s.in[from:to]
		valid = valid && (ascii || utf8.Valid(segment))
		text = append(text, segment...)
		s.pos = to
		if to == len(s.in) {
			return 0, s.syntax("the closing quote of a string")
		}
		if s.in[to] == '"' {
			break
		}
		if s.in[to] != '\\' {
			return 0, s.syntax("an escape instead of a control character")
		}
		r, size, ok := s.escape()
		if !ok {
			return 0, false
		}
		paired = paired && r != loneSurrogate
		text = utf8.AppendRune(text, r) // a lone surrogate becomes U+FFFD
		from = to + size
	}
	s.pos++
	s.unescaped = text
	if !valid {
		s.invalidUTF8()
	}
	if !paired {
		s.fault(s.root, LoneSurrogate, `a \u escape is half of a surrogate pair and its other half is missing`)
	}
	s.out = append(appendTextHead(s.out, len(text)), text...)
	return len(text), true
}

func (s *scanner) invalidUTF8() {
	s.fault(s.root, InvalidUTF8, "a string is not valid UTF-8")
}

const loneSurrogate rune = -1

// escape reads the escape at pos and gives its character and its length in bytes.
func (s *scanner) escape() (r rune, size int, ok bool) {
	if s.pos++; s.pos == len(s.in) {
		return 0, 0, s.syntax("an escaped character")
	}
	switch c := s.in[s.pos]; c {
	case '"', '\\', '/':
		return rune(c), 2, true
	case 'b':
		return '\b', 2, true
	case 'f':
		return '\f', 2, true
	case 'n':
		return '\n', 2, true
	case 'r':
		return '\r', 2, true
	case 't':
		return '\t', 2, true
	case 'u':
		return s.unicodeEscape()
	}
	return 0, 0, s.syntax(`one of " \ / b f n r t u after a backslash`)
}

func (s *scanner) unicodeEscape() (r rune, size int, ok bool) {
	rest := s.in[s.pos+1:]
	for i := range 4 {
		if i == len(rest) || hexValue(rest[i]) < 0 {
			s.pos += 1 + i
			return 0, 0, s.syntax(`four hexadecimal digits after \u`)
		}
	}
	r = hex4(rest)
	if !utf16.IsSurrogate(r) {
		return r, 6, true
	}
	if len(rest) >= 10 && rest[4] == '\\' && rest[5] == 'u' {
		if r = utf16.DecodeRune(r, hex4(rest[6:])); r != utf8.RuneError {
			return r, 12, true
		}
	}
	return loneSurrogate, 6, true
}

// hex4 is negative unless b begins with four hexadecimal digits.
func hex4(b []byte) rune {
	return hexValue(b[0])<<12 | hexValue(b[1])<<8 | hexValue(b[2])<<4 | hexValue(b[3])
}

func hexValue(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c && c <= 'f':
		return rune(c - 'a' + 10)
	case 'A' <= c && c <= 'F':
		return rune(c - 'A' + 10)
	}
	return -1
}

// skipPlain gives the first place from i on of a quote, a backslash or a control character, len(in) if there is none,
// and whether all before it is ASCII.
func skipPlain(in []byte, i int) (end int, ascii bool) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	var seen uint64
	for ; i+8 <= len(in); i += 8 {
		w := binary.LittleEndian.Uint64(in[i:])
		quote, escape := w^(ones*'"'), w^(ones*'\\')
		// The lowest high bit set marks the first such byte; a borrow can only set bits above it.
		stop := ((w-ones*' ')&^w | (quote-ones)&^quote | (escape-ones)&^escape) & highs
		if stop != 0 {
			n := bits.TrailingZeros64(stop)
			seen |= w & (1<<n - 1)
			return i + n/8, seen&highs == 0
		}
		seen |= w
	}
	for ; i < len(in); i++ {
		c := in[i]
		if c < ' ' || c == '"' || c == '\\' {
			break
		}
		seen |= uint64(c)
	}
	return i, seen&highs == 0
}
