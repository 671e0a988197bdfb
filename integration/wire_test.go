package integration_test

import (
	"database/sql/driver"
	"slices"
	"sync"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// wire is what a replica's statements travel on. One can be stopped on its way, and then go on, be cut off, or lose its answer.
type wire struct {
	mu      sync.Mutex
	stopped []*stoppedStatement
	hits    map[harness.Statement]int // how many were stopped, by kind
	over    chan struct{}
}

// stoppedStatement is one that reached the point where it is stopped, once reached is closed.
type stoppedStatement struct {
	at      harness.Statement
	reached chan struct{}
	end     chan func(run func() error) error
}

// addWired adds a replica, the last one, whose statements travel on a wire.
func addWired(t testing.TB, o *harness.Orbit, opts harness.Options) (*harness.Replica, *wire) {
	t.Helper()
	w := &wire{over: make(chan struct{}), hits: map[harness.Statement]int{}}
	opts.Between = harness.Around(w.around)
	r := o.AddReplica(opts)
	t.Cleanup(func() { close(w.over) }) // before the replica is closed, which waits for its requests
	return r, w
}

// stop stops the next statement of that kind.
func (w *wire) stop(at harness.Statement) *stoppedStatement {
	s := &stoppedStatement{at: at, reached: make(chan struct{}), end: make(chan func(func() error) error, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = append(w.stopped, s)
	return s
}

// forget stops no more statements of that kind, and tells how many were.
func (w *wire) forget(at harness.Statement) (reached int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = slices.DeleteFunc(w.stopped, func(s *stoppedStatement) bool { return s.at == at })
	return w.hits[at]
}

// goOn lets the statement run.
func (s *stoppedStatement) goOn() { s.end <- func(run func() error) error { return run() } }

// cut breaks the connection before the statement reaches the server.
func (s *stoppedStatement) cut() { s.end <- func(func() error) error { return driver.ErrBadConn } }

// lose runs the statement and breaks the connection before its answer.
func (s *stoppedStatement) lose() {
	s.end <- func(run func() error) error {
		_ = run()
		return driver.ErrBadConn
	}
}

func (w *wire) around(s harness.Statement, run func() error) error {
	hit := w.take(s)
	if hit == nil {
		return run()
	}
	close(hit.reached)
	select {
	case end := <-hit.end:
		return end(run)
	case <-w.over:
		return driver.ErrBadConn
	}
}

func (w *wire) take(s harness.Statement) *stoppedStatement {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, hit := range w.stopped {
		if s.Name() == string(hit.at) {
			w.stopped = append(w.stopped[:i:i], w.stopped[i+1:]...)
			w.hits[hit.at]++
			return hit
		}
	}
	return nil
}

// awaitLockWaits returns once at least n requests for locks of the test's database wait.
func awaitLockWaits(t *testing.T, o *harness.Orbit, n int) {
	t.Helper()
	await(t, "requests to wait for locks", func() bool {
		return o.Count("performance_schema.data_locks WHERE object_schema = ? AND lock_status = 'WAITING'", o.Name) >= n
	})
}

// send makes a call beside the test.
func send(t testing.TB, url, key, method, path string, body any, headers ...harness.Header) (wait func() harness.Reply) {
	t.Helper()
	return later(t, func() (harness.Reply, error) {
		return harness.Do(t.Context(), url, key, method, path, body, headers...)
	})
}
