package strict

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// tree is a JSON value apart from how it is written. Numbers are exact: digits · 10^power.
type tree struct {
	kind    byte // n t f d s [ {
	text    string
	digits  *big.Int
	power   int
	inside  []tree
	members map[string]tree
}

func drawTree(t *rapid.T, depth int) tree {
	kinds := "ntfdsds[{[{"
	if depth == 0 {
		kinds = "ntfdsds"
	}
	v := tree{kind: rapid.SampledFrom([]byte(kinds)).Draw(t, "kind")}
	switch v.kind {
	case 's':
		v.text = drawText(t)
	case 'd':
		v.digits = new(big.Int).SetInt64(rapid.Int64().Draw(t, "digits"))
		if rapid.Bool().Draw(t, "long") {
			v.digits.Mul(v.digits, v.digits).Mul(v.digits, big.NewInt(rapid.Int64().Draw(t, "more")))
		}
		v.power = rapid.IntRange(-400, 200).Draw(t, "power")
	case '[':
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			v.inside = append(v.inside, drawTree(t, depth-1))
		}
	case '{':
		v.members = map[string]tree{}
		for range rapid.IntRange(0, 20).Draw(t, "members") {
			v.members[drawText(t)] = drawTree(t, depth-1)
		}
	}
	return v
}

func drawText(t *rapid.T) string {
	return rapid.OneOf(
		rapid.StringMatching(`[abAB]{0,3}`), rapid.StringN(0, 12, -1), rapid.SampledFrom([]string{"é", "e\u0301", "\x00", "😀", "\uffff", `"\/`}),
	).Draw(t, "text")
}

// write draws one of the ways to write v.
func (v tree) write(t *rapid.T) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n "}).Draw(t, "space") }
	switch v.kind {
	case 'n', 't', 'f':
		return space() + map[byte]string{'n': "null", 't': "true", 'f': "false"}[v.kind] + space()
	case 's':
		return space() + writeText(t, v.text) + space()
	case 'd':
		return space() + v.writeNumber(t) + space()
	}
	var parts []string
	if v.kind == '[' {
		for _, e := range v.inside {
			parts = append(parts, e.write(t))
		}
		return space() + "[" + space() + strings.Join(parts, ",") + "]"
	}
	names := make([]string, 0, len(v.members))
	for name := range v.members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range rapid.Permutation(names).Draw(t, "order") {
		parts = append(parts, space()+writeText(t, name)+space()+":"+v.members[name].write(t))
	}
	return space() + "{" + space() + strings.Join(parts, ",") + "}"
}

func writeText(t *rapid.T, text string) string {
	if rapid.Bool().Draw(t, "by the library") {
		b, _ := json.Marshal(text)
		return string(b)
	}
	var b strings.Builder
	for _, r := range text {
		short, hasShort := map[rune]string{'"': `\"`, '\\': `\\`, '/': `\/`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}[r]
		mustEscape := r < ' ' || r == '"' || r == '\\'
		switch way := rapid.IntRange(0, 3).Draw(t, "escape"); {
		case way == 0 && hasShort:
			b.WriteString(short)
		case way == 1 || mustEscape:
			units := []rune{r}
			if r > 0xffff {
				units = []rune{0xd800 + (r-0x10000)>>10, 0xdc00 + (r-0x10000)&0x3ff}
			}
			for _, u := range units {
				fmt.Fprintf(&b, rapid.SampledFrom([]string{`\u%04x`, `\u%04X`}).Draw(t, "case"), u)
			}
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

func (v tree) writeNumber(t *rapid.T) string {
	digits, power := new(big.Int).Abs(v.digits).String(), v.power
	sign := ""
	if v.digits.Sign() < 0 || v.digits.Sign() == 0 && rapid.Bool().Draw(t, "minus zero") {
		sign = "-"
	}
	zeros := rapid.IntRange(0, 5).Draw(t, "zeros behind")
	digits, power = digits+strings.Repeat("0", zeros), power-zeros
	digits = strings.Repeat("0", rapid.IntRange(0, 5).Draw(t, "zeros before")) + digits
	point := rapid.IntRange(0, len(digits)).Draw(t, "point")
	integer, fraction := strings.TrimLeft(digits[:point], "0"), digits[point:]
	if integer == "" {
		integer = "0"
	}
	power += len(fraction)
	text := sign + integer
	if fraction != "" {
		text += "." + fraction
	}
	if power != 0 || rapid.Bool().Draw(t, "exponent") {
		format := rapid.SampledFrom([]string{"e%d", "E%d", "e%03d"}).Draw(t, "format")
		if power >= 0 {
			format = rapid.SampledFrom([]string{format, format[:1] + "+" + format[1:]}).Draw(t, "plus")
		}
		text += fmt.Sprintf(format, power)
	}
	return text
}

func (v tree) equal(w tree) bool {
	if v.kind != w.kind || v.text != w.text || len(v.inside) != len(w.inside) || len(v.members) != len(w.members) {
		return false
	}
	if v.kind == 'd' && v.rat().Cmp(w.rat()) != 0 {
		return false
	}
	for i := range v.inside {
		if !v.inside[i].equal(w.inside[i]) {
			return false
		}
	}
	for name := range v.members {
		if other, ok := w.members[name]; !ok || !v.members[name].equal(other) {
			return false
		}
	}
	return true
}

func (v tree) rat() *big.Rat {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(v.power, -v.power))), nil)
	if v.power < 0 {
		return new(big.Rat).SetFrac(v.digits, scale)
	}
	return new(big.Rat).SetInt(new(big.Int).Mul(v.digits, scale))
}

func TestOneValueHasOneDigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawTree(t, 4)
		one, other := v.write(t), v.write(t)
		a, err := Scan(subject, []byte(one))
		if err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		if b, err := Scan(subject, []byte(other)); err != nil || a != b {
			t.Fatalf("%s and %s: digests %s and %s (%v)", one, other, a, b, err)
		}
	})
}

func TestDifferentValuesDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, w := drawTree(t, 3), drawTree(t, 3)
		if rapid.Bool().Draw(t, "near") {
			w = v.change(t)
		}
		one, other := v.write(t), w.write(t)
		a, errA := canonical([]byte(one))
		b, errB := canonical([]byte(other))
		if errA != nil || errB != nil {
			t.Fatalf("%v, %v", errA, errB)
		}
		if (a == b) != v.equal(w) {
			t.Fatalf("%s and %s: encodings %q and %q", one, other, a, b)
		}
		if a != b && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
			t.Fatalf("one encoding begins the other: %q and %q", a, b)
		}
	})
}

// change draws a value that differs from v in one place.
func (v tree) change(t *rapid.T) tree {
	switch {
	case v.kind == 'd' && rapid.Bool().Draw(t, "digit"):
		v.digits = new(big.Int).Add(v.digits, big.NewInt(1))
	case v.kind == 'd' && v.digits.Sign() != 0:
		v.power++
	case v.kind == 's':
		v.text += rapid.SampledFrom([]string{"\x00", " ", "a", "\u0301"}).Draw(t, "suffix")
	case len(v.inside) > 0:
		v.inside = slices.Clone(v.inside)
		i := rapid.IntRange(0, len(v.inside)-1).Draw(t, "at")
		v.inside[i] = v.inside[i].change(t)
	case len(v.members) > 0:
		members := map[string]tree{}
		names := make([]string, 0, len(v.members))
		for name, m := range v.members {
			members[name] = m
			names = append(names, name)
		}
		slices.Sort(names)
		name := rapid.SampledFrom(names).Draw(t, "name")
		members[name] = members[name].change(t)
		v.members = members
	default:
		return tree{kind: '[', inside: []tree{v}}
	}
	return v
}

func TestOmittingAMemberIsNotSendingIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := tree{kind: '{', members: map[string]tree{}}
		for range rapid.IntRange(0, 8).Draw(t, "members") {
			v.members[drawText(t)] = drawTree(t, 2)
		}
		alone, err := Scan(subject, []byte(v.write(t)))
		if err != nil {
			t.Fatal(err)
		}
		v.members[batch.Omit] = drawTree(t, 2)
		items, err := ScanItems(subject, []byte(`{"items":[`+v.write(t)+`]}`), batch)
		if err != nil || len(items) != 1 || items[0].Digest != alone {
			t.Fatalf("%v, %v, want %s", items, err, alone)
		}
	})
}

func TestTextsOfTheOracleAreUTF8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if text := drawTree(t, 2).write(t); !utf8.ValidString(text) || !json.Valid([]byte(text)) {
			t.Fatalf("%q", text)
		}
	})
}
