package integration_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// race makes n calls that begin at one moment, and answers what each got. An error of any call fails t.
func race[T any](t testing.TB, n int, call func(i int) (T, error)) []T {
	t.Helper()
	results, errs := make([]T, n), make([]error, n)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-begin
			results[i], errs[i] = call(i)
		})
	}
	close(begin)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("caller %d: %v", i, err)
		}
	}
	return results
}

// later runs a call beside the test; the returned function waits for it.
func later[T any](t testing.TB, call func() (T, error)) (wait func() T) {
	t.Helper()
	var result T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = call()
	}()
	return func() T {
		t.Helper()
		within(t, done, "a call to end")
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

// within waits for a signal that must come.
func within(t testing.TB, signal <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-signal:
	case <-timer.C:
		t.Fatalf("waited too long for %s", what)
	}
}

// breakpoint stops a replica's next statement of a kind: the query of a name, or BEGIN, COMMIT or ROLLBACK. Its replica is made with
// harness.Options{Between: harness.Around(b.around)}.
type breakpoint struct {
	mu   sync.Mutex
	stop *stop
}

type stop struct {
	at             harness.Statement
	reached, going chan struct{}
}

// next arms the breakpoint before the next statement of a kind. Reached is closed when the statement is about to run, and the
// statement runs once goOn was called.
func (b *breakpoint) next(at harness.Statement) (reached <-chan struct{}, goOn func()) {
	s := &stop{at: at, reached: make(chan struct{}), going: make(chan struct{})}
	b.mu.Lock()
	b.stop = s
	b.mu.Unlock()
	return s.reached, sync.OnceFunc(func() { close(s.going) })
}

func (b *breakpoint) around(s harness.Statement, run func() error) error {
	b.mu.Lock()
	hit := b.stop
	if hit != nil && s.Name() == string(hit.at) {
		b.stop = nil
	} else {
		hit = nil
	}
	b.mu.Unlock()
	if hit != nil {
		close(hit.reached)
		<-hit.going
	}
	return run()
}

// recorder notes what a replica asks of its database: names of queries, and BEGIN, COMMIT and ROLLBACK.
type recorder struct {
	mu         sync.Mutex
	statements []string
}

func (r *recorder) around(s harness.Statement, run func() error) error {
	r.mu.Lock()
	r.statements = append(r.statements, s.Name())
	r.mu.Unlock()
	return run()
}

// take gives what was noted, and forgets it.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.statements
	r.statements = nil
	return taken
}

// holdRows locks rows from outside the service, such as "pulse_attempts WHERE id = UNHEX(?)", until the returned function is called.
func holdRows(t testing.TB, o *harness.Orbit, rows string, args ...any) (release func()) {
	t.Helper()
	tx, err := o.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM (SELECT 1 FROM "+rows+" FOR UPDATE) AS held", args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Fatalf("no rows to hold: %s", rows)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback() })
	t.Cleanup(release)
	return release
}

// change writes to the database behind the service's back and wants exactly one row to change.
func change(t testing.TB, o *harness.Orbit, statement string, args ...any) {
	t.Helper()
	result, err := o.DB.ExecContext(t.Context(), statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		t.Fatalf("%d rows changed (%v), want 1: %s", n, err, statement)
	}
}

// value reads one value from the database.
func value[T any](t testing.TB, o *harness.Orbit, query string, args ...any) T {
	t.Helper()
	var v sql.Null[T]
	if err := o.DB.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v.V
}

// event is an entry of the feed, as far as tests look at it.
type event struct {
	Position      string `json:"position"`
	Type          string `json:"type"`
	AggregateKind string `json:"aggregate_kind"`
	AggregateID   string `json:"aggregate_id"`
	Version       int64  `json:"version"`
	Data          rawJSON
}

// events reads the whole feed.
func events(t testing.TB, o *harness.Orbit) []event {
	t.Helper()
	o.Pass("sequence_events")
	var all []event
	after := "0"
	for {
		var page struct {
			Items     []event `json:"items"`
			NextAfter string  `json:"next_after"`
		}
		o.Call("GET", "/v1/events?limit=500&after="+after, nil).Want(t, 200).JSON(t, &page)
		if len(page.Items) == 0 {
			return all
		}
		all, after = append(all, page.Items...), page.NextAfter
	}
}

// countEvents counts the events of an aggregate by type, in the table: the feed grows with every test of many rounds.
func countEvents(t testing.TB, o *harness.Orbit, aggregateID string) map[string]int {
	t.Helper()
	rows, err := o.DB.QueryContext(t.Context(), "SELECT type, COUNT(*) FROM orbit_events WHERE namespace_id = ? AND aggregate_id = UNHEX(?) GROUP BY type", o.Namespace.ID, aggregateID)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var kind string
		var n int
		if err := rows.Scan(&kind, &n); err != nil {
			t.Fatal(err)
		}
		counts[kind] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return counts
}

// parse reads a reply that must have a status, for calls beside the test.
func parse[T any](r harness.Reply, err error, status int) (T, error) {
	var v T
	switch {
	case err != nil:
		return v, err
	case r.Status != status:
		return v, fmt.Errorf("status %d, want %d: %.500s", r.Status, status, r.Body)
	}
	return v, json.Unmarshal(r.Body, &v)
}

// pass runs a pass of a loop on a replica, for goroutines of a test.
func pass(t testing.TB, o *harness.Orbit, name string, replica int) (int, error) {
	for _, l := range o.Replica(replica).Service.Loops() {
		if l.Name == name {
			return l.Pass(t.Context())
		}
	}
	return 0, fmt.Errorf("there is no loop %q", name)
}

// awaitLockWait waits until some session waits for a lock on a table of the test's database.
func awaitLockWait(t testing.TB, o *harness.Orbit, table string) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for o.Count("performance_schema.data_locks WHERE LOCK_STATUS = 'WAITING' AND OBJECT_SCHEMA = ? AND OBJECT_NAME = ?", o.Name, table) == 0 {
		select {
		case <-tick.C:
		case <-timer.C:
			t.Fatalf("nobody waits for a lock on %s", table)
		}
	}
}
