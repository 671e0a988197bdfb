// Package combine lets concurrent calls of one operation share transactions.
package combine

import (
	"sync"

	"github.com/orbit-run/orbit"
)

// Bounds of one batch.
const (
	MaxItems = 256
	MaxBytes = 4 << 20
)

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
// a lone call never waits. A batch holds one namespace, and namespaces with waiting calls take turns; it has at most MaxItems items and
// MaxBytes bytes, but a single larger call travels alone.
type Combiner[T any] struct {
	// Run executes a batch. It answers through Work and must not keep it.
	Run func(namespaceID orbit.ID, batch []T)

	mu      sync.Mutex
	running bool
	turns   []orbit.ID // namespaces with waiting calls, the next first
	waiting map[orbit.ID][]entry[T]
}

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
	lead := !c.running
	c.running = true
	c.mu.Unlock()
	if lead {
		go c.lead()
	}
	if p, panicked := <-e.done; panicked {
		panic(p)
	}
}

// lead runs batches until nothing waits.
func (c *Combiner[T]) lead() {
	for {
		namespaceID, batch := c.next()
		if len(batch) == 0 {
			return
		}
		c.run(namespaceID, batch)
	}
}

func (c *Combiner[T]) run(namespaceID orbit.ID, batch []entry[T]) {
	defer func() {
		p := recover()
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

// next takes the next namespace's batch; with none it ends the lead.
func (c *Combiner[T]) next() (orbit.ID, []entry[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.turns) == 0 {
		c.running = false
		return orbit.ID{}, nil
	}
	namespaceID := c.turns[0]
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
	batch := queue[:n:n]
	if n == len(queue) {
		delete(c.waiting, namespaceID)
	} else {
		c.waiting[namespaceID] = queue[n:]
		c.turns = append(c.turns, namespaceID)
	}
	return namespaceID, batch
}
