// Package combine lets concurrent calls of one operation share transactions.
package combine

import (
	"sync"
	"time"

	"github.com/orbit-run/orbit"
)

// Bounds of one batch.
const (
	MaxItems = 256
	MaxBytes = 4 << 20
)

// maxFull is how many batches may run beside each other because they are full.
const maxFull = 3

// Call is one caller's part of a batch.
type Call[T any] struct {
	NamespaceID orbit.ID
	Items       int // how many items it counts as, at least 1
	Bytes       int // of its content
	Work        T
	// Gone, where it is set, tells that the caller no longer waits and that the call may be dropped unexecuted. Without it
	// the call is executed whether or not its caller is still there.
	Gone func() bool
}

// Combiner gathers calls while a batch runs, and runs what has gathered as the next batch: one batch at a time, so that batches grow with the load and
// a lone call never waits. Beside a full batch, which would not grow by waiting, the next runs at once. A batch that takes longer than Patience, its connection stuck for one, holds up nobody but itself: another goes
// ahead. A batch holds one namespace, and namespaces with waiting calls take turns; it has at most MaxItems items and
// MaxBytes bytes, but a single larger call travels alone.
type Combiner[T any] struct {
	// Run executes a batch. It answers through Work and must not keep it.
	Run func(namespaceID orbit.ID, batch []T)
	// Patience is after how long the next batch no longer waits for one that runs.
	Patience time.Duration

	mu      sync.Mutex
	leader  *leader    // whose turn it is to run batches; nil if nobody's
	turns   []orbit.ID // namespaces with waiting calls, the next first
	waiting map[orbit.ID][]entry[T]
	running int // batches
}

// leader is a goroutine that runs batches for as long as it is the combiner's.
type leader struct{ _ byte }

type entry[T any] struct {
	call Call[T]
	done chan any // what Run panicked with; closed without a value if it did not
}

// Do returns when the call was executed, or dropped because its caller is gone. A panic of Run is one of every caller of its batch.
func (c *Combiner[T]) Do(call Call[T]) {
	e := entry[T]{call, make(chan any, 1)}
	c.mu.Lock()
	if c.waiting == nil {
		c.waiting = map[orbit.ID][]entry[T]{}
	}
	if len(c.waiting[call.NamespaceID]) == 0 {
		c.turns = append(c.turns, call.NamespaceID)
	}
	c.waiting[call.NamespaceID] = append(c.waiting[call.NamespaceID], e)
	c.follow()
	c.mu.Unlock()
	if p, panicked := <-e.done; panicked {
		panic(p)
	}
}

// follow starts a leader if calls wait and nobody leads. The caller holds mu.
func (c *Combiner[T]) follow() {
	if c.leader == nil && len(c.turns) > 0 {
		c.leader = new(leader)
		go c.lead(c.leader)
	}
}

// lead runs batches until nothing waits, or another leads.
func (c *Combiner[T]) lead(self *leader) {
	for {
		namespaceID, batch, full := c.next(self)
		if len(batch) == 0 {
			return
		}
		if full {
			c.pass(self)
		}
		late := time.AfterFunc(c.Patience, func() { c.pass(self) })
		c.run(namespaceID, batch)
		late.Stop()
	}
}

// pass takes the lead from one whose batch need not be waited for, or takes too long.
func (c *Combiner[T]) pass(from *leader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader == from {
		c.leader = nil
		c.follow()
	}
}

func (c *Combiner[T]) run(namespaceID orbit.ID, batch []entry[T]) {
	defer func() {
		p := recover()
		c.mu.Lock()
		c.running--
		c.mu.Unlock()
		for _, e := range batch {
			if p != nil {
				e.done <- p
			}
			close(e.done)
		}
	}()
	works := make([]T, 0, len(batch))
	for _, e := range batch {
		if e.call.Gone == nil || !e.call.Gone() {
			works = append(works, e.call.Work)
		}
	}
	if len(works) > 0 {
		c.Run(namespaceID, works)
	}
}

// next takes the next namespace's batch for the leader, and tells whether it is full and the next may run beside it. With none its lead ends; to one
// that no longer leads it gives none.
func (c *Combiner[T]) next(self *leader) (namespaceID orbit.ID, batch []entry[T], full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != self {
		return orbit.ID{}, nil, false
	}
	if len(c.turns) == 0 {
		c.leader = nil
		return orbit.ID{}, nil, false
	}
	namespaceID = c.turns[0]
	c.turns = c.turns[1:]
	queue := c.waiting[namespaceID]
	n, items, bytes := 0, 0, 0
	for n < len(queue) {
		items, bytes = items+queue[n].call.Items, bytes+queue[n].call.Bytes
		if n > 0 && (items > MaxItems || bytes > MaxBytes) {
			break
		}
		n++
	}
	if n == len(queue) {
		delete(c.waiting, namespaceID)
	} else {
		c.waiting[namespaceID] = queue[n:]
		c.turns = append(c.turns, namespaceID)
	}
	c.running++
	return namespaceID, queue[:n:n], n < len(queue) && c.running < maxFull
}
