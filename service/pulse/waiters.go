package pulse

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/batch"
	"github.com/orbit-run/orbit/service/internal/loop"
)

// waiters are the long polls of this replica. A wake-up is a hint: a claim that follows it may find nothing, and a poll that gets none finds
// its task by the peek of the backstop.
type waiters struct {
	mu       sync.Mutex
	byQueue  map[batch.Queue]map[*poll]struct{}
	drained  chan struct{}
	draining sync.Once
	// peek has the backstop look: after a hint, since where one came others may have been lost.
	peek *loop.Alarm
	// empty is when the backstop found nothing in a queue, for queues without a hint since. Hinted collects the queues with hints while it
	// looks, and is nil otherwise.
	empty  map[batch.Queue]time.Time
	hinted map[batch.Queue]bool
}

func newWaiters() *waiters {
	return &waiters{byQueue: map[batch.Queue]map[*poll]struct{}{}, drained: make(chan struct{}), peek: loop.NewAlarm(),
		empty: map[batch.Queue]time.Time{}}
}

// poll is a claim that waits. While it is parked somebody who has a task for it may take it, exclusively, and settle it with offers.
type poll struct {
	call    *claimCall
	queues  []batch.Queue
	gone    <-chan struct{} // closed when its caller is
	wake    chan struct{}   // gets one wake-up at a time
	settled chan struct{}   // gets one when who took it is done with it; empty while it is parked
	state   pollState       // guarded by the waiters
}

// A poll looks for tasks itself, is parked, or is taken; it leaves from looking only.
type pollState uint8

const (
	looking pollState = iota
	parked
	taken
)

// wait registers a poll, before it looks for tasks, so that a task that becomes ready in between is not missed.
func (w *waiters) wait(ctx context.Context, call *claimCall) *poll {
	p := &poll{call: call, gone: ctx.Done(), wake: make(chan struct{}, 1), settled: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range call.queues {
		k := batch.Queue{NamespaceID: call.caller.NamespaceID, ID: id}
		p.queues = append(p.queues, k)
		if w.byQueue[k] == nil {
			w.byQueue[k] = map[*poll]struct{}{}
		}
		w.byQueue[k][p] = struct{}{}
	}
	return p
}

func (w *waiters) park(p *poll) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.state = parked
}

// unpark has the poll look for itself again; if it was taken, after who took it is done with it.
func (w *waiters) unpark(p *poll) {
	w.mu.Lock()
	was := p.state
	if was != taken {
		p.state = looking
		select {
		case <-p.settled: // the poll went on for another reason; left there, the next settling would wait for somebody to take it
		default:
		}
	}
	w.mu.Unlock()
	if was == taken {
		<-p.settled
	}
}

// take gives up to n parked polls of a queue to the caller, who settles each.
func (w *waiters) take(k batch.Queue, n int) (polls []*poll) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.byQueue[k] {
		if len(polls) == n {
			break
		}
		select {
		case <-p.gone:
			continue
		default:
		}
		if p.state == parked {
			p.state = taken
			polls = append(polls, p)
		}
	}
	return polls
}

// settle lets a taken poll go on, with the offers that it was given or, without any, to look for itself.
func (w *waiters) settle(p *poll) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.state = looking
	p.settled <- struct{}{}
}

func (w *waiters) leave(p *poll) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range p.queues {
		delete(w.byQueue[k], p)
		if len(w.byQueue[k]) == 0 {
			delete(w.byQueue, k)
		}
	}
}

// notify wakes up to n polls of a queue, and gives for how many of the n there was none to wake.
func (w *waiters) notify(k batch.Queue, n int) (left int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.empty, k)
	if w.hinted != nil {
		w.hinted[k] = true
	}
	left = n
	for p := range w.byQueue[k] {
		if left == 0 {
			break
		}
		select {
		case p.wake <- struct{}{}:
			left--
		default:
		}
	}
	if left < n {
		w.peek.In(peekPace)
	}
	return left
}

// beginPeek lists what is waited for.
func (w *waiters) beginPeek() []batch.Queue {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hinted = map[batch.Queue]bool{}
	queues := make([]batch.Queue, 0, len(w.byQueue))
	for k := range w.byQueue {
		queues = append(queues, k)
	}
	return queues
}

// endPeek takes what was found in queues that beginPeek listed. Those without a task are known to be empty, for a while and until a hint comes.
func (w *waiters) endPeek(looked, claimable []batch.Queue, begin time.Time) {
	for _, q := range claimable {
		w.notify(q, txRows)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, at := range w.empty {
		if begin.Sub(at) > emptyLife {
			delete(w.empty, k)
		}
	}
	for _, q := range looked {
		if !w.hinted[q] {
			w.empty[q] = begin
		}
	}
}

func (w *waiters) donePeek() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hinted = nil
}

// knowEmpty reports whether a poll that waits for these queues already needs no look of its own: the backstop has just looked, and a
// hint that came since would have been seen.
func (w *waiters) knowEmpty(keys []batch.Queue) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		at, ok := w.empty[k]
		if !ok || time.Since(at) > emptyLife { //nolint:forbidigo // a stopwatch
			return false
		}
	}
	return true
}

// drain ends all polls and lets no new one wait.
func (w *waiters) drain() { w.draining.Do(func() { close(w.drained) }) }

// Drain ends the long polls of this replica, which answer with no offers, and lets no new one wait.
func (s *Service) Drain() { s.waiters.drain() }

const (
	// peekPace is the pause of the backstop while it finds something, and peekIdle its longest.
	peekPace = 100 * time.Millisecond
	peekIdle = 1500 * time.Millisecond
	// emptyLife is for how long a queue is known to be empty: until the next look, and then some.
	emptyLife = 2 * peekIdle
	// peekQueues bounds the queues of one statement.
	peekQueues = 256
)

// WakeWaiters is the backstop of long polls, which correctness rests on: one look at all queues that are waited for, whoever made a task ready.
// It answers how many queues had something.
func (s *Service) WakeWaiters(ctx context.Context) (int, error) {
	queues := s.waiters.beginPeek()
	defer s.waiters.donePeek()
	begin := time.Now() //nolint:forbidigo // a stopwatch
	woken := 0
	for some := range slices.Chunk(queues, peekQueues) {
		claimable, err := batch.PeekQueues(ctx, s.Batch.DB, some)
		if err != nil {
			return woken, err
		}
		s.waiters.endPeek(some, claimable, begin)
		woken += len(claimable)
	}
	return woken, nil
}

// announce tells waiting claims that n tasks of a queue became ready: those of this replica, and for as many as are left those of others.
func (s *Service) announce(k batch.Queue, n int) {
	if left := s.waiters.notify(k, n); left > 0 && s.Nudge != nil {
		s.Nudge(k.NamespaceID, k.ID, left)
	}
}

// Nudged wakes up to n polls of this replica that wait for a queue: another replica said that tasks became ready.
func (s *Service) Nudged(namespaceID, queueID orbit.ID, n int) {
	s.waiters.notify(batch.Queue{NamespaceID: namespaceID, ID: queueID}, n)
}
