// Package batch holds the statements that the query compiler cannot write: multi-row inserts made from a generated
// single-row one, and the delete of ready rows by full key.
package batch

import (
	"fmt"
	"strings"

	"github.com/orbit-run/orbit"
)

// Collector is a transaction that keeps writes and sends them together; each must change so many rows.
type Collector interface {
	Collect(query string, args []any, rows int)
}

// maxBytes bounds one statement's values, far below the server's packet size, which is checked at start.
const maxBytes = 4 << 20

// Insert collects a generated single-row INSERT for many rows, as few statements as their size allows. Each row has
// the arguments of the generated query, in its order.
func Insert(tx Collector, query string, rows [][]any) error {
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
		tx.Collect(head+strings.Repeat(tuple+",", n-1)+tuple+tail, args, n)
		rows = rows[n:]
	}
	return nil
}

func fit(rows [][]any) int {
	size := 0
	for i, r := range rows {
		if size += Size(r); size > maxBytes && i > 0 {
			return i
		}
	}
	return len(rows)
}

// Size is about how many bytes arguments take in a statement.
func Size(args []any) int {
	size := 0
	for _, v := range args {
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
	return size
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

// DeleteReady collects the delete of ready rows of one queue by full key. A join on the values is used because IN over
// tuples scans, and then deadlocks, on small tables.
func DeleteReady(tx Collector, namespaceID, queueID orbit.ID, rows []ReadyRow) {
	args := make([]any, 0, 3*len(rows)+2)
	for _, r := range rows {
		args = append(args, r.Priority, r.RankUs, r.TaskID)
	}
	query := `DELETE r FROM (VALUES ROW(CAST(? AS UNSIGNED),CAST(? AS SIGNED),CAST(? AS BINARY(16)))` +
		strings.Repeat(`,ROW(?,?,?)`, len(rows)-1) + `) AS v(priority, rank_us, task_id)
STRAIGHT_JOIN pulse_ready r ON r.namespace_id = ? AND r.queue_id = ? AND r.priority = v.priority AND r.rank_us = v.rank_us AND r.task_id = v.task_id`
	tx.Collect(query, append(args, namespaceID, queueID), len(rows))
}
