// Package dbtx is the one place where transactions begin and end.
package dbtx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// Pool is a connection pool with the clock of its database. Sessions are READ COMMITTED and UTC.
type Pool struct {
	DB *sql.DB
	// Offset is added to the database's clock; nil means none. Only tests set it.
	Offset func() time.Duration
	// Timeout bounds one run of a transaction, locks included.
	Timeout time.Duration
	// Spooled is called when events were committed, as a hint; nil means that nobody wants to know.
	Spooled func()
}

// Event is a change of an aggregate, written with it in one commit. There is one event for each version of an aggregate.
type Event struct {
	NamespaceID orbit.ID
	Kind        string
	ID          orbit.ID
	Version     int64
	Type        string
	ActorID     orbit.NullID
	Data        string // JSON text
}

// Emit collects an event; Run writes it after everything else.
func (tx *Tx) Emit(e Event) { tx.events = append(tx.events, e) }

// OnCommit has fn called once the commit was answered. It carries hints only, such as waking a waiter: after an unknown commit it is not
// called, and nothing may depend on it.
func (tx *Tx) OnCommit(fn func()) { tx.onCommit = append(tx.onCommit, fn) }

// OnEnd has fn called once this run of the transaction is over, whatever became of it: with nil after a commit that was answered, with an
// UnknownCommit, or with what kept it from committing, which may be a panic.
func (tx *Tx) OnEnd(fn func(err error)) { tx.onEnd = append(tx.onEnd, fn) }

var errPanicked = errors.New("the transaction panicked")

const reruns = 8

// ErrLost tells that a swap changed no row: somebody else moved the thing first. The loser reads why.
var ErrLost = errors.New("lost the swap")

// Run calls fn in a transaction and commits it, with fn's events and, as the very last statement, their spool row.
//
// The contract of fn: it keeps no state across runs and has no effect outside the transaction, because a deadlock (1213) runs it
// again from the start, a bounded number of times. No other error is rerun. Any error abandons the transaction: after
// 1213 the next statement would autocommit, after 1205 the earlier ones would still commit.
//
// A failed COMMIT is answered outcome_unknown and never rerun: the caller's key, token or claim_seq settles it. The transaction goes on
// when the caller of ctx is gone; only its own time-out ends it.
//
// The first questions are asked with the opening of the transaction, and answered before fn is called; again with each run.
func (p *Pool) Run(ctx context.Context, op string, fn func(ctx context.Context, tx *Tx) error, first ...Question) error {
	var err error
	for run := range reruns {
		if run > 0 {
			pause(ctx, run)
		}
		var unknown *UnknownCommit
		if err = p.once(ctx, op, fn, first); !IsDeadlock(err) || errors.As(err, &unknown) {
			return err
		}
	}
	return &fault.Fault{Code: fault.Unavailable, Detail: "the database is busy; try again", RetryAfter: time.Second}
}

func (p *Pool) once(ctx context.Context, op string, fn func(ctx context.Context, tx *Tx) error, first []Question) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Timeout)
	defer cancel()
	tx := &Tx{}
	defer tx.rollback(ctx)
	if err := tx.begin(ctx, p.DB, first); err != nil {
		return fmt.Errorf("%s: begin: %w", op, err)
	}
	tx.Now = p.Shift(tx.Now)
	over := errPanicked
	defer func() {
		for _, fn := range tx.onEnd {
			fn(over)
		}
	}()
	over = p.carryOut(ctx, op, tx, fn)
	return over
}

func (p *Pool) carryOut(ctx context.Context, op string, tx *Tx, fn func(ctx context.Context, tx *Tx) error) error {
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := tx.writeEvents(); err != nil {
		return fmt.Errorf("%s: events: %w", op, err)
	}
	if err := tx.Send(ctx); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := tx.commit(ctx); err != nil {
		return &UnknownCommit{Op: op, Err: err}
	}
	if len(tx.events) > 0 && p.Spooled != nil {
		p.Spooled()
	}
	for _, fn := range tx.onCommit {
		fn()
	}
	return nil
}

// Shift adds the offset to an instant of the database's clock that was read otherwise.
func (p *Pool) Shift(now time.Time) time.Time {
	if p.Offset == nil {
		return now
	}
	return now.Add(p.Offset())
}

// Now reads the database's clock outside a transaction, for the due lists of loops.
func (p *Pool) Now(ctx context.Context) (time.Time, error) {
	now, err := platformdb.New(p.DB).HostNow(ctx)
	return p.Shift(now), err
}

func pause(ctx context.Context, run int) {
	t := time.NewTimer(time.Duration(rand.Int64N(int64(run) * int64(5*time.Millisecond))))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// UnknownCommit is a COMMIT that was sent and not answered: it may have happened.
type UnknownCommit struct {
	Op  string
	Err error
}

func (e *UnknownCommit) Error() string { return e.Op + ": commit: " + e.Err.Error() }
func (e *UnknownCommit) Unwrap() error { return e.Err }

// Swapped judges the affected rows of a compare-and-swap on one row: 1 is success, 0 is ErrLost, more breaks an invariant.
func Swapped(n int64, err error) error { return SwappedAll(n, err, 1) }

// SwappedAll is Swapped for a set of rows that must all change.
func SwappedAll(n int64, err error, want int) error {
	switch {
	case err != nil:
		return err
	case n == int64(want):
		return nil
	case n < int64(want):
		return ErrLost
	}
	return fmt.Errorf("invariant broken: %d rows changed where %d should", n, want)
}

// IsDeadlock is error 1213: the whole transaction was rolled back.
func IsDeadlock(err error) bool { return number(err) == 1213 }

// IsLockWait is error 1205: a row stayed locked for the pool's lock wait time-out.
func IsLockWait(err error) bool { return number(err) == 1205 }

// IsLockedNow is error 3572: NOWAIT met a locked row.
func IsLockedNow(err error) bool { return number(err) == 3572 }

// IsDuplicate is error 1062: a unique key holds the value already.
func IsDuplicate(err error) bool { return number(err) == 1062 }

// IsAway tells an unreachable, overloaded, read-only or stopping database from a defect.
func IsAway(err error) bool {
	switch number(err) {
	case 0:
		var op interface{ Timeout() bool }
		return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) ||
			errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.As(err, &op)
	case 1040, 1041, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1290, 1317, 1836, 1021, 1114, 3024, 3168, 3169, 4031:
		return true
	}
	return false
}

func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}
