package dbtx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/batch"
)

// Tx is a running transaction. It serves as the connection of the generated queries.
//
// Its statements go to the server one by one, except writes through Later and Collect: those are kept, and travel together in one packet,
// in their order, before the next statement of the transaction or its end, or at Send. A round trip is most of the cost of a small
// statement, and the rows that a transaction holds stay locked for as long as it talks.
type Tx struct {
	// Now is the database's clock, read once; every decision of the transaction uses it. Microseconds, UTC.
	Now       time.Time
	conn      *sql.Conn
	collected []write
	events    []Event
	onCommit  []func()
	onEnd     []func(err error)
}

// write is a statement that was collected and must change so many rows.
type write struct {
	query string
	args  []any
	rows  int64
}

// maxPacket bounds the collected writes, far below the server's packet size, which is checked at start.
const maxPacket = 4 << 20

// begin opens the transaction, reads the clock and asks the first questions, in one round trip. It changes nothing, and so may be tried again on a
// connection that turns out to be dead. Whatever it answers, and if a question panics, the connection is rollback's to give back.
func (tx *Tx) begin(ctx context.Context, db *sql.DB, first []Question) (err error) {
	for range 2 {
		if tx.conn, err = db.Conn(ctx); err != nil {
			return err
		}
		clock := func(ctx context.Context, db DBTX) (err error) {
			tx.Now, err = platformdb.New(db).HostNow(ctx)
			return err
		}
		if err = tx.ask(ctx, "START TRANSACTION;\n", append([]Question{clock}, first...)); err == nil {
			return nil
		}
		tx.rollback(ctx)
		if !errors.Is(err, driver.ErrBadConn) && !errors.Is(err, mysql.ErrInvalidConn) {
			return err
		}
	}
	return err
}

// rollbackTime bounds the wait for a rollback; a connection that takes longer is given up, and the server rolls back when it notices.
const rollbackTime = time.Second

// rollback gives the connection back without a transaction, or not at all. It is harmless after a commit.
func (tx *Tx) rollback(ctx context.Context) {
	if tx.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	if _, err := tx.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		_ = tx.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	tx.release()
}

func (tx *Tx) release() {
	_ = tx.conn.Close()
	tx.conn = nil
}

func (tx *Tx) commit(ctx context.Context) error {
	if _, err := tx.conn.ExecContext(ctx, "COMMIT"); err != nil {
		return err
	}
	tx.release()
	return nil
}

// ExecContext sends what was collected, and the statement.
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := tx.Send(ctx); err != nil {
		return nil, err
	}
	return tx.conn.ExecContext(ctx, query, args...)
}

// QueryContext sends what was collected, and the statement.
func (tx *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := tx.Send(ctx); err != nil {
		return nil, err
	}
	return tx.conn.QueryContext(ctx, query, args...)
}

// QueryRowContext sends what was collected, and the statement.
func (tx *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := tx.Send(ctx); err != nil {
		return failedRow(ctx, err)
	}
	return tx.conn.QueryRowContext(ctx, query, args...)
}

// PrepareContext is there for the generated code's interface; nothing is prepared.
func (tx *Tx) PrepareContext(context.Context, string) (*sql.Stmt, error) {
	return nil, errors.New("statements are not prepared")
}

// Collect keeps a write for the next packet. The statement must change exactly so many rows: fewer is ErrLost, more breaks an invariant, and either
// fails the transaction when the packet is sent.
func (tx *Tx) Collect(query string, args []any, rows int) {
	tx.collected = append(tx.collected, write{query, args, int64(rows)})
}

// Later gives the generated queries a connection on which writes are collected, each to change exactly so many rows. Their answer is that
// they did.
func (tx *Tx) Later(rows int) Later { return Later{tx, rows} }

// Later collects the writes of generated queries; see Tx.Later.
type Later struct {
	*Tx
	rows int
}

// ExecContext collects the statement.
func (l Later) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	l.Collect(query, args, l.rows)
	return driver.RowsAffected(l.rows), nil
}

// Send sends the collected writes now, in as few packets as their size allows, and judges the rows they changed.
func (tx *Tx) Send(ctx context.Context) error {
	for len(tx.collected) > 0 {
		n, size := 0, 0
		for n < len(tx.collected) {
			more := batch.Size(tx.collected[n].args)
			if n > 0 && size+more > maxPacket {
				break
			}
			n, size = n+1, size+more
		}
		writes := tx.collected[:n]
		tx.collected = tx.collected[n:]
		if err := tx.sendPacket(ctx, writes); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) sendPacket(ctx context.Context, writes []write) error {
	queries := make([]string, len(writes))
	var args []any
	for i, w := range writes {
		queries[i] = w.query
		args = append(args, w.args...)
	}
	changed, err := tx.execAll(ctx, strings.Join(queries, ";\n"), args)
	if err != nil {
		return err
	}
	if len(changed) != len(writes) {
		return fmt.Errorf("invariant broken: %d answers to %d statements", len(changed), len(writes))
	}
	for i, w := range writes {
		if err := SwappedAll(changed[i], nil, int(w.rows)); err != nil {
			return fmt.Errorf("%.60s: %w", w.query, err)
		}
	}
	return nil
}

// execAll answers the rows that each statement of a packet changed.
func (tx *Tx) execAll(ctx context.Context, query string, args []any) (changed []int64, err error) {
	err = tx.conn.Raw(func(raw any) error {
		named, err := nameValues(raw.(driver.NamedValueChecker), args)
		if err != nil {
			return err
		}
		result, err := raw.(driver.ExecerContext).ExecContext(ctx, query, named)
		if err != nil {
			return err
		}
		changed = result.(mysql.Result).AllRowsAffected()
		return nil
	})
	return changed, err
}
