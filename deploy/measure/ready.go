package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
)

// claiming is a way to keep and to claim tasks that are ready.
type claiming struct {
	name    string
	changes []string
	narrow  bool // ready rows are apart
	claim   func(b *bench, ctx context.Context, n int) ([]any, error)
}

var (
	claimed   = "ALTER TABLE pulse_tasks DROP CHECK ck_pulse_tasks_state" // which knows no state of claimed tasks
	byState   = "ALTER TABLE pulse_tasks ADD INDEX ix_measure_ready (namespace_id, queue_id, state, priority, rank_us, id)"
	byClaim   = "ALTER TABLE pulse_tasks ADD COLUMN claim_id BINARY(16) NULL, ADD INDEX ix_measure_claim (namespace_id, claim_id)"
	claimings = []claiming{
		{name: "ready table", narrow: true, claim: (*bench).claimReady},
		{name: "index of tasks, SELECT … SKIP LOCKED", changes: []string{claimed, byState}, claim: (*bench).claimSelected},
		{name: "index of tasks, UPDATE … ORDER BY … LIMIT, hinted", changes: []string{claimed, byState, byClaim}, claim: (*bench).claimUpdated},
	}
)

// Tasks that are accepted, claimed and ended in batches of 100, beside a backlog and as many tasks that have ended.
func askReady(ctx context.Context, s *server, o options) error {
	for _, backlog := range []int{o.rows / 50, o.rows / 5} {
		if err := claimBeside(ctx, s, backlog, o); err != nil {
			return err
		}
	}
	return nil
}

func claimBeside(ctx context.Context, s *server, backlog int, o options) (err error) {
	benches, lives := make([]*bench, len(claimings)), make([]turns, len(claimings))
	for i, c := range claimings {
		if benches[i], err = s.bench(ctx, fmt.Sprintf("measure_ready_%d", i), c.changes...); err != nil {
			return err
		}
		defer func() { benches[i].close(); err = errors.Join(err, s.drop(ctx, benches[i].database)) }()
		if err := c.seed(ctx, benches[i], backlog); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%d tasks: %s\n", backlog, c.name)
		lives[i] = turns{name: c.name, than: than(i), database: benches[i].database, turn: func(ctx context.Context) error { return c.lives(ctx, benches[i], o.lives/batchSize) }}
	}
	fmt.Printf("\n%d ready and %d ended, one connection:\n\n", backlog, backlog)
	if err := s.compare(ctx, lives, o.rounds, float64(o.lives)); err != nil {
		return err
	}
	fmt.Printf("\n%d ready and %d ended, %d connections that claim 10 each:\n\n", backlog, backlog, claimers)
	fmt.Println("| variant | CPU ms / 1,000 | claimed a second | deadlocks / 1,000 claims |\n|---|---|---|---|")
	costs, deadlocks := make([][]spent, len(claimings)), make([]int64, len(claimings))
	for range races {
		for i, c := range claimings {
			u, err := s.flushed(ctx, func() error {
				lost, err := c.race(ctx, benches[i])
				deadlocks[i] += lost
				return err
			})
			if err != nil {
				return err
			}
			costs[i] = append(costs[i], u)
		}
	}
	for i, c := range claimings {
		fmt.Printf("| %s | %.1f | %.0f | %.1f |\n", c.name, 1e6*median(each(costs[i], work))/raceTasks, raceTasks/median(each(costs[i], func(u spent) float64 { return u.wall.Seconds() })),
			1000*float64(deadlocks[i])/(races*raceTasks/10))
	}
	return unhinted(ctx, benches[2])
}

// than names what a way is compared with: the first.
func than(i int) string {
	if i == 0 {
		return ""
	}
	return claimings[0].name
}

