-- name: InsertQueue :exec
INSERT INTO pulse_queues
  (namespace_id, id, name, lease_ms, offer_timeout_ms, max_attempts, backoff_initial_ms, backoff_max_ms, retention_ms, unknown_outcome, revision, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?);

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
  unknown_outcome = sqlc.arg(unknown_outcome), revision = revision + 1, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND revision = sqlc.arg(revision);

-- name: CountReady :one
-- Bounded: reads at most the limit, in the covering primary key.
SELECT COUNT(*) FROM (SELECT r.task_id FROM pulse_ready r WHERE r.namespace_id = sqlc.arg(namespace_id) AND r.queue_id = sqlc.arg(queue_id) LIMIT ?) AS bounded;

-- name: CountScheduled :one
SELECT COUNT(*) FROM (SELECT s.task_id FROM pulse_scheduled s WHERE s.namespace_id = sqlc.arg(namespace_id) AND s.queue_id = sqlc.arg(queue_id) LIMIT ?) AS bounded;

-- name: CountBlocked :one
SELECT COUNT(*) FROM (SELECT b.task_id FROM pulse_blocked b WHERE b.namespace_id = sqlc.arg(namespace_id) AND b.queue_id = sqlc.arg(queue_id) LIMIT ?) AS bounded;

-- name: CountLive :one
-- Walks ix_pulse_attempts_live.
SELECT COUNT(*) FROM (SELECT a.id FROM pulse_attempts a
  WHERE a.namespace_id = sqlc.arg(namespace_id) AND a.live_queue_id = sqlc.arg(queue_id) AND a.state = sqlc.arg(state) LIMIT ?) AS bounded;

-- name: CountReview :one
-- Walks ix_pulse_tasks_list.
SELECT COUNT(*) FROM (SELECT t.id FROM pulse_tasks t
  WHERE t.namespace_id = sqlc.arg(namespace_id) AND t.queue_id = sqlc.arg(queue_id) AND t.state = 'review' LIMIT ?) AS bounded;

-- name: OldestReady :one
-- The first row of each priority is its oldest; one dive a priority.
SELECT CAST(COALESCE(MIN(r.rank_us), 0) AS SIGNED) AS rank_us FROM pulse_ready r
WHERE r.namespace_id = sqlc.arg(namespace_id) AND r.queue_id = sqlc.arg(queue_id) AND r.priority = sqlc.arg(priority);
