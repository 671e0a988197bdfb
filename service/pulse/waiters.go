package pulse

import (
	"sync"

	"github.com/orbit-run/orbit"
)

type queueKey struct{ namespaceID, queueID orbit.ID }

// waiters are the long polls of this replica. A wake-up is a hint: a claim that follows it may find nothing, and a poll that gets none finds
// its task by the peek of the backstop.
type waiters struct {
	mu       sync.Mutex
	byQueue  map[queueKey]map[chan struct{}]struct{}
	drained  chan struct{}
	draining sync.Once
}

// wait registers a poll; the returned channel gets one wake-up at a time. The poll registers before it looks for tasks,
// so that a task that becomes ready in between is not missed.
func (w *waiters) wait(keys []queueKey) (wake chan struct{}, leave func()) {
	wake = make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		if w.byQueue[k] == nil {
			w.byQueue[k] = map[chan struct{}]struct{}{}
		}
		w.byQueue[k][wake] = struct{}{}
	}
	return wake, func() { w.leave(keys, wake) }
}

func (w *waiters) leave(keys []queueKey, wake chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		delete(w.byQueue[k], wake)
		if len(w.byQueue[k]) == 0 {
			delete(w.byQueue, k)
		}
	}
}

// notify wakes up to n polls of a queue.
func (w *waiters) notify(k queueKey, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wake := range w.byQueue[k] {
		if n == 0 {
			return
		}
		select {
		case wake <- struct{}{}:
			n--
		default:
		}
	}
}

// queues lists what is waited for.
func (w *waiters) queues() []queueKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := make([]queueKey, 0, len(w.byQueue))
	for k := range w.byQueue {
		keys = append(keys, k)
	}
	return keys
}

// drain ends all polls and lets no new one wait.
func (w *waiters) drain() { w.draining.Do(func() { close(w.drained) }) }

// Drain ends the long polls of this replica, which answer with no offers, and lets no new one wait.
func (s *Service) Drain() { s.waiters.drain() }
