package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// readyQueue is a table of what is ready and a table of what is claimed, on MySQL, with the tables, indexes and statements of Solid Queue. It leaves
// out what costs Solid Queue more: looks at paused queues, concurrency limits, heartbeats, reading back what was inserted.
type readyQueue struct {
	db        *sql.DB
	database  string
	processes int
	threads   int // of each process
	poll      time.Duration
	deadlocks atomic.Int64 // transactions that were sent once more
}

// readyDSN has what Solid Queue's manual advises for MySQL (READ COMMITTED) in a database of its own.
func readyDSN(dsn, database string) (string, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	config.DBName, config.InterpolateParams = database, true
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["transaction_isolation"] = "'READ-COMMITTED'"
	return config.FormatDSN(), nil
}

func openReady(ctx context.Context, dsn string, processes, threads, inserters int) (*readyQueue, error) {
	q := &readyQueue{database: "orbit_peers_" + timeOrdered()[:12], processes: processes, threads: threads, poll: 100 * time.Millisecond}
	server, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+q.database); err != nil {
		return nil, err
	}
	if dsn, err = readyDSN(dsn, q.database); err != nil {
		return nil, err
	}
	if q.db, err = sql.Open("mysql", dsn); err != nil {
		return nil, err
	}
	// One for each thread, and for each process two, as the manual advises.
	connections := processes*(threads+2) + inserters
	q.db.SetMaxOpenConns(connections)
	q.db.SetMaxIdleConns(connections)
	return q, nil
}

func (q *readyQueue) close(ctx context.Context) error {
	_, err := q.db.ExecContext(ctx, "DROP DATABASE "+q.database)
	return errors.Join(err, q.db.Close())
}

var readyTables = []string{
	`CREATE TABLE jobs (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, queue_name VARCHAR(255) NOT NULL, class_name VARCHAR(255) NOT NULL, arguments TEXT, priority INT NOT NULL DEFAULT 0,
  active_job_id VARCHAR(255), scheduled_at DATETIME(6), finished_at DATETIME(6), concurrency_key VARCHAR(255), created_at DATETIME(6) NOT NULL, updated_at DATETIME(6) NOT NULL,
  KEY (active_job_id), KEY (class_name), KEY (finished_at), KEY (queue_name, finished_at), KEY (scheduled_at, finished_at))`,
	`CREATE TABLE ready_executions (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, job_id BIGINT NOT NULL, queue_name VARCHAR(255) NOT NULL, priority INT NOT NULL DEFAULT 0, created_at DATETIME(6) NOT NULL,
  UNIQUE KEY (job_id), KEY (priority, job_id), KEY (queue_name, priority, job_id), FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE)`,
	`CREATE TABLE claimed_executions (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, job_id BIGINT NOT NULL, process_id BIGINT, created_at DATETIME(6) NOT NULL,
  UNIQUE KEY (job_id), KEY (process_id, job_id), FOREIGN KEY (job_id) REFERENCES jobs (id) ON DELETE CASCADE)`,
}

