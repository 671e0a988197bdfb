package strict

import (
	"bytes"
	"fmt"
	"math/big"
	"strconv"
)

// decimal is a number in the parts in which it is written.
type decimal struct {
	negative         bool
	integer          []byte
	fraction         []byte
	exponent         []byte // digits only
	negativeExponent bool
}

// number reads a number and appends its encoding: the digits without zeros at either end, and the power of ten.
func (s *scanner) number() bool {
	var d decimal
	if s.in[s.pos] == '-' {
		d.negative = true
		s.pos++
	}
	if d.integer = s.digits(); len(d.integer) == 0 {
		return s.syntax("a digit")
	}
	if d.integer[0] == '0' && len(d.integer) > 1 {
		s.pos -= len(d.integer) - 1
		return s.syntax("no digit after a leading zero")
	}
	if !s.at('.') && !s.at('e') && !s.at('E') && len(d.integer) < maxPoint && d.integer[0] != '0' {
		s.out = d.appendInteger(s.out)
		return true
	}
	if s.at('.') {
		s.pos++
		if d.fraction = s.digits(); len(d.fraction) == 0 {
			return s.syntax("a digit after the decimal point")
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		if s.at('-') || s.at('+') {
			d.negativeExponent = s.in[s.pos] == '-'
			s.pos++
		}
		if d.exponent = s.digits(); len(d.exponent) == 0 {
			return s.syntax("a digit in the exponent")
		}
	}
	if n := len(d.integer) + len(d.fraction) + len(d.exponent); n > MaxDigits {
		s.fault(s.root, NumberTooLong, fmt.Sprintf("the number has %d digits; at most %d are accepted", n, MaxDigits))
		return true
	}
	var ok bool
	if s.out, ok = d.appendTo(s.out); !ok {
		s.fault(s.root, NumberOutOfRange, "the number is outside the range of a double (about ±1.797e308)")
	}
	return true
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.in) && s.in[s.pos] == c }

func (s *scanner) digits() []byte {
	from := s.pos
	for s.pos < len(s.in) && s.in[s.pos]-'0' <= 9 {
		s.pos++
	}
	return s.in[from:s.pos]
}

// appendInteger is appendTo for what most numbers are: an integer, not zero and in range.
func (d *decimal) appendInteger(out []byte) []byte {
	out = append(out, 'd')
	if d.negative {
		out = append(out, '-')
	}
	end := len(d.integer)
	if d.integer[end-1] != '0' {
		return append(append(out, d.integer...), "e0;"...)
	}
	for d.integer[end-1] == '0' {
		end--
	}
	out = append(append(out, d.integer[:end]...), 'e')
	out = strconv.AppendInt(out, int64(len(d.integer)-end), 10)
	return append(out, ';')
}

// appendTo appends the encoding and reports whether the number is in range.
func (d *decimal) appendTo(out []byte) ([]byte, bool) {
	out = append(out, 'd')
	head := len(out)
	if d.negative {
		out = append(out, '-')
	}
	from := len(out)
	out = append(out, bytes.TrimLeft(d.integer, "0")...)
	if len(out) == from {
		out = append(out, bytes.TrimLeft(d.fraction, "0")...)
	} else {
		out = append(out, d.fraction...)
	}
	written := len(out) - from
	if written == 0 {
		return append(out[:head], "0e0;"...), d.powerOfTen(0).small(maxPower)
	}
	for out[len(out)-1] == '0' {
		out = out[:len(out)-1]
	}
	digits := out[from:]
	power := d.powerOfTen(written - len(digits))
	out = power.appendTo(append(out, 'e'))
	return append(out, ';'), d.inRange(digits, written, power)
}

// The number 0.d1d2d3… · 10^maxPoint is in range while d1d2d3… sorts before maxDigits.
const (
	maxPower  = 308
	maxPoint  = 309
	maxDigits = "17976931348623"
	maxDouble = "17976931348623157"
)

func (d *decimal) inRange(digits []byte, written int, power power) bool {
	if len(d.integer) >= maxPoint && (len(d.integer) > maxPoint || string(d.integer) >= maxDigits) {
		return false
	}
	if power.small(maxPoint - len(digits) - 1) {
		return true
	}
	if !power.small(maxPoint - len(digits)) {
		return false
	}
	return string(digits) < maxDigits || string(digits) == maxDouble && written == len(digits)
}

// power is a power of ten. A written exponent may have almost a thousand digits, hence huge.
type power struct {
	value int64
	huge  *big.Int // instead of value, if not nil
}

// powerOfTen is the exponent as written, less the fraction's digits, plus the zeros cut from the end.
func (d *decimal) powerOfTen(cut int) power {
	shift := int64(cut - len(d.fraction))
	exponent := bytes.TrimLeft(d.exponent, "0")
	if len(exponent) > 18 {
		huge, _ := new(big.Int).SetString(string(exponent), 10)
		if d.negativeExponent {
			huge.Neg(huge)
		}
		return power{huge: huge.Add(huge, big.NewInt(shift))}
	}
	var value int64
	for _, c := range exponent {
		value = value*10 + int64(c-'0')
	}
	if d.negativeExponent {
		value = -value
	}
	return power{value: value + shift}
}

// small reports whether the power is at most limit.
func (p power) small(limit int) bool {
	if p.huge != nil {
		return p.huge.Sign() < 0
	}
	return p.value <= int64(limit)
}

func (p power) appendTo(out []byte) []byte {
	if p.huge != nil {
		return p.huge.Append(out, 10)
	}
	return strconv.AppendInt(out, p.value, 10)
}
