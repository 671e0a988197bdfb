-- name: ListTaskAttempts :many
-- Walks uq_pulse_attempts_generation, newest first; no bodies.
SELECT a.id, a.task_id, a.queue_id, a.generation, a.instance_id, a.epoch, a.claim_seq, a.state, a.lease_until, a.cancel_requested_at,
  a.offered_at, a.started_at, a.ended_at, a.end_code, a.end_message, COALESCE(s.worker_name, '') AS worker_name
FROM pulse_attempts a FORCE INDEX (uq_pulse_attempts_generation)
LEFT JOIN pulse_worker_sessions s FORCE INDEX (PRIMARY) ON s.namespace_id = a.namespace_id AND s.id = a.session_id
WHERE a.namespace_id = sqlc.arg(namespace_id) AND a.task_id = sqlc.arg(task_id) AND a.generation < sqlc.arg(before_generation)
ORDER BY a.generation DESC LIMIT ?;

-- name: ViewAttempt :one
-- An attempt with its progress and with what was taken from it.
SELECT a.id, a.task_id, a.queue_id, a.generation, a.instance_id, a.epoch, a.claim_seq, a.state, a.lease_until, a.cancel_requested_at,
  a.offered_at, a.started_at, a.ended_at, a.end_code, a.end_message, COALESCE(s.worker_name, '') AS worker_name,
  a.progress, c.reply, c.result
FROM pulse_attempts a
LEFT JOIN pulse_worker_sessions s FORCE INDEX (PRIMARY) ON s.namespace_id = a.namespace_id AND s.id = a.session_id
LEFT JOIN pulse_attempt_receipts c FORCE INDEX (PRIMARY) ON c.namespace_id = a.namespace_id AND c.attempt_id = a.id
WHERE a.namespace_id = sqlc.arg(namespace_id) AND a.id = sqlc.arg(id);

-- name: GetAttemptQueue :one
SELECT queue_id FROM pulse_attempts WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id);

-- name: GetTaskQueue :one
SELECT queue_id FROM pulse_tasks WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id);

-- name: ListEvidence :many
-- Walks ix_pulse_attempt_evidence_page, newest first.
SELECT id, reason, outcome, error_code, error_message, created_at FROM pulse_attempt_evidence FORCE INDEX (ix_pulse_attempt_evidence_page)
WHERE namespace_id = sqlc.arg(namespace_id) AND attempt_id = sqlc.arg(attempt_id)
  AND created_at <= sqlc.arg(before_at) AND (created_at < sqlc.arg(before_at) OR id < sqlc.arg(before_id))
ORDER BY created_at DESC, id DESC LIMIT ?;

-- name: PageTasks :many
-- Walks the primary key, newest first; reads a bounded stretch, which the caller filters.
SELECT id, queue_id, type, state FROM pulse_tasks FORCE INDEX (PRIMARY)
WHERE namespace_id = sqlc.arg(namespace_id) AND id < sqlc.arg(before_id)
ORDER BY id DESC LIMIT ?;

-- name: PageTasksByState :many
-- Walks ix_pulse_tasks_list, newest first, for one queue and state.
SELECT id, queue_id, type, state FROM pulse_tasks FORCE INDEX (ix_pulse_tasks_list)
WHERE namespace_id = sqlc.arg(namespace_id) AND queue_id = sqlc.arg(queue_id) AND state = sqlc.arg(state) AND id < sqlc.arg(before_id)
ORDER BY id DESC LIMIT ?;

-- name: PageTasksByQueue :many
-- Walks ix_pulse_tasks_list once a state and merges, newest first. One statement, so that a task that changes its state while the
-- states are read one after the other is neither missed nor met twice.
(SELECT o.id, o.queue_id, o.type, o.state FROM pulse_tasks o FORCE INDEX (ix_pulse_tasks_list)
 WHERE o.namespace_id = sqlc.arg(namespace_id) AND o.queue_id = sqlc.arg(queue_id) AND o.state = 'open' AND o.id < sqlc.arg(before_id) ORDER BY o.id DESC LIMIT ?)
