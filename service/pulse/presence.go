package pulse

import (
	"context"
	"sync"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/platform"
)

const (
	// attendPace is how often life is shown for instances whose claims wait; less often than they would by themselves is not seen.
	attendPace = HeartbeatInterval
	// attendLife is for how long after that an instance is taken to be current.
	attendLife = attendPace + attendPace/2
)

// incarnation is a worker instance as a call says that it is.
type incarnation struct {
	namespaceID, instanceID, actorID orbit.ID
	epoch                            int64
}

func (c *workerCall) incarnation() incarnation {
	return incarnation{c.caller.NamespaceID, c.instanceID, c.caller.ActorID, c.epoch}
}

// presence is the incarnations whose claims wait on this replica, or did a moment ago. A waiting claim is a sign of life: the replica shows it
// for all of them together, and so knows of each that it was current at that moment. Then a heartbeat without attempts has nothing to add, and a
// claim of a queue that is known to be empty nothing to ask. What it knows may be attendLife old: an incarnation that was superseded meanwhile
// learns it that much later, but takes nothing, since every offer and every start is fenced by the rows.
type presence struct {
	mu sync.Mutex
	by map[incarnation]*attendance
}

type attendance struct {
	caller platform.Caller            // of one of its claims
	waits  map[chan struct{}]struct{} // its waiting claims
	shown  time.Time                  // when its life was last shown; zero if never
}

// join registers a waiting claim by its wake-up.
func (p *presence) join(c *claimCall, wake chan struct{}) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.by[c.incarnation()]
	if a == nil {
		a = &attendance{waits: map[chan struct{}]struct{}{}}
		p.by[c.incarnation()] = a
	}
	a.caller = c.caller
	a.waits[wake] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(a.waits, wake)
	}
}

// isCurrent reports whether the incarnation has a waiting claim, and was current a moment ago.
func (p *presence) isCurrent(i incarnation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.by[i]
	return a != nil && len(a.waits) > 0 && time.Since(a.shown) < attendLife //nolint:forbidigo // a stopwatch
}

// waiting gives a call for each incarnation with a waiting claim, and forgets those that have had none for long.
func (p *presence) waiting() []*workerCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	var calls []*workerCall
	for i, a := range p.by {
		switch {
		case len(a.waits) > 0:
			calls = append(calls, &workerCall{caller: a.caller, instanceID: i.instanceID, epoch: i.epoch})
		case time.Since(a.shown) >= attendLife: //nolint:forbidigo // a stopwatch
			delete(p.by, i)
		}
	}
	return calls
}

// attended notes the answer to a call of waiting. A claim of an incarnation that is not current looks again, and is refused.
func (p *presence) attended(c *workerCall, begin time.Time, refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.by[c.incarnation()]
	switch {
	case a == nil:
	case !refused:
		a.shown = begin
	default:
		a.shown = time.Time{}
		for wake := range a.waits {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	}
}

// AttendWaiters shows life for the instances whose claims wait here, in shared transactions, and ends the waiting of those that were superseded or
// closed. It answers for how many it did.
func (s *Service) AttendWaiters(ctx context.Context) (int, error) {
	calls := s.presence.waiting()
	begin := time.Now() //nolint:forbidigo // a stopwatch
	var beating sync.WaitGroup
	failed := make([]error, len(calls))
	for k, c := range calls {
		beating.Go(func() {
			err := s.perform(ctx, s.beats, c)
			if c.superseded || err == nil {
				s.presence.attended(c, begin, c.superseded)
				err = nil
			}
			failed[k] = err
		})
	}
	beating.Wait()
	for _, err := range failed {
		if err != nil {
			return len(calls), err // of those that share a transaction all have the same
		}
	}
	return len(calls), nil
}