// seed makes the backlog and the history, which nobody measures.
func (c claiming) seed(ctx context.Context, b *bench, backlog int) error {
	ended := strings.NewReplacer("'open'", "'succeeded'", "updated_at)", "updated_at, finished_at, expires_at)", "?, ?)\n", "?, ?, ?, ?)\n").Replace(pulsedb.InsertTask)
	if err := b.exec(ctx, "SET SESSION sql_log_bin = 0"); err != nil {
		return err
	}
	for range backlog / fillRow {
		history := b.tasks(fillRow, orbit.NewID)
		for i := range history {
			history[i] = append(history[i], b.now, b.now.Add(7*24*time.Hour))
		}
		if err := errors.Join(b.insert(ctx, ended, history), c.submit(ctx, b, fillRow)); err != nil {
			return err
		}
	}
	return errors.Join(b.exec(ctx, "ANALYZE TABLE pulse_tasks, pulse_ready"), b.exec(ctx, "SET SESSION sql_log_bin = 1"))
}

func (c claiming) submit(ctx context.Context, b *bench, n int) error {
	tasks := b.tasks(n, orbit.NewID)
	return b.transaction(ctx, func() error {
		if err := b.insert(ctx, pulsedb.InsertTask, tasks); err != nil || !c.narrow {
			return err
		}
		ready := make([][]any, n)
		for i, t := range tasks {
			ready[i] = b.ready(t)
		}
		return b.insert(ctx, pulsedb.InsertReady, ready)
	})
}

// ready is the row of a task, as InsertReady takes it.
func (b *bench) ready(task []any) []any {
	return []any{b.namespace, b.queue, task[6], task[7], task[1]}
}

func (c claiming) lives(ctx context.Context, b *bench, batches int) error {
	for range batches {
		if err := c.submit(ctx, b, batchSize); err != nil {
			return err
		}
		ids, err := c.claim(b, ctx, batchSize)
		if err != nil {
			return err
		}
		if len(ids) != batchSize {
			return fmt.Errorf("%d tasks were claimed", len(ids))
		}
		end := strings.NewReplacer("(/*SLICE:ids*/?)", list(batchSize))
		if !c.narrow {
			end = strings.NewReplacer("(/*SLICE:ids*/?)", list(batchSize), "state = 'open'", "state = 'claimed'")
		}
		args := append([]any{orbit.TaskSucceeded, "", "", 1, b.now, b.now, b.now.Add(7 * 24 * time.Hour), b.namespace}, ids...)
		if err := b.transaction(ctx, func() error { return b.exec(ctx, end.Replace(pulsedb.EndTasks), args...) }); err != nil {
			return err
		}
	}
	return nil
}

// claimReady is the service's way.
func (b *bench) claimReady(ctx context.Context, n int) (ids []any, err error) {
	err = b.transaction(ctx, func() error {
		rows, err := pulsedb.New(b).LockReady(ctx, pulsedb.LockReadyParams{NamespaceID: b.namespace, QueueID: b.queue, Limit: int32(n)})
		if err != nil || len(rows) == 0 {
			return err
		}
		var keys []any
		for _, r := range rows {
			keys = append(keys, r.Priority, r.RankUs, r.TaskID)
			ids = append(ids, r.TaskID)
		}
		remove := `DELETE r FROM (VALUES ROW(CAST(? AS UNSIGNED),CAST(? AS SIGNED),CAST(? AS BINARY(16)))` + strings.Repeat(`,ROW(?,?,?)`, len(rows)-1) + `) AS v(priority, rank_us, task_id)
STRAIGHT_JOIN pulse_ready r ON r.namespace_id = ? AND r.queue_id = ? AND r.priority = v.priority AND r.rank_us = v.rank_us AND r.task_id = v.task_id`
		if err := b.exec(ctx, remove, append(keys, b.namespace, b.queue)...); err != nil {
			return err
		}
		_, err = b.drain(ctx, offered+"WHERE namespace_id = ? AND id IN "+list(len(ids)), append([]any{b.namespace}, ids...)...)
		return err
	})
	return ids, err
}

const offered = `SELECT id, type, payload, payload_version, run_at, deadline_at, attempts_used, generation, trace_parent, trace_state FROM pulse_tasks `

