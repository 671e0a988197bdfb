package nudge

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/orbit-run/orbit"
)

// A datagram is
//
//	4 bytes   form, "orn1"
//	16 bytes  sender: one life of one socket
//	8 bytes   number, from 1, of this sender's datagrams
//	34 bytes  a hint, 1 to maxHints times: namespace (16), queue (16), n (2, at least 1)
//	16 bytes  HMAC-SHA-256 of all that, under the receiver's key, cut
//
// with integers big-endian. It fits into the least packet that IPv6 carries whole.
const (
	form        = "orn1"
	headBytes   = 4 + 16 + 8
	hintBytes   = 16 + 16 + 2
	macBytes    = 16
	maxDatagram = 1200
	maxHints    = (maxDatagram - headBytes - macBytes) / hintBytes
)

// Key authenticates datagrams to one receiver.
type Key [32]byte

func appendBody(to []byte, sender orbit.ID, number uint64, hints []Hint) []byte {
	to = append(to, form...)
	to = append(to, sender[:]...)
	to = binary.BigEndian.AppendUint64(to, number)
	for _, h := range hints {
		to = append(to, h.NamespaceID[:]...)
		to = append(to, h.QueueID[:]...)
		to = binary.BigEndian.AppendUint16(to, uint16(h.N))
	}
	return to
}

func (k Key) mac(body []byte) []byte {
	m := hmac.New(sha256.New, k[:])
	m.Write(body)
	return m.Sum(nil)[:macBytes]
}

// seal gives a whole datagram, and leaves the body as it is.
func (k Key) seal(body []byte) []byte { return append(body, k.mac(body)...) }

// open gives what a datagram says; ok is false for one that is not whole or not under the key.
func (k Key) open(datagram []byte) (sender orbit.ID, number uint64, hints []Hint, ok bool) {
	size := len(datagram) - headBytes - macBytes
	if size < hintBytes || size > maxHints*hintBytes || size%hintBytes != 0 || string(datagram[:4]) != form {
		return
	}
	body := datagram[:len(datagram)-macBytes]
	if !hmac.Equal(k.mac(body), datagram[len(body):]) {
		return
	}
	sender, number = orbit.ID(body[4:20]), binary.BigEndian.Uint64(body[20:28])
	for rest := body[headBytes:]; len(rest) > 0; rest = rest[hintBytes:] {
		n := int(binary.BigEndian.Uint16(rest[32:34]))
		if n == 0 {
			return sender, number, nil, false
		}
		hints = append(hints, Hint{orbit.ID(rest[:16]), orbit.ID(rest[16:32]), n})
	}
	return sender, number, hints, true
}

// window remembers which numbers of a sender came: the highest, and of the 63 below it each. What is older still counts as come.
type window struct {
	highest uint64
	came    uint64 // bit i: highest - i
}

// accept reports whether a number comes for the first time.
func (w *window) accept(number uint64) bool {
	switch {
	case number > w.highest:
		w.came = w.came<<min(number-w.highest, 64) | 1
		w.highest = number
		return true
	case number == 0 || w.highest-number >= 64 || w.came&(1<<(w.highest-number)) != 0:
		return false
	}
	w.came |= 1 << (w.highest - number)
	return true
}
