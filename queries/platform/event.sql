-- name: InsertEvent :exec
INSERT INTO orbit_events
  (namespace_id, batch_id, ordinal, aggregate_kind, aggregate_id, version, type, actor_id, data, occurred_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: InsertSpool :exec
-- The last statement before COMMIT: the sid taken here is above the sid of every transaction this one could have read.
INSERT INTO orbit_event_spool (namespace_id, batch_id, event_count) VALUES (?, ?, ?);

-- name: HostSpooledNamespaces :many
-- Namespaces with batches that wait for a position, in turns; a loose walk of the primary key.
SELECT DISTINCT namespace_id FROM orbit_event_spool
WHERE namespace_id > sqlc.arg(after_namespace) ORDER BY namespace_id LIMIT ?;

-- name: LockEventHead :one
-- One sequencer a namespace; a second one skips it.
SELECT next_position FROM orbit_event_heads WHERE namespace_id = ? FOR UPDATE SKIP LOCKED;

-- name: ListSpool :many
-- Plain on purpose: a scan that skipped locked rows would give a dependent batch its position first.
SELECT sid, batch_id, event_count FROM orbit_event_spool
WHERE namespace_id = ? ORDER BY sid LIMIT ?;

-- name: InsertLog :exec
INSERT INTO orbit_event_log (namespace_id, first_position, batch_id, event_count) VALUES (?, ?, ?, ?);

-- name: DeleteSpool :execrows
-- By key, whatever the size of the table: a scan would wait for the spool row of every open transaction.
DELETE /*+ INDEX(orbit_event_spool PRIMARY) */ FROM orbit_event_spool WHERE namespace_id = sqlc.arg(namespace_id) AND sid IN (sqlc.slice(sids));

-- name: AdvanceEventHead :execrows
UPDATE orbit_event_heads SET next_position = sqlc.arg(new_position)
WHERE namespace_id = sqlc.arg(namespace_id) AND next_position = sqlc.arg(next_position);

-- name: HostEventHeads :many
-- All namespaces in turns, for the passes that look at each.
SELECT namespace_id FROM orbit_event_heads
WHERE namespace_id > sqlc.arg(after_namespace) ORDER BY namespace_id LIMIT ?;

-- name: GetEventHead :one
SELECT next_position, trimmed_below FROM orbit_event_heads WHERE namespace_id = ?;

-- name: FindLogBatch :one
-- First position of the batch that holds a position, or that ends before it. Without the hint a server that takes the table for a small
-- one reads and sorts the whole log of the namespace; so too below.
SELECT first_position FROM orbit_event_log FORCE INDEX (PRIMARY)
WHERE namespace_id = sqlc.arg(namespace_id) AND first_position <= sqlc.arg(position)
ORDER BY first_position DESC LIMIT 1;

-- name: ListLog :many
-- Walks the primary key from a batch's start.
SELECT first_position, batch_id, event_count FROM orbit_event_log FORCE INDEX (PRIMARY)
WHERE namespace_id = sqlc.arg(namespace_id) AND first_position >= sqlc.arg(from_position)
ORDER BY first_position LIMIT ?;

-- name: ListEvents :many
-- The events of batches chosen before, in no order: a join with the log would read and sort everything above the position.
SELECT batch_id, ordinal, aggregate_kind, aggregate_id, version, type, actor_id, data, occurred_at
FROM orbit_events FORCE INDEX (PRIMARY)
WHERE namespace_id = sqlc.arg(namespace_id) AND batch_id IN (sqlc.slice(batch_ids));

-- name: ListOldLog :many
-- Oldest batches of a namespace, with the time of their first event.
SELECT l.first_position, l.batch_id, l.event_count, e.occurred_at
FROM orbit_event_log l
JOIN orbit_events e ON e.namespace_id = l.namespace_id AND e.batch_id = l.batch_id AND e.ordinal = 0
WHERE l.namespace_id = sqlc.arg(namespace_id)
ORDER BY l.first_position LIMIT ?;

-- name: DeleteEvents :execrows
DELETE /*+ INDEX(orbit_events PRIMARY) */ FROM orbit_events WHERE namespace_id = sqlc.arg(namespace_id) AND batch_id IN (sqlc.slice(batch_ids));

-- name: DeleteLog :execrows
DELETE /*+ INDEX(orbit_event_log PRIMARY) */ FROM orbit_event_log WHERE namespace_id = sqlc.arg(namespace_id) AND first_position < sqlc.arg(below);

-- name: TrimEventHead :execrows
UPDATE orbit_event_heads SET trimmed_below = sqlc.arg(below)
WHERE namespace_id = sqlc.arg(namespace_id) AND trimmed_below < sqlc.arg(below);