// claimSelected locks tasks in the order of an index and then marks them.
func (b *bench) claimSelected(ctx context.Context, n int) (ids []any, err error) {
	err = b.transaction(ctx, func() error {
		if ids, err = b.ids(ctx, offered+`FORCE INDEX (ix_measure_ready) WHERE namespace_id = ? AND queue_id = ? AND state = 'open' ORDER BY priority, rank_us, id LIMIT ? FOR UPDATE SKIP LOCKED`,
			b.namespace, b.queue, n); err != nil || len(ids) == 0 {
			return err
		}
		return b.exec(ctx, "UPDATE /*+ INDEX(pulse_tasks PRIMARY) */ pulse_tasks SET state = 'claimed', revision = revision + 1, updated_at = ? WHERE namespace_id = ? AND id IN "+list(len(ids))+" AND state = 'open'",
			append([]any{b.now, b.namespace}, ids...)...)
	})
	return ids, err
}

const updateClaim = `SET state = 'claimed', claim_id = ?, revision = revision + 1, updated_at = ? WHERE namespace_id = ? AND queue_id = ? AND state = 'open' ORDER BY priority, rank_us, id LIMIT ?`

// claimUpdated marks tasks in the order of an index and then reads them by the mark.
func (b *bench) claimUpdated(ctx context.Context, n int) (ids []any, err error) {
	err = b.transaction(ctx, func() error {
		claim := orbit.NewID(time.Now())
		if err := b.exec(ctx, "UPDATE pulse_tasks FORCE INDEX (ix_measure_ready) "+updateClaim, claim, b.now, b.namespace, b.queue, n); err != nil {
			return err
		}
		ids, err = b.ids(ctx, offered+"FORCE INDEX (ix_measure_claim) WHERE namespace_id = ? AND claim_id = ?", b.namespace, claim)
		return err
	})
	return ids, err
}

// ids reads offered tasks.
func (b *bench) ids(ctx context.Context, query string, args ...any) (ids []any, err error) {
	rows, err := b.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id orbit.ID
		var rest [9]sql.RawBytes
		if err := rows.Scan(&id, &rest[0], &rest[1], &rest[2], &rest[3], &rest[4], &rest[5], &rest[6], &rest[7], &rest[8]); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

const (
	claimers  = 8
	races     = 3
	raceTasks = 10_000
)

// race has several connections claim at the same time.
func (c claiming) race(ctx context.Context, b *bench) (deadlocks int64, err error) {
	var left, lost atomic.Int64
	left.Store(raceTasks)
	failures := make([]error, claimers)
	var group sync.WaitGroup
	for i := range claimers {
		rival := *b
		if rival.Conn, err = b.pool.Conn(ctx); err != nil {
			return 0, err
		}
		group.Go(func() {
			defer rival.Conn.Close()
			for left.Add(-10) >= 0 && failures[i] == nil {
				_, err := c.claim(&rival, ctx, 10)
				var refused *mysql.MySQLError
				if errors.As(err, &refused) && refused.Number == 1213 {
					lost.Add(1)
					left.Add(10)
				} else {
					failures[i] = err
				}
			}
		})
	}
	group.Wait()
	return lost.Load(), errors.Join(failures...)
}

// unhinted tells how the server itself would do the update.
func unhinted(ctx context.Context, b *bench) error {
	var id, kind, table, partitions, access, possible, key, length, ref, rows, filtered, extra sql.NullString
	query := "EXPLAIN FORMAT=TRADITIONAL UPDATE pulse_tasks " + updateClaim
	if err := b.QueryRowContext(ctx, query, keyActor, b.now, b.namespace, b.queue, 100).Scan(&id, &kind, &table, &partitions, &access, &possible, &key, &length, &ref, &rows, &filtered, &extra); err != nil {
		return err
	}
	begin := time.Now()
	if err := b.transaction(ctx, func() error {
		return b.exec(ctx, "UPDATE pulse_tasks "+updateClaim, keyActor, b.now, b.namespace, b.queue, batchSize)
	}); err != nil {
		return err
	}
	fmt.Printf("\nUPDATE … ORDER BY … LIMIT without a hint goes by %s, %s, and takes %s for %d tasks\n", key.String, extra.String, time.Since(begin).Round(time.Millisecond), batchSize)
	return nil
}
