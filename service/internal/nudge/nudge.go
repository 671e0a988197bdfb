// Package nudge carries hints from replica to replica in UDP datagrams: so many tasks of a queue became ready.
package nudge

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/orbit-run/orbit"
)

// Hint says that N tasks of a queue became ready.
type Hint struct {
	NamespaceID, QueueID orbit.ID
	N                    int
}

// Peer is a replica that hints are sent to, under its key.
type Peer struct {
	Address netip.AddrPort
	Key     Key
}

// Outcome is what became of datagrams or hints, for counting.
type Outcome string

const (
	Sent     Outcome = "sent"     // a datagram to a peer
	Unsent   Outcome = "unsent"   // one that the system did not take
	Dropped  Outcome = "dropped"  // a hint: more queues waited to be told than MaxPending
	Received Outcome = "received" // a datagram that was heeded
	Refused  Outcome = "refused"  // one that is not whole, not under the key, or not new
	Limited  Outcome = "limited"  // one above the rate that is looked at
)

// Bounds.
const (
	// MaxPeers is to how many replicas hints are sent; of more, any.
	MaxPeers = 64
	// MaxPending is how many queues may wait to be told of.
	MaxPending = 1024
	// maxN is the largest number in a hint.
	maxN = 1<<16 - 1
	// gathering is how long hints wait for others after a datagram has been sent; the first is sent at once.
	gathering = 2 * time.Millisecond
	// peersLife is for how long a list of peers is believed.
	peersLife = 10 * time.Second
	// receiveRate bounds the datagrams a second that are looked at, whoever sends them.
	receiveRate = 20_000
	// maxSenders bounds the senders whose numbers are remembered; of more, that of the one longest silent is forgotten.
	maxSenders = 256
)

// Socket sends hints to peers and receives theirs.
//
// A hint may be lost, late, out of order, or for nothing: it costs its receiver at most a look that finds nothing, and its absence at most
// the time until the receiver looks by itself. Whoever does not know a socket's key can make it do nothing but verify and drop; one
// that copies datagrams can at most deliver each once. Whoever reads the keys, which are in the database, can cause needless looks, and
// nothing else. No method blocks on the network, and everything that is kept is bounded.
type Socket struct {
	conn     *net.UDPConn
	key      Key
	received func(Hint)
	counted  func(Outcome)

	sender  orbit.ID // names this socket's life; random
	due     chan struct{}
	mu      sync.Mutex
	pending map[queue]int
	peers   []Peer
	until   time.Time // the peers are believed

	number  uint64 // of the last datagram; of the writing goroutine alone
	limit   *rate.Limiter
	senders *lru.Cache[orbit.ID, *window] // of the reading goroutine alone
}

type queue struct{ namespaceID, id orbit.ID }

// New takes over a connection. Received gets each hint that comes, from one goroutine; it must not block. Counted, which may be nil, is told
// what becomes of datagrams.
func New(conn *net.UDPConn, received func(Hint), counted func(Outcome)) *Socket {
	if counted == nil {
		counted = func(Outcome) {}
	}
	senders, err := lru.New[orbit.ID, *window](maxSenders)
	if err != nil {
		panic(err) // only a size below 1 is an error
	}
	s := &Socket{conn: conn, received: received, counted: counted, due: make(chan struct{}, 1), pending: map[queue]int{},
		limit: rate.NewLimiter(receiveRate, receiveRate/10), senders: senders}
	_, _ = rand.Read(s.key[:]) // it never fails
	_, _ = rand.Read(s.sender[:])
	return s
}

// Key is what datagrams to this socket are authenticated with; another for each socket.
func (s *Socket) Key() Key { return s.key }

// SetPeers replaces the list of who is told. It must come again, the same or not, before peersLife is over.
func (s *Socket) SetPeers(peers []Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers = peers[:min(len(peers), MaxPeers)]
	s.until = time.Now().Add(peersLife) //nolint:forbidigo // a stopwatch
}

// Send has peers told soon. It never blocks.
func (s *Socket) Send(h Hint) {
	if h.N < 1 || !s.add(h) {
		return
	}
	select {
	case s.due <- struct{}{}:
	default:
	}
}

func (s *Socket) add(h Hint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.peers) == 0 {
		return false
	}
	k := queue{h.NamespaceID, h.QueueID}
	if s.pending[k] == 0 && len(s.pending) == MaxPending {
		s.counted(Dropped)
		return false
	}
	s.pending[k] = min(s.pending[k]+min(h.N, maxN), maxN)
	return true
}

// Run sends and receives until ctx ends, and then closes the connection.
func (s *Socket) Run(ctx context.Context) {
	var reading sync.WaitGroup
	reading.Go(func() { s.read(ctx) })
	s.write(ctx)
	_ = s.conn.Close() // which ends the reading
	reading.Wait()
}

func (s *Socket) write(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.due:
		}
		s.flush()
		pause.Reset(gathering)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// take empties what waits; nobody is told where the list of peers is too old.
func (s *Socket) take() (hints []Hint, peers []Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range s.pending {
		hints = append(hints, Hint{k.namespaceID, k.id, n})
	}
	clear(s.pending)
	if time.Now().After(s.until) { //nolint:forbidigo // a stopwatch
		s.peers = nil
	}
	return hints, s.peers
}

func (s *Socket) flush() {
	hints, peers := s.take()
	buffer := make([]byte, 0, maxDatagram)
	for len(hints) > 0 && len(peers) > 0 {
		n := min(len(hints), maxHints)
		s.number++
		body := appendBody(buffer, s.sender, s.number, hints[:n])
		for _, p := range peers {
			if _, err := s.conn.WriteToUDPAddrPort(p.Key.seal(body), p.Address); err != nil {
				s.counted(Unsent)
			} else {
				s.counted(Sent)
			}
		}
		hints = hints[n:]
	}
}

func (s *Socket) read(ctx context.Context) {
	buffer := make([]byte, maxDatagram+1) // a longer one is cut, and seen to be too long
	for {
		n, _, err := s.conn.ReadFromUDPAddrPort(buffer)
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			select { // a failure that stays must not spin
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		case !s.limit.Allow():
			s.counted(Limited)
		default:
			s.counted(s.receive(buffer[:n]))
		}
	}
}

func (s *Socket) receive(datagram []byte) Outcome {
	sender, number, hints, ok := s.key.open(datagram)
	if !ok {
		return Refused
	}
	w, known := s.senders.Get(sender)
	if !known {
		w = &window{}
		s.senders.Add(sender, w)
	}
	if !w.accept(number) {
		return Refused
	}
	for _, h := range hints {
		s.received(h)
	}
	return Received
}
