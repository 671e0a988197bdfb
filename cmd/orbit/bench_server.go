package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// benchServer is the database server that is measured, as a bench looks at it past Orbit.
type benchServer struct {
	db       *sql.DB
	database string
	settings [][]string // what bears on the figures, by name
	seeds    int        // so far
}

// floorConnections is at how many connections F is measured.
const floorConnections = 16

func openBenchServer(ctx context.Context, dsn, database string, acceptWeak bool) (_ *benchServer, err error) {
	s := &benchServer{database: database}
	if s.db, err = schema.Open(dsn, schema.PoolOptions{MaxOpen: floorConnections, LockWait: 5 * time.Second, Program: "orbit-bench"}); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx, acceptWeak); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

func (s *benchServer) close() { s.db.Close() }

// prepare refuses a server that may lose commits, as a replica does, and makes the table of the floor.
func (s *benchServer) prepare(ctx context.Context, acceptWeak bool) error {
	found, err := schema.CheckServer(ctx, s.db, schema.ServerRules{AcceptWeakDurability: acceptWeak})
	if err != nil {
		return fmt.Errorf("%w\nFigures without durability mean little; --accept-weak-durability measures them", err)
	}
	s.settings = [][]string{{"mysql", found.Version}}
	for _, name := range []string{"innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog", "innodb_doublewrite", "innodb_buffer_pool_size", "innodb_redo_log_capacity"} {
		var value string
		if err := s.db.QueryRowContext(ctx, "SELECT @@GLOBAL."+name).Scan(&value); err != nil {
			return err
		}
		s.settings = append(s.settings, []string{name, value})
	}
	_, err = s.db.ExecContext(ctx, "CREATE TABLE bench_floor (id BINARY(16) PRIMARY KEY, body VARBINARY(100) NOT NULL)")
	return err
}

// benchFloor is what the server does without Orbit, with 16 connections that each wait for their commit.
type benchFloor struct {
	commits float64 // F: one row of 100 bytes a commit, a second
	rows    float64 // rows in commits of 100, a second
}

// floor takes half of the length for each of its two figures.
func (s *benchServer) floor(ctx context.Context, length time.Duration) (f benchFloor, err error) {
	if f.commits, err = s.insert(ctx, length/2, 1); err == nil {
		f.rows, err = s.insert(ctx, length/2, 100)
	}
	return f, err
}

// insert gives the rows a second that were inserted.
func (s *benchServer) insert(ctx context.Context, length time.Duration, rows int) (float64, error) {
	query := "INSERT INTO bench_floor (id, body) VALUES (?, ?)" + strings.Repeat(", (?, ?)", rows-1)
	body := []byte(strings.Repeat("x", 100))
	var group sync.WaitGroup
	var done atomic.Int64
	var failed atomic.Value
	begin := time.Now()
	for range floorConnections {
		group.Go(func() {
			args := make([]any, 2*rows)
			for time.Since(begin) < length {
				for i := range rows {
					id, _ := hex.DecodeString(client.NewKey())
					args[2*i], args[2*i+1] = id, body
				}
				if _, err := s.db.ExecContext(ctx, query, args...); err != nil {
					failed.Store(err)
					return
				}
				done.Add(int64(rows))
			}
		})
	}
	group.Wait()
	if err, ok := failed.Load().(error); ok {
		return 0, fmt.Errorf("measure the floor: %w", err)
	}
	return float64(done.Load()) / time.Since(begin).Seconds(), nil
}

// statementCount is a reading of the server's counters.
type statementCount struct {
	byThread map[int64]float64 // those of Orbit's connections, this bench's own without
	server   float64           // Questions, those of everybody on the server
}

// since is how many statements Orbit sent after an earlier reading. Those of connections that were closed in between are not in it.
func (n statementCount) since(before statementCount) (sum float64) {
	for thread, count := range n.byThread {
		sum += count - before.byThread[thread]
	}
	return sum
}

