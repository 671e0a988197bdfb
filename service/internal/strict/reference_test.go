package strict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// reference is the canonical encoding worked out the plain way, on top of encoding/json: a tree, maps, big integers.
// It shares nothing with the scanner and is given accepted texts only.
func reference(text []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return "", err
	}
	if _, err := d.Token(); err != io.EOF {
		return "", fmt.Errorf("more than one value")
	}
	return referenceValue(tree), nil
}

func referenceValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "n"
	case bool:
		return map[bool]string{true: "t", false: "f"}[v]
	case string:
		return fmt.Sprintf("s%d:%s", len(v), v)
	case json.Number:
		return referenceNumber(string(v))
	case []any:
		var b strings.Builder
		for _, e := range v {
			b.WriteString(referenceValue(e))
		}
		return "[" + b.String() + "]"
	case map[string]any:
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(v)) {
			b.WriteString(referenceValue(k) + referenceValue(v[k]))
		}
		return "{" + b.String() + "}"
	}
	panic(fmt.Sprintf("%T", v))
}

func referenceNumber(text string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	power, _ := new(big.Int).SetString("0"+strings.TrimPrefix(exponent, "+"), 10)
	if strings.HasPrefix(exponent, "-") {
		power, _ = new(big.Int).SetString(exponent, 10)
	}
	integer, fraction, _ := strings.Cut(mantissa, ".")
	power.Sub(power, big.NewInt(int64(len(fraction))))
	value, _ := new(big.Int).SetString(integer+fraction, 10)
	if value.Sign() == 0 {
		return "d0e0;"
	}
	ten, rest := big.NewInt(10), new(big.Int)
	for {
		quotient, _ := new(big.Int).QuoRem(value, ten, rest)
		if rest.Sign() != 0 {
			return fmt.Sprintf("d%se%s;", value, power)
		}
		value = quotient
		power.Add(power, big.NewInt(1))
	}
}

// canonical is the scanner's encoding of one text alone.
func canonical(text []byte) (string, Faults) {
	s := begin(text)
	defer s.end()
	if s.value() {
		s.expectEnd()
	}
	if faults := s.verdict(); faults != nil {
		return "", faults.(Faults)
	}
	return string(s.out), nil
}