UNION ALL
(SELECT r.id, r.queue_id, r.type, r.state FROM pulse_tasks r FORCE INDEX (ix_pulse_tasks_list)
 WHERE r.namespace_id = sqlc.arg(namespace_id) AND r.queue_id = sqlc.arg(queue_id) AND r.state = 'review' AND r.id < sqlc.arg(before_id) ORDER BY r.id DESC LIMIT ?)
UNION ALL
(SELECT s.id, s.queue_id, s.type, s.state FROM pulse_tasks s FORCE INDEX (ix_pulse_tasks_list)
 WHERE s.namespace_id = sqlc.arg(namespace_id) AND s.queue_id = sqlc.arg(queue_id) AND s.state = 'succeeded' AND s.id < sqlc.arg(before_id) ORDER BY s.id DESC LIMIT ?)
UNION ALL
(SELECT f.id, f.queue_id, f.type, f.state FROM pulse_tasks f FORCE INDEX (ix_pulse_tasks_list)
 WHERE f.namespace_id = sqlc.arg(namespace_id) AND f.queue_id = sqlc.arg(queue_id) AND f.state = 'failed' AND f.id < sqlc.arg(before_id) ORDER BY f.id DESC LIMIT ?)
UNION ALL
(SELECT c.id, c.queue_id, c.type, c.state FROM pulse_tasks c FORCE INDEX (ix_pulse_tasks_list)
 WHERE c.namespace_id = sqlc.arg(namespace_id) AND c.queue_id = sqlc.arg(queue_id) AND c.state = 'cancelled' AND c.id < sqlc.arg(before_id) ORDER BY c.id DESC LIMIT ?)
ORDER BY id DESC LIMIT ?;

-- name: ListLiveTasks :many
-- Walks ix_pulse_attempts_live of one queue, which holds live attempts only; bounded by the limit, in no order.
SELECT a.task_id, a.queue_id, t.type FROM pulse_attempts a FORCE INDEX (ix_pulse_attempts_live)
JOIN pulse_tasks t FORCE INDEX (PRIMARY) ON t.namespace_id = a.namespace_id AND t.id = a.task_id
WHERE a.namespace_id = sqlc.arg(namespace_id) AND a.live_queue_id = sqlc.arg(queue_id) LIMIT ?;

-- name: CountQueue :one
-- Counts that stop at their limit, all in one snapshot: each reads at most that many entries of an index that leads with the queue.
SELECT
  (SELECT COUNT(*) FROM (SELECT r.task_id FROM pulse_ready r
    WHERE r.namespace_id = sqlc.arg(namespace_id) AND r.queue_id = sqlc.arg(queue_id) LIMIT 10001) AS b1) AS ready,
  (SELECT COUNT(*) FROM (SELECT s.task_id FROM pulse_scheduled s FORCE INDEX (ix_pulse_scheduled_queue)
    WHERE s.namespace_id = sqlc.arg(namespace_id) AND s.queue_id = sqlc.arg(queue_id) LIMIT 10001) AS b2) AS scheduled,
  (SELECT COUNT(*) FROM (SELECT b.task_id FROM pulse_blocked b FORCE INDEX (ix_pulse_blocked_queue)
    WHERE b.namespace_id = sqlc.arg(namespace_id) AND b.queue_id = sqlc.arg(queue_id) LIMIT 10001) AS b3) AS blocked,
  (SELECT COUNT(*) FROM (SELECT t.id FROM pulse_tasks t FORCE INDEX (ix_pulse_tasks_list)
    WHERE t.namespace_id = sqlc.arg(namespace_id) AND t.queue_id = sqlc.arg(queue_id) AND t.state = 'review' LIMIT 10001) AS b4) AS review;