func (s *benchServer) statements(ctx context.Context) (n statementCount, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT t.thread_id, s.variable_value FROM performance_schema.threads t
JOIN performance_schema.status_by_thread s ON s.thread_id = t.thread_id AND s.variable_name = 'Questions'
JOIN performance_schema.session_connect_attrs a ON a.processlist_id = t.processlist_id AND a.attr_name = 'program_name' AND a.attr_value <> 'orbit-bench'
WHERE t.processlist_db = ?`, s.database)
	if err != nil {
		return n, err
	}
	defer rows.Close()
	n.byThread = map[int64]float64{}
	for rows.Next() {
		var thread int64
		var count float64
		if err := rows.Scan(&thread, &count); err != nil {
			return n, err
		}
		n.byThread[thread] = count
	}
	if err := rows.Err(); err != nil {
		return n, err
	}
	var name string
	return n, s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n.server)
}

// seedRows is how many rows one statement seeds.
const seedRows = 10_000

// seed fills a queue with tasks past the API, which would take long for many: ready ones, ones for tomorrow and later, and ones that
// ended with an attempt and a receipt. They have no keys and no events.
func (s *benchServer) seed(ctx context.Context, queueID string, ready, future, ended int) error {
	s.seeds++
	kinds := []struct {
		rows   int
		insert []string
	}{
		{ready, []string{seedTask("'open'", "@now - INTERVAL 1 HOUR", "NULL"), seedReady}},
		{future, []string{seedTask("'open'", "@now + INTERVAL 1 DAY + INTERVAL numbers.n SECOND", "NULL"), seedScheduled}},
		{ended, []string{seedTask("'succeeded'", "@now - INTERVAL 1 HOUR", "@now"), seedAttempt, seedReceipt}},
	}
	for i, k := range kinds {
		prefix := fmt.Sprintf("0190%02x%02x", s.seeds, i) // older than what the API makes
		for from := 0; from < k.rows; from += seedRows {
			for _, statement := range k.insert {
				numbers := fmt.Sprintf(seedNumbers, from, min(seedRows, k.rows-from), queueID)
				query := strings.NewReplacer("{numbers}", numbers, "{id}", "UNHEX(CONCAT('"+prefix+"', LPAD(HEX(numbers.n), 24, '0')))", "@now", "NOW(6)").Replace(statement)
				if _, err := s.db.ExecContext(ctx, query); err != nil {
					return fmt.Errorf("seed: %w", err)
				}
			}
		}
	}
	_, err := s.db.ExecContext(ctx, "ANALYZE TABLE pulse_tasks, pulse_ready, pulse_scheduled, pulse_attempts, pulse_attempt_receipts")
	return err
}

const (
	seedDigits  = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	seedNumbers = "(SELECT %d + a.d + 10*b.d + 100*c.d + 1000*e.d AS n FROM " + seedDigits + " a JOIN " + seedDigits + " b JOIN " + seedDigits + " c JOIN " + seedDigits +
		" e WHERE a.d + 10*b.d + 100*c.d + 1000*e.d < %d ORDER BY n) AS numbers JOIN pulse_queues q ON q.id = UNHEX('%s')"

	seedReady = `INSERT INTO pulse_ready (namespace_id, queue_id, priority, rank_us, task_id)
SELECT t.namespace_id, t.queue_id, t.priority, t.rank_us, t.id FROM {numbers} JOIN pulse_tasks t ON t.namespace_id = q.namespace_id AND t.id = {id}`
	seedScheduled = `INSERT INTO pulse_scheduled (due_at, namespace_id, task_id, queue_id, priority, rank_us)
SELECT t.run_at, t.namespace_id, t.id, t.queue_id, t.priority, t.rank_us FROM {numbers} JOIN pulse_tasks t ON t.namespace_id = q.namespace_id AND t.id = {id}`
	seedAttempt = `INSERT INTO pulse_attempts (namespace_id, id, task_id, queue_id, generation, instance_id, session_id, epoch, claim_seq, token_digest, state, version, heartbeats,
  lease_ms, offered_at, started_at, ended_at, end_code, end_message)
SELECT q.namespace_id, {id}, {id}, q.id, 1, {id}, {id}, 1, 1, REPEAT('x', 32), 'succeeded', 3, 0, 30000, @now, @now, @now, '', '' FROM {numbers}`
	seedReceipt = `INSERT INTO pulse_attempt_receipts (namespace_id, attempt_id, digest, outcome, result, error_code, error_message, reply, created_at)
SELECT q.namespace_id, {id}, REPEAT('x', 32), 'succeeded', 'null', '', '', REPEAT('x', 200), @now FROM {numbers}`
)

func seedTask(state, runAt, finishedAt string) string {
	return `INSERT INTO pulse_tasks (namespace_id, id, queue_id, type, payload, payload_version, priority, rank_us, run_at, max_attempts, attempts_used, generation, idle_offers,
  trace_parent, trace_state, origin_kind, actor_id, state, failure_code, failure_message, revision, created_at, updated_at, finished_at, expires_at)
SELECT q.namespace_id, {id}, q.id, 'bench', CONCAT('{"text":"', REPEAT('x', 89), '"}'), 0, 5, CAST(UNIX_TIMESTAMP(` + runAt + `) * 1000000 AS SIGNED) + numbers.n, ` + runAt + `, 5, 0,
  ` + state + ` <> 'open', 0, '', '', '', q.id, ` + state + `, '', '', 1, @now, @now, ` + finishedAt + `, ` + finishedAt + ` + INTERVAL 7 DAY FROM {numbers}`
}
