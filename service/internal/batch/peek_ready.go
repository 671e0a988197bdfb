package batch

import (
	"context"
	"database/sql"
	"strings"

	"github.com/orbit-run/orbit"
)

// Querier is a connection that is read from.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Queue names a queue by its full key.
type Queue struct{ NamespaceID, ID orbit.ID }

// PeekQueues gives those of queues, whosever they are, that a claim would find something in: there is a ready task, and neither the queue nor
// its namespace is paused. It locks nothing and reads a few index entries a queue, by primary key, however many tasks there are.
func PeekQueues(ctx context.Context, db Querier, queues []Queue) (claimable []Queue, err error) {
	if len(queues) == 0 {
		return nil, nil
	}
	args := make([]any, 0, 4*len(queues))
	for i, q := range queues {
		args = append(args, i, q.NamespaceID, q.ID, q.ID.String())
	}
	rows, err := db.QueryContext(ctx, peekHead+strings.Repeat(",ROW(?,?,?,?)", len(queues)-1)+peekTail, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var place int
		if err := rows.Scan(&place); err != nil {
			return nil, err
		}
		claimable = append(claimable, queues[place])
	}
	return claimable, rows.Err()
}

// Scalar subqueries are not made into joins, so that none of them can be turned into a walk of a whole table.
const (
	peekHead = `-- name: PeekQueues :many
SELECT v.place FROM (VALUES ROW(CAST(? AS SIGNED),CAST(? AS BINARY(16)),CAST(? AS BINARY(16)),?)`
	peekTail = `) AS v(place, namespace_id, queue_id, scope_id)
WHERE (SELECT 1 FROM pulse_ready r FORCE INDEX (PRIMARY) WHERE r.namespace_id = v.namespace_id AND r.queue_id = v.queue_id LIMIT 1) IS NOT NULL
  AND (SELECT 1 FROM pulse_execution_gates n FORCE INDEX (PRIMARY)
    WHERE n.namespace_id = v.namespace_id AND n.scope = 'namespace' AND n.scope_id = '' AND n.state = 'closed' LIMIT 1) IS NULL
  AND (SELECT 1 FROM pulse_execution_gates g FORCE INDEX (PRIMARY)
    WHERE g.namespace_id = v.namespace_id AND g.scope = 'queue' AND g.scope_id = v.scope_id AND g.state = 'closed' LIMIT 1) IS NULL`
)