-- name: CountLive :many
-- Walks ix_pulse_attempts_live; the limit bounds the live attempts read, whatever their states.
SELECT b.state, COUNT(*) AS attempts FROM (SELECT a.state FROM pulse_attempts a FORCE INDEX (ix_pulse_attempts_live)
  WHERE a.namespace_id = sqlc.arg(namespace_id) AND a.live_queue_id = sqlc.arg(queue_id) LIMIT 10001) AS b
GROUP BY b.state;

-- name: OldestReady :one
-- The first row of each priority is its oldest: nine dives into the primary key.
SELECT CAST(COALESCE(MIN(o.rank_us), -1) AS SIGNED) AS rank_us FROM (
  SELECT MIN(r1.rank_us) AS rank_us FROM pulse_ready r1 FORCE INDEX (PRIMARY) WHERE r1.namespace_id = sqlc.arg(namespace_id) AND r1.queue_id = sqlc.arg(queue_id) AND r1.priority = 1
  UNION ALL SELECT MIN(r2.rank_us) FROM pulse_ready r2 FORCE INDEX (PRIMARY) WHERE r2.namespace_id = sqlc.arg(namespace_id) AND r2.queue_id = sqlc.arg(queue_id) AND r2.priority = 2
  UNION ALL SELECT MIN(r3.rank_us) FROM pulse_ready r3 FORCE INDEX (PRIMARY) WHERE r3.namespace_id = sqlc.arg(namespace_id) AND r3.queue_id = sqlc.arg(queue_id) AND r3.priority = 3
  UNION ALL SELECT MIN(r4.rank_us) FROM pulse_ready r4 FORCE INDEX (PRIMARY) WHERE r4.namespace_id = sqlc.arg(namespace_id) AND r4.queue_id = sqlc.arg(queue_id) AND r4.priority = 4
  UNION ALL SELECT MIN(r5.rank_us) FROM pulse_ready r5 FORCE INDEX (PRIMARY) WHERE r5.namespace_id = sqlc.arg(namespace_id) AND r5.queue_id = sqlc.arg(queue_id) AND r5.priority = 5
  UNION ALL SELECT MIN(r6.rank_us) FROM pulse_ready r6 FORCE INDEX (PRIMARY) WHERE r6.namespace_id = sqlc.arg(namespace_id) AND r6.queue_id = sqlc.arg(queue_id) AND r6.priority = 6
  UNION ALL SELECT MIN(r7.rank_us) FROM pulse_ready r7 FORCE INDEX (PRIMARY) WHERE r7.namespace_id = sqlc.arg(namespace_id) AND r7.queue_id = sqlc.arg(queue_id) AND r7.priority = 7
  UNION ALL SELECT MIN(r8.rank_us) FROM pulse_ready r8 FORCE INDEX (PRIMARY) WHERE r8.namespace_id = sqlc.arg(namespace_id) AND r8.queue_id = sqlc.arg(queue_id) AND r8.priority = 8
  UNION ALL SELECT MIN(r9.rank_us) FROM pulse_ready r9 FORCE INDEX (PRIMARY) WHERE r9.namespace_id = sqlc.arg(namespace_id) AND r9.queue_id = sqlc.arg(queue_id) AND r9.priority = 9
) AS o;

-- name: CountLiveByInstance :many
-- Walks ix_pulse_attempts_instance, which holds live attempts only, in its order: where the limit cuts, what is missing belongs to the
-- greatest instance ids.
SELECT b.live_instance_id, COUNT(*) AS attempts FROM (SELECT a.live_instance_id FROM pulse_attempts a FORCE INDEX (ix_pulse_attempts_instance)
  WHERE a.namespace_id = sqlc.arg(namespace_id) AND a.live_instance_id IN (sqlc.slice(instance_ids))
  ORDER BY a.live_instance_id LIMIT ?) AS b
GROUP BY b.live_instance_id;
