package orbit

import "slices"

// The digits stand in ASCII order, so texts of equal width sort as their numbers do.
const base62Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// appendBase62 writes the big-endian number as exactly width digits; width must be enough for every value of that length.
func appendBase62(dst, number []byte, width int) []byte {
	rest := slices.Clone(number)
	start := len(dst)
	dst = append(dst, make([]byte, width)...)
	for i := len(dst) - 1; i >= start; i-- {
		var remainder uint
		for j, b := range rest {
			remainder = remainder<<8 | uint(b)
			rest[j] = byte(remainder / 62)
			remainder %= 62
		}
		dst[i] = base62Digits[remainder]
	}
	return dst
}

// decodeBase62 fills dst, big-endian, and reports whether s holds base62 digits only and a number that fits.
func decodeBase62(dst []byte, s string) bool {
	clear(dst)
	for i := range len(s) {
		carry, ok := base62Value(s[i])
		if !ok {
			return false
		}
		for j := len(dst) - 1; j >= 0; j-- {
			carry += uint(dst[j]) * 62
			dst[j] = byte(carry)
			carry >>= 8
		}
		if carry != 0 {
			return false
		}
	}
	return true
}

func base62Value(c byte) (uint, bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint(c - '0'), true
	case 'A' <= c && c <= 'Z':
		return uint(c-'A') + 10, true
	case 'a' <= c && c <= 'z':
		return uint(c-'a') + 36, true
	}
	return 0, false
}