func (q *readyQueue) reset(ctx context.Context) error {
	statements := append([]string{"DROP TABLE IF EXISTS claimed_executions, ready_executions, jobs"}, readyTables...)
	for _, statement := range statements {
		if _, err := q.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (q *readyQueue) ended(ctx context.Context) (n int, err error) {
	return n, q.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM jobs WHERE finished_at IS NOT NULL AND id NOT IN (SELECT job_id FROM claimed_executions)").Scan(&n)
}

const (
	deadlock   = 1213
	inTxAtMost = 100
)

// inTx runs statements in one transaction, and all of them once more when they met a deadlock.
func (q *readyQueue) inTx(ctx context.Context, statements func(tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		tx, err := q.db.BeginTx(ctx, nil) //nolint:forbidigo // not the service's: a peer has no dbtx
		if err != nil {
			return err
		}
		if err = statements(tx); err == nil {
			return tx.Commit()
		}
		_ = tx.Rollback() // what failed says more
		if refused := (*mysql.MySQLError)(nil); !errors.As(err, &refused) || refused.Number != deadlock || try == inTxAtMost {
			return err
		}
		q.deadlocks.Add(1)
	}
}

const readyName = "default"

// insert makes the jobs and what is ready of them in one transaction, with one statement for each table.
func (r *readyRun) insert(ctx context.Context, tasks []task) error {
	now := time.Now().UTC()
	rows, jobIDs := make([]any, 0, 8*len(tasks)), make([]any, len(tasks))
	for i, t := range tasks {
		arguments, err := json.Marshal(t)
		if err != nil {
			return err
		}
		jobIDs[i] = timeOrdered()
		rows = append(rows, readyName, "BenchJob", arguments, 0, jobIDs[i], now, now, now)
	}
	return r.inTx(ctx, func(tx *sql.Tx) error {
		made, err := tx.ExecContext(ctx, "INSERT INTO jobs (queue_name, class_name, arguments, priority, active_job_id, scheduled_at, created_at, updated_at) VALUES "+
			list("(?, ?, ?, ?, ?, ?, ?, ?)", len(tasks)), rows...)
		if err != nil {
			return err
		}
		var ids []int64
		if len(tasks) == 1 {
			id, err := made.LastInsertId()
			if err != nil {
				return err
			}
			ids = []int64{id}
		} else if ids, err = selectIDs(ctx, tx, "SELECT id FROM jobs WHERE active_job_id IN ("+list("?", len(jobIDs))+")", jobIDs...); err != nil {
			return err
		}
		ready := make([]any, 0, 4*len(ids))
		for _, id := range ids {
			ready = append(ready, id, readyName, 0, now)
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO ready_executions (job_id, queue_name, priority, created_at) VALUES "+list("(?, ?, ?, ?)", len(ids)), ready...)
		return err
	})
}

func list(item string, n int) string { return item + strings.Repeat(", "+item, n-1) }

func selectIDs(ctx context.Context, tx *sql.Tx, query string, args ...any) (ids []int64, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// readyRun is processes that claim and run.
type readyRun struct {
	*readyQueue
	on     events
	cancel context.CancelFunc
	group  sync.WaitGroup
}

func (q *readyQueue) work(ctx context.Context, on events) (worked, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &readyRun{readyQueue: q, on: on, cancel: cancel}
	for i := range q.processes {
		p := &readyProcess{readyRun: r, id: int64(i + 1), freed: make(chan struct{}, 1)}
		p.idle.Store(int64(q.threads))
		r.group.Go(func() { p.run(ctx) })
	}
	return r, nil
}

func (r *readyRun) stop(context.Context) error {
	r.cancel()
	r.group.Wait()
	return nil
}

// readyProcess has a pool of threads, and claims as many jobs as threads are idle.
type readyProcess struct {
	*readyRun
	id    int64
	idle  atomic.Int64
	freed chan struct{} // a thread became idle
}

// run polls at once when a thread becomes idle, and by the interval when threads are and there is nothing for them.
func (p *readyProcess) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		if n := p.idle.Load(); n > 0 {
			claimed, err := p.claim(ctx, n)
			if err != nil && ctx.Err() == nil {
				p.on.failed(err)
				return
			}
			p.idle.Add(-int64(len(claimed)))
			for _, c := range claimed {
				p.group.Go(func() { p.perform(ctx, c) })
			}
		}
		var due <-chan time.Time
		if p.idle.Load() > 0 {
			timer.Reset(p.poll)
			due = timer.C
		}
		select {
		case <-p.freed:
		case <-due:
		case <-ctx.Done():
		}
	}
}

type claimed struct{ id, jobID int64 }

// claim moves jobs from the table of what is ready to that of what is claimed.
func (p *readyProcess) claim(ctx context.Context, most int64) (all []claimed, err error) {
	return all, p.inTx(ctx, func(tx *sql.Tx) error {
		all = nil
		ready, err := selectReady(ctx, tx, most)
		if err != nil || len(ready) == 0 {
			return err
		}
		now := time.Now().UTC()
		rows, jobIDs, ids := make([]any, 0, 3*len(ready)), make([]any, len(ready)), make([]any, len(ready))
		for i, c := range ready {
			rows, jobIDs[i], ids[i] = append(rows, c.jobID, p.id, now), c.jobID, c.id
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO claimed_executions (job_id, process_id, created_at) VALUES "+list("(?, ?, ?)", len(ready)), rows...); err != nil {
			return err
		}
		if all, err = selectClaimed(ctx, tx, "SELECT id, job_id FROM claimed_executions WHERE job_id IN ("+list("?", len(jobIDs))+") AND process_id = ?", append(jobIDs, p.id)...); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM ready_executions WHERE id IN ("+list("?", len(ids))+")", ids...)
		return err
	})
}

func selectReady(ctx context.Context, tx *sql.Tx, most int64) ([]claimed, error) {
	return selectClaimed(ctx, tx, "SELECT id, job_id FROM ready_executions WHERE queue_name = ? ORDER BY priority, job_id LIMIT ? FOR UPDATE SKIP LOCKED", readyName, most)
}

func selectClaimed(ctx context.Context, tx *sql.Tx, query string, args ...any) (all []claimed, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c claimed
		if err := rows.Scan(&c.id, &c.jobID); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, rows.Err()
}

// perform runs one job in a thread of its own and ends it in a transaction of its own.
func (p *readyProcess) perform(ctx context.Context, c claimed) {
	err := p.runJob(ctx, c)
	p.idle.Add(1)
	select {
	case p.freed <- struct{}{}:
	default: // it will look anyway
	}
	if err != nil && ctx.Err() == nil {
		p.on.failed(err)
	}
}

func (p *readyProcess) runJob(ctx context.Context, c claimed) error {
	var arguments []byte
	if err := p.db.QueryRowContext(ctx, "SELECT arguments FROM jobs WHERE id = ?", c.jobID).Scan(&arguments); err != nil {
		return err
	}
	var t task
	if err := json.Unmarshal(arguments, &t); err != nil {
		return err
	}
	p.on.started(t)
	err := p.inTx(ctx, func(tx *sql.Tx) error {
		now := time.Now().UTC()
		if _, err := tx.ExecContext(ctx, "UPDATE jobs SET finished_at = ?, updated_at = ? WHERE id = ?", now, now, c.jobID); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM claimed_executions WHERE id = ?", c.id)
		return err
	})
	if err == nil {
		p.on.ended()
	}
	return err
}
