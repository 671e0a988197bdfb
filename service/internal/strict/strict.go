// Package strict reads a JSON request body once and says two things about it: whether the body is one that Orbit
// accepts, and the digest of its meaning.
//
// Accepted is what RFC 8259 calls a JSON text, in UTF-8 without a byte order mark, which besides has
//
//   - no lone surrogate among its \u escapes,
//   - no object with two members of one name (names are compared after their escapes are resolved),
//   - at most [MaxDepth] containers inside one another,
//   - no number with more than [MaxDigits] digits or out of range (see [NumberOutOfRange]).
//
// All of it passes MySQL's JSON_VALID, and so does each value inside it.
//
// Broken syntax ends the scan: nothing after it can be judged. The other faults do not, so that one body may report
// several, and one item of a batch may be refused while its neighbours are taken. Invalid UTF-8 outside a string and a
// control character inside one are broken syntax.
//
// The digest is described in docs/digest.md, where other languages find it.
package strict

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/orbit-run/orbit"
)

const (
	// MaxDepth is the number of containers that may stand inside one another, the outermost included.
	MaxDepth = 100
	// MaxDigits is the number of digits that one number may have, those of its exponent included.
	MaxDigits = 1000
	// MaxFaults is the number of faults that are reported for one body or one item, broken syntax not counted; later
	// ones are not recorded.
	MaxFaults = 16
)

// Subject is what a body is sent to. The digest covers it, so that one body sent to two operations has two digests.
type Subject struct {
	Operation string // the operationId
	Path      string // the path with its ids filled in, without a query
}

// NoBody is the digest of a request that has no body at all. It differs from that of every body.
func (subject Subject) NoBody() orbit.Digest {
	return sha256.Sum256(append(subject.begin(nil), ']'))
}

// Scan judges one body and digests it. The error is nil or a [Faults]; with an error the digest is zero.
// An empty body is a syntax fault: where a body may be left out, the caller asks [Subject.NoBody].
func Scan(subject Subject, body []byte) (orbit.Digest, error) {
	s := begin(body)
	defer s.end()
	s.out = subject.begin(s.out)
	if s.value() {
		s.expectEnd()
	}
	if faults := s.verdict(); faults != nil {
		return orbit.Digest{}, faults
	}
	return sha256.Sum256(append(s.out, ']')), nil
}

// Batch says where in a body the items are.
type Batch struct {
	Field string // the member of the outermost object that holds the array of items
	Omit  string // a member of each item that its digest leaves out, though it is judged like the others; "" for none
	Limit int    // more items than this are a fault of the whole body
}

// Item is one element of a batch.
type Item struct {
	Raw    []byte       // its bytes in the body, not copied
	Digest orbit.Digest // what Scan gives for the item without the omitted member; zero if there are Faults
	Faults Faults       // nil if the item is accepted; pointers begin at the item
}

// ScanItems judges the body of a batch: the items one by one, and the rest of the body.
//
// An item's depth is counted from the item, so that it is accepted in a batch exactly when it is accepted alone.
// The error is nil or a [Faults] and concerns the whole body: broken syntax anywhere, a fault outside the items, too
// many items. If the body is not an object, or has no array under batch.Field, there are no items and that is no
// fault: the shape of a request is judged elsewhere. An empty array gives an empty slice that is not nil.
func ScanItems(subject Subject, body []byte, batch Batch) ([]Item, error) {
	s := begin(body)
	defer s.end()
	items, ok := s.envelope(subject, batch)
	if ok {
		s.expectEnd()
	}
	if faults := s.verdict(); faults != nil {
		return nil, faults
	}
	return items, nil
}

func (s *scanner) envelope(subject Subject, batch Batch) (items []Item, ok bool) {
	if s.peek() != '{' {
		return nil, s.value()
	}
	more, ok := s.enter()
	for more && ok {
		if s.memberIs(batch.Field) && s.peek() == '[' {
			items, ok = s.items(subject, batch)
		} else {
			ok = s.value()
		}
		if ok {
			more, ok = s.next()
		}
	}
	return items, ok
}

func (s *scanner) items(subject Subject, batch Batch) ([]Item, bool) {
	outside := s.faults
	items, count := make([]Item, 0, 16), 0
	more, ok := s.enter()
	for more && ok {
		var item Item
		if item, ok = s.item(subject, batch.Omit); !ok {
			break
		}
		if count++; count <= batch.Limit {
			items = append(items, item)
		}
		more, ok = s.next()
	}
	s.faults = outside
	if ok && count > batch.Limit {
		s.fault(0, TooManyItems, fmt.Sprintf("there are %d items; at most %d may be sent at once", count, batch.Limit))
	}
	return items, ok
}

func (s *scanner) item(subject Subject, omit string) (Item, bool) {
	s.peek()
	from, mark := s.pos, len(s.out)
	s.faults, s.root, s.omit = nil, len(s.open), omit
	s.out = subject.begin(s.out)
	ok := s.value()
	item := Item{Raw: s.in[from:s.pos], Faults: s.faults}
	if ok && item.Faults == nil {
		item.Digest = sha256.Sum256(append(s.out[mark:], ']'))
	}
	s.out = s.out[:mark]
	s.faults, s.root, s.omit = nil, 0, ""
	return item, ok
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// keepBuffer bounds what a pooled scanner holds on to after it met a huge body.
const keepBuffer = 1 << 20

func begin(body []byte) *scanner {
	s := scanners.Get().(*scanner)
	s.in = body
	return s
}

func (s *scanner) end() {
	if cap(s.out)+cap(s.sorted)+cap(s.unescaped)+cap(s.open)+cap(s.members)*memberSize > keepBuffer {
		return
	}
	*s = scanner{
		out: s.out[:0], sorted: s.sorted[:0], unescaped: s.unescaped[:0],
		members: s.members[:0], frames: s.frames[:0], open: s.open[:0],
	}
	scanners.Put(s)
}
