// Package batch holds the statements that the query compiler cannot write: multi-row inserts made from a generated
// single-row one, and the delete of ready rows by full key.
package batch

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/orbit-run/orbit"
)

// Executor is a transaction or a connection.
type Executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// maxBytes bounds one statement's values, far below the server's packet size, which is checked at start.
const maxBytes = 4 << 20

// Insert runs a generated single-row INSERT for many rows, with as few statements as the packet size allows. Each row has
// the arguments of the generated query, in its order.
func Insert(ctx context.Context, tx Executor, query string, rows [][]any) error {
	head, tuple, tail, err := split(query)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		n := fit(rows)
		args := make([]any, 0, n*len(rows[0]))
		for _, r := range rows[:n] {
			args = append(args, r...)
		}
		if _, err := tx.ExecContext(ctx, head+strings.Repeat(tuple+",", n-1)+tuple+tail, args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func fit(rows [][]any) int {
	size := 0
	for i, r := range rows {
		for _, v := range r {
			size += 24
			switch v := v.(type) {
			case string:
				size += len(v)
			case *string:
				if v != nil {
					size += len(*v)
				}
			case []byte:
				size += len(v)
			}
		}
		if size > maxBytes && i > 0 {
			return i
		}
	}
	return len(rows)
}

func split(query string) (head, tuple, tail string, err error) {
	i := strings.Index(query, "VALUES (")
	if i < 0 {
		return "", "", "", fmt.Errorf("no VALUES tuple in %.60q", query)
	}
	start := i + len("VALUES ")
	depth := 0
	for k := start; k < len(query); k++ {
		switch query[k] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return query[:start], query[start : k+1], query[k+1:], nil
			}
		}
	}
	return "", "", "", fmt.Errorf("unclosed VALUES tuple in %.60q", query)
}

// ReadyRow names a ready row of one queue by the rest of its key.
type ReadyRow struct {
	Priority uint8
	RankUs   int64
	TaskID   orbit.ID
}

// DeleteReady deletes ready rows of one queue by full key and answers how many there were. A join on the values is used because IN over
// tuples scans, and then deadlocks, on small tables.
func DeleteReady(ctx context.Context, tx Executor, namespaceID, queueID orbit.ID, rows []ReadyRow) (int64, error) {
	args := make([]any, 0, 3*len(rows)+2)
	for _, r := range rows {
		args = append(args, r.Priority, r.RankUs, r.TaskID)
	}
	query := `DELETE r FROM (VALUES ROW(CAST(? AS UNSIGNED),CAST(? AS SIGNED),CAST(? AS BINARY(16)))` +
		strings.Repeat(`,ROW(?,?,?)`, len(rows)-1) + `) AS v(priority, rank_us, task_id)
STRAIGHT_JOIN pulse_ready r ON r.namespace_id = ? AND r.queue_id = ? AND r.priority = v.priority AND r.rank_us = v.rank_us AND r.task_id = v.task_id`
	res, err := tx.ExecContext(ctx, query, append(args, namespaceID, queueID)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
