package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
)

// bench is one connection to a database of one variant, for questions that send single statements of the service.
type bench struct {
	*sql.Conn
	pool             *sql.DB
	database         string
	namespace, queue orbit.ID
	now              time.Time // of the tasks and keys that it makes; it moves on by itself
}

// bench makes a database with a namespace and a queue in it.
func (s *server) bench(ctx context.Context, database string, changes ...string) (*bench, error) {
	pool, err := s.create(ctx, database, changes...)
	if err != nil {
		return nil, err
	}
	b := &bench{pool: pool, database: database, namespace: orbit.NewID(time.Now()), queue: orbit.NewID(time.Now()), now: time.Now().UTC().Truncate(time.Microsecond)}
	if b.Conn, err = pool.Conn(ctx); err != nil {
		return nil, err
	}
	return b, errors.Join(
		b.exec(ctx, "SET SESSION wait_timeout = 3600"),
		b.exec(ctx, "INSERT INTO orbit_applications VALUES (?, 'measure', ?)", b.namespace, b.now),
		b.exec(ctx, "INSERT INTO orbit_namespaces VALUES (?, ?, 'measure', ?)", b.namespace, b.namespace, b.now),
		b.exec(ctx, `INSERT INTO pulse_queues (namespace_id, id, name, lease_ms, offer_timeout_ms, max_attempts, backoff_initial_ms, backoff_max_ms, retention_ms, unknown_outcome, one_step, revision, created_at, updated_at)
VALUES (?, ?, 'measure', 30000, 10000, 5, 1000, 300000, 604800000, 'review', FALSE, 1, ?, ?)`, b.namespace, b.queue, b.now, b.now))
}

func (b *bench) close() { b.Conn.Close(); b.pool.Close() }

func (b *bench) exec(ctx context.Context, query string, args ...any) error {
	_, err := b.ExecContext(ctx, query, args...)
	return err
}

// drain reads all that a query answers and counts the rows.
func (b *bench) drain(ctx context.Context, query string, args ...any) (n int, err error) {
	rows, err := b.QueryContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}

// transaction runs fn as the service runs it: with the clock read first.
func (b *bench) transaction(ctx context.Context, fn func() error) error {
	if err := b.exec(ctx, "START TRANSACTION"); err != nil {
		return err
	}
	_, err := b.drain(ctx, platformdb.HostNow)
	if err == nil {
		err = fn()
	}
	if err != nil {
		return errors.Join(err, b.exec(context.WithoutCancel(ctx), "ROLLBACK"))
	}
	return b.exec(ctx, "COMMIT")
}

// insert runs a generated single-row INSERT for many rows at once.
func (b *bench) insert(ctx context.Context, query string, rows [][]any) error {
	start := strings.Index(query, "VALUES (") + len("VALUES ")
	end := start + strings.IndexByte(query[start:], ')') + 1
	args := make([]any, 0, len(rows)*len(rows[0]))
	for _, r := range rows {
		args = append(args, r...)
	}
	return b.exec(ctx, query[:end]+strings.Repeat(", "+query[start:end], len(rows)-1)+query[end:], args...)
}

// list is a list of n parameters.
func list(n int) string { return "(?" + strings.Repeat(",?", n-1) + ")" }

// randomID is an id without order, as UUIDv4 is.
func randomID(time.Time) orbit.ID {
	var id orbit.ID
	rand.Read(id[:])
	return id
}

// flush has the server write all changed pages, so that none is written in another variant's turn.
func (s *server) flush(ctx context.Context) error {
	var percent, low float64
	if err := s.db.QueryRowContext(ctx, "SELECT @@GLOBAL.innodb_max_dirty_pages_pct, @@GLOBAL.innodb_max_dirty_pages_pct_lwm").Scan(&percent, &low); err != nil {
		return err
	}
	defer func() {
		_ = s.exec(context.WithoutCancel(ctx), fmt.Sprintf("SET GLOBAL innodb_max_dirty_pages_pct = %v, innodb_max_dirty_pages_pct_lwm = %v", percent, low))
	}()
	if err := s.exec(ctx, "SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0, innodb_max_dirty_pages_pct = 0"); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 2400 {
		var name string
		var dirty int
		if err := s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'").Scan(&name, &dirty); err != nil || dirty < 20 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("changed pages are not written within two minutes")
}

// flushed is what do costs, with the writing of all pages that it changed.
func (s *server) flushed(ctx context.Context, do func() error) (spent, error) {
	if err := errors.Join(s.settle(ctx), s.flush(ctx)); err != nil {
		return spent{}, err
	}
	before, err := s.reading(ctx)
	if err != nil {
		return spent{}, err
	}
	if err := do(); err != nil {
		return spent{}, err
	}
	wall := time.Since(before.at)
	if err := errors.Join(s.settle(ctx), s.flush(ctx)); err != nil {
		return spent{}, err
	}
	after, err := s.reading(ctx)
	u := after.since(before)
	u.wall = wall
	return u, err
}
