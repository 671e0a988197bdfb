-- name: InsertQueue :exec
INSERT INTO pulse_queues
  (namespace_id, id, name, lease_ms, offer_timeout_ms, max_attempts, backoff_initial_ms, backoff_max_ms, retention_ms, unknown_outcome, one_step, revision, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?);

-- name: GetQueue :one
SELECT * FROM pulse_queues WHERE namespace_id = ? AND id = ?;

-- name: GetQueueByName :one
SELECT * FROM pulse_queues WHERE namespace_id = ? AND name = ?;

-- name: ListQueuesByID :many
SELECT * FROM pulse_queues WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids));

-- name: ListQueuesByName :many
SELECT * FROM pulse_queues WHERE namespace_id = sqlc.arg(namespace_id) AND name IN (sqlc.slice(names));

-- name: ListQueues :many
-- Walks the primary key, newest first; the cursor is the last id seen.
SELECT * FROM pulse_queues
WHERE namespace_id = sqlc.arg(namespace_id) AND id < sqlc.arg(before_id)
ORDER BY id DESC LIMIT ?;

-- name: UpdateQueue :execrows
UPDATE pulse_queues SET
  lease_ms = sqlc.arg(lease_ms), offer_timeout_ms = sqlc.arg(offer_timeout_ms), max_attempts = sqlc.arg(max_attempts),
  backoff_initial_ms = sqlc.arg(backoff_initial_ms), backoff_max_ms = sqlc.arg(backoff_max_ms), retention_ms = sqlc.arg(retention_ms),
  unknown_outcome = sqlc.arg(unknown_outcome), one_step = sqlc.arg(one_step), revision = revision + 1, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND revision = sqlc.arg(revision);
