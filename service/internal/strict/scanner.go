package strict

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"
)

// scanner reads in once, left to right, and writes the canonical encoding of what it read to out. It does not recurse:
// the nesting of a body costs one byte of memory a level.
type scanner struct {
	in  []byte
	pos int
	out []byte

	open    []byte   // the bracket of each container that is open
	frames  []frame  // what is known of the outermost of them; containers below MaxDepth have none
	members []member // of the objects in frames, an object's together

	root int    // depth and pointers count from this container
	omit string // the member of the root that the encoding leaves out

	faults Faults
	broken *Fault // what ended the scan

	sorted, unescaped []byte // scratch
}

type frame struct {
	array bool
	index int  // array: of the element being read; object: of its member in members, -1 while a name is being read
	body  int  // where in out the contents begin
	first int  // object: where in members its own begin
	plain bool // object: the members so far stand in their order and none is omitted
}

// member is where in out a member's encoding is, and in that its name.
type member struct {
	from, key, keyEnd, to int

	prefix uint64 // the first eight bytes of the name, which settle most comparisons
	omit   bool
}

const memberSize = int(unsafe.Sizeof(member{}))

// value reads one value with all that is in it.
func (s *scanner) value() bool {
	floor := len(s.open)
	for {
		mark := len(s.out)
		var more, ok bool
		switch c := s.peek(); c {
		case '{', '[':
			more, ok = s.enter()
		case '"':
			_, ok = s.text()
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			ok = s.number()
		case 't':
			ok = s.literal("true")
		case 'f':
			ok = s.literal("false")
		case 'n':
			ok = s.literal("null")
		default:
			ok = s.syntax("a value")
		}
		if s.deep() {
			s.out = s.out[:mark]
		}
		for ok && !more {
			if len(s.open) == floor {
				return true
			}
			more, ok = s.next()
		}
		if !ok {
			return false
		}
	}
}

// deep reports whether the innermost container is one too many. Nothing in it is encoded.
func (s *scanner) deep() bool { return len(s.open) > len(s.frames) }

// enter reads the opening bracket of a container, and what stands before its first value. Without more it is empty and closed again.
func (s *scanner) enter() (more, ok bool) {
	bracket := s.in[s.pos]
	s.pos++
	if len(s.open)-s.root == MaxDepth {
		s.fault(s.root, TooDeep, fmt.Sprintf("more than %d objects and arrays inside one another", MaxDepth))
	}
	s.open = append(s.open, bracket)
	if len(s.open)-s.root <= MaxDepth {
		s.out = append(s.out, bracket)
		s.frames = append(s.frames, frame{
			array: bracket == '[', index: -1, body: len(s.out), first: len(s.members), plain: true,
		})
	}
	if c := s.peek(); c == bracket+2 { // in ASCII the closing bracket is two after the opening one
		s.close()
		return false, true
	}
	if bracket == '{' {
		return true, s.name()
	}
	s.element()
	return true, true
}

// next goes on after a value in the innermost container: to the next value, or without more past the closing bracket.
func (s *scanner) next() (more, ok bool) {
	bracket := s.open[len(s.open)-1]
	if bracket == '{' {
		s.endMember()
	}
	switch s.peek() {
	case ',':
		s.pos++
		if bracket == '{' {
			return true, s.name()
		}
		s.element()
		return true, true
	case bracket + 2:
		s.close()
		return false, true
	}
	if bracket == '{' {
		return false, s.syntax("a comma or }")
	}
	return false, s.syntax("a comma or ]")
}

func (s *scanner) element() {
	if !s.deep() {
		s.frames[len(s.frames)-1].index++
	}
}

// name reads the name of a member and the colon after it.
func (s *scanner) name() bool {
	if !s.deep() {
		s.frames[len(s.frames)-1].index = -1
	}
	if s.peek() != '"' {
		return s.syntax("the name of a member in double quotes")
	}
	from := len(s.out)
	length, ok := s.text()
	if !ok {
		return false
	}
	if s.deep() {
		s.out = s.out[:from]
	} else {
		s.beginMember(from, length)
	}
	if s.peek() != ':' {
		return s.syntax("a colon")
	}
	s.pos++
	return true
}

