package nudge

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orbit-run/orbit"
)

// end is a running socket whose hints can be waited for.
type end struct {
	*Socket
	hints   chan Hint
	refused atomic.Int64
}

func start(t *testing.T) *end {
	t.Helper()
	e := &end{hints: make(chan Hint, 10_000)}
	e.Socket = New(loopback(t), func(h Hint) { e.hints <- h }, func(o Outcome) {
		if o == Refused {
			e.refused.Add(1)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		e.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-over })
	return e
}

func loopback(t *testing.T) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (e *end) peer() Peer {
	return Peer{e.conn.LocalAddr().(*net.UDPAddr).AddrPort(), e.Key()}
}

func (e *end) want(t *testing.T, want Hint) {
	t.Helper()
	select {
	case got := <-e.hints:
		if got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no hint came")
	}
}

func hint(queue byte, n int) Hint {
	return Hint{NamespaceID: orbit.ID{1}, QueueID: orbit.ID{2, queue}, N: n}
}

func TestAHintReachesEachPeerAndNobodyElse(t *testing.T) {
	a, b, c, stranger := start(t), start(t), start(t), start(t)
	a.SetPeers([]Peer{b.peer(), c.peer()})
	a.Send(hint(1, 3))
	b.want(t, hint(1, 3))
	c.want(t, hint(1, 3))
	a.SetPeers([]Peer{stranger.peer()})
	a.Send(hint(2, 1))
	stranger.want(t, hint(2, 1))
	if len(b.hints)+len(c.hints)+len(a.hints)+len(stranger.hints) != 0 {
		t.Fatal("somebody got more than its hints")
	}
}

func TestAHintAboutNobodyIsNotKept(t *testing.T) {
	a, b := start(t), start(t)
	a.Send(hint(1, 3))
	a.SetPeers([]Peer{b.peer()})
	a.Send(hint(2, 1))
	b.want(t, hint(2, 1))
}

func TestHintsOfManyQueuesAreGatheredAndAddedUp(t *testing.T) {
	b := start(t)
	a := New(loopback(t), func(Hint) {}, nil) // does not run yet, so that all hints gather
	a.SetPeers([]Peer{b.peer()})
	want := map[Hint]bool{}
	for i := range 100 {
		a.Send(hint(byte(i), 1))
		a.Send(hint(byte(i), i))
		want[hint(byte(i), 1+i)] = true
	}
	a.Send(hint(200, 60_000))
	a.Send(hint(200, 60_000))
	want[hint(200, maxN)] = true
	a.flush()
	if sent, full := a.number, uint64(100/maxHints+1); sent != full {
		t.Errorf("%d datagrams, want %d", sent, full)
	}
	for range len(want) {
		select {
		case got := <-b.hints:
			if !want[got] {
				t.Errorf("%+v was not sent", got)
			}
			delete(want, got)
		case <-time.After(10 * time.Second):
			t.Fatalf("%d hints did not come", len(want))
		}
	}
}

func TestWhatWaitsToBeSentIsBounded(t *testing.T) {
	dropped := 0
	a := New(loopback(t), func(Hint) {}, func(o Outcome) {
		if o == Dropped {
			dropped++
		}
	})
	a.SetPeers([]Peer{{Key: a.Key()}})
	for i := range MaxPending + 5 {
		a.Send(Hint{NamespaceID: orbit.ID{1, byte(i), byte(i >> 8)}, N: 1})
	}
	a.Send(Hint{NamespaceID: orbit.ID{1}, N: 1}) // has its place
	if len(a.pending) != MaxPending || dropped != 5 {
		t.Fatalf("%d wait and %d were dropped, want %d and 5", len(a.pending), dropped, MaxPending)
	}
	a.SetPeers(make([]Peer, MaxPeers+1))
	if len(a.peers) != MaxPeers {
		t.Fatalf("%d peers", len(a.peers))
	}
}

func TestPeersThatWereNotNamedForLongAreNotSentTo(t *testing.T) {
	a, b := start(t), start(t)
	a.SetPeers([]Peer{b.peer()})
	a.mu.Lock()
	a.until = time.Now().Add(-time.Second)
	a.pending[queue{orbit.ID{1}, orbit.ID{2}}] = 1
	a.mu.Unlock()
	if _, peers := a.take(); len(peers) != 0 {
		t.Fatalf("%d peers of an old list", len(peers))
	}
	a.SetPeers([]Peer{b.peer()})
	a.Send(hint(1, 1))
	b.want(t, hint(1, 1))
}

// What is not whole, not under the key, or not new does nothing. The genuine hint at the end shows that all before it was looked at.
func TestFalseDatagramsDoNothing(t *testing.T) {
	b := start(t)
	stranger := loopback(t)
	send := func(datagram []byte) {
		t.Helper()
		if _, err := stranger.WriteToUDPAddrPort(datagram, b.peer().Address); err != nil {
			t.Fatal(err)
		}
	}
	sender := orbit.ID{7}
	whole := func(number uint64, hints ...Hint) []byte { return b.key.seal(appendBody(nil, sender, number, hints)) }
	send(whole(1, hint(1, 1)))
	b.want(t, hint(1, 1))

	genuine := whole(2, hint(2, 1))
	flipped := func(i int) []byte {
		d := bytes.Clone(genuine)
		d[i] ^= 1
		return d
	}
	many := make([]Hint, maxHints+1)
	for i := range many {
		many[i] = hint(3, 1)
	}
	bad := [][]byte{
		nil, {0}, bytes.Repeat([]byte{'x'}, maxDatagram), bytes.Repeat([]byte{'x'}, 9000),
		genuine[:len(genuine)-1], genuine[:headBytes+macBytes], append(bytes.Clone(genuine), 0),
		whole(3), whole(3, many...), whole(3, hint(3, 0)), whole(0, hint(3, 1)),
		whole(1, hint(1, 1)), // again
		Key{9}.seal(appendBody(nil, sender, 3, []Hint{hint(3, 1)})),
	}
	for i := range genuine {
		bad = append(bad, flipped(i))
	}
	for _, d := range bad {
		send(d)
	}
	send(genuine)
	b.want(t, hint(2, 1))
	if got := b.refused.Load(); got != int64(len(bad)) || len(b.hints) != 0 {
		t.Fatalf("%d datagrams were refused, want %d, and %d hints more came", got, len(bad), len(b.hints))
	}
}

func TestAWindowTakesEachNumberOnce(t *testing.T) {
	w := &window{}
	var got []bool
	for _, n := range []uint64{0, 3, 1, 3, 2, 1, 64, 1, 70, 7, 6, 70, 1 << 40, 70, 1<<40 - 63, 1<<40 - 64} {
		got = append(got, w.accept(n))
	}
	want := []bool{false, true, true, false, true, false, true, false, true, true, false, false, true, false, true, false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func FuzzOpen(f *testing.F) {
	key := Key{1}
	f.Add(key.seal(appendBody(nil, orbit.ID{7}, 1, []Hint{hint(1, 1), hint(2, 9)})))
	f.Add([]byte(form))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		sender, number, hints, ok := key.open(datagram)
		if !ok {
			return
		}
		if again := key.seal(appendBody(nil, sender, number, hints)); !bytes.Equal(again, datagram) {
			t.Fatalf("%x was opened as %x", datagram, again)
		}
	})
}