func (s *scanner) beginMember(from, length int) {
	f := &s.frames[len(s.frames)-1]
	m := member{from: from, key: len(s.out) - length, keyEnd: len(s.out)}
	m.prefix = prefix(s.key(m))
	if s.omit != "" && len(s.open)-s.root == 1 && string(s.key(m)) == s.omit {
		m.omit = true
		f.plain = false
	}
	if n := len(s.members); f.plain && n > f.first {
		f.plain = s.compare(s.members[n-1], m) < 0
	}
	f.index = len(s.members)
	s.members = append(s.members, m)
}

func (s *scanner) endMember() {
	if !s.deep() {
		s.members[len(s.members)-1].to = len(s.out)
	}
}

// compare orders members by the bytes of their names.
func (s *scanner) compare(a, b member) int {
	if c := cmp.Compare(a.prefix, b.prefix); c != 0 {
		return c
	}
	return bytes.Compare(s.key(a), s.key(b))
}

// prefix orders names as their bytes do, as far as it goes: what a short name lacks counts as zeros.
func prefix(name []byte) uint64 {
	if len(name) >= 8 {
		return binary.BigEndian.Uint64(name)
	}
	var p uint64
	for i, c := range name {
		p |= uint64(c) << (56 - 8*i)
	}
	return p
}

func (s *scanner) key(m member) []byte { return s.out[m.key:m.keyEnd] }

// memberIs reports whether the innermost container is an object in which the member of that name is being read.
func (s *scanner) memberIs(name string) bool {
	return string(s.key(s.members[len(s.members)-1])) == name
}

func (s *scanner) close() {
	bracket := s.in[s.pos]
	s.pos++
	if !s.deep() {
		top := len(s.frames) - 1
		f := s.frames[top]
		if !f.array {
			s.closeObject(f)
		}
		s.frames = s.frames[:top]
		s.out = append(s.out, bracket)
	}
	s.open = s.open[:len(s.open)-1]
}

// closeObject brings the members into the order of their names' bytes, and finds names that are there twice.
func (s *scanner) closeObject(f frame) {
	members := s.members[f.first:]
	if !f.plain {
		s.sort(members)
		s.findDuplicates(f.first)
		s.sorted = s.sorted[:0]
		for _, m := range members {
			if !m.omit {
				s.sorted = append(s.sorted, s.out[m.from:m.to]...)
			}
		}
		s.out = append(s.out[:f.body], s.sorted...)
	}
	s.members = s.members[:f.first]
}

func (s *scanner) sort(members []member) {
	if len(members) > 16 {
		slices.SortFunc(members, s.compare)
		return
	}
	for i := 1; i < len(members); i++ {
		m, j := members[i], i
		for ; j > 0 && s.compare(m, members[j-1]) < 0; j-- {
			members[j] = members[j-1]
		}
		members[j] = m
	}
}

// findDuplicates tells each name once that is there more than once among the sorted members of the innermost object.
func (s *scanner) findDuplicates(first int) {
	told := false
	for i := first + 1; i < len(s.members); i++ {
		same := s.compare(s.members[i-1], s.members[i]) == 0
		if same && !told {
			s.frames[len(s.frames)-1].index = i
			s.fault(s.root, DuplicateKey, "the object has more than one member of this name")
		}
		told = same
	}
}

func (s *scanner) literal(word string) bool {
	if !bytes.HasPrefix(s.in[s.pos:], []byte(word)) {
		return s.syntax("a value")
	}
	s.pos += len(word)
	s.out = append(s.out, word[0])
	return true
}

// peek skips white space and returns the byte after it, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.in); s.pos++ {
		switch c := s.in[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expectEnd() {
	s.peek()
	if s.pos < len(s.in) {
		s.syntax("the end of the body")
	}
}
