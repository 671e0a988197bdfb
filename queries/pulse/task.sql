-- name: InsertTask :exec
INSERT INTO pulse_tasks
  (namespace_id, id, queue_id, type, payload, payload_version, priority, rank_us, run_at, deadline_at, max_attempts, attempts_used, generation, idle_offers,
   trace_parent, trace_state, actor_id, origin_kind, origin_id, state, failure_code, failure_message, revision, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, ?, ?, ?, ?, ?, 'open', '', '', 1, ?, ?);

-- name: InsertReady :exec
INSERT INTO pulse_ready (namespace_id, queue_id, priority, rank_us, task_id) VALUES (?, ?, ?, ?, ?);

-- name: InsertScheduled :exec
INSERT INTO pulse_scheduled (due_at, namespace_id, task_id, queue_id, priority, rank_us) VALUES (?, ?, ?, ?, ?, ?);

-- name: InsertBlocked :exec
INSERT INTO pulse_blocked (namespace_id, blocker_kind, blocker_id, priority, rank_us, task_id, queue_id) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: InsertDeadline :exec
INSERT INTO pulse_deadlines (deadline_at, namespace_id, task_id) VALUES (?, ?, ?);

-- name: TakeReady :execrows
-- The licence to move a ready task: whoever deletes the row has it.
DELETE FROM pulse_ready
WHERE namespace_id = sqlc.arg(namespace_id) AND queue_id = sqlc.arg(queue_id) AND priority = sqlc.arg(priority) AND rank_us = sqlc.arg(rank_us) AND task_id = sqlc.arg(task_id);

-- name: TakeScheduled :execrows
-- The licence to move a scheduled task.
DELETE FROM pulse_scheduled
WHERE due_at = sqlc.arg(due_at) AND namespace_id = sqlc.arg(namespace_id) AND task_id = sqlc.arg(task_id);

-- name: TakeBlocked :execrows
-- The licence to move a blocked task. Without the hint a small table is scanned, and whatever is held in it waited for.
DELETE /*+ INDEX(pulse_blocked uq_pulse_blocked_task) */ FROM pulse_blocked WHERE namespace_id = sqlc.arg(namespace_id) AND task_id = sqlc.arg(task_id);

-- name: DropDeadline :execrows
DELETE FROM pulse_deadlines
WHERE deadline_at = sqlc.arg(deadline_at) AND namespace_id = sqlc.arg(namespace_id) AND task_id = sqlc.arg(task_id);

-- name: PeekReady :one
-- Unlocked: orders queues before a claim, tells a waiter that there is work.
SELECT priority, rank_us FROM pulse_ready
WHERE namespace_id = sqlc.arg(namespace_id) AND queue_id = sqlc.arg(queue_id)
ORDER BY priority, rank_us, task_id LIMIT 1;

-- name: LockReady :many
-- Walks the primary key in claim order, covering: rows of rival claims are skipped, nothing is sorted, nothing else is locked.
SELECT priority, rank_us, task_id FROM pulse_ready
WHERE namespace_id = sqlc.arg(namespace_id) AND queue_id = sqlc.arg(queue_id)
ORDER BY priority, rank_us, task_id LIMIT ? FOR UPDATE SKIP LOCKED;

-- name: ListTasksToOffer :many
-- The rows as the holder of their licences sees them, with what their queue says of offers; a payload past the bound is left for ListPayloads.
SELECT t.id, t.type, CASE WHEN LENGTH(t.payload) <= CAST(sqlc.arg(inline_bytes) AS SIGNED) THEN t.payload ELSE '' END AS inline_payload, CAST(LENGTH(t.payload) AS SIGNED) AS payload_bytes,
  t.payload_version, t.run_at, t.deadline_at, t.attempts_used, t.generation, t.trace_parent, t.trace_state, q.lease_ms, q.offer_timeout_ms, q.one_step
FROM pulse_tasks t FORCE INDEX (PRIMARY)
STRAIGHT_JOIN pulse_queues q FORCE INDEX (PRIMARY) ON q.namespace_id = t.namespace_id AND q.id = t.queue_id
WHERE t.namespace_id = sqlc.arg(namespace_id) AND t.id IN (sqlc.slice(ids));

-- name: ListPayloads :many
SELECT id, payload FROM pulse_tasks WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids));

-- name: ListTaskHeads :many
-- As ListTasks, without the payload.
SELECT id, queue_id, type, priority, rank_us, run_at, deadline_at, max_attempts, attempts_used, generation, idle_offers, origin_kind, origin_id, state, revision
FROM pulse_tasks WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids));

-- name: LockTask :one
SELECT id, queue_id, type, priority, rank_us, run_at, deadline_at, max_attempts, attempts_used, generation, idle_offers, origin_kind, origin_id, state, revision
FROM pulse_tasks WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) FOR UPDATE;

-- name: EndTasks :execrows
-- open → succeeded, failed or cancelled, at the end of a live attempt: its generation is spent. Hinted as LockAttempts is.
UPDATE /*+ INDEX(pulse_tasks PRIMARY) */ pulse_tasks SET
  state = sqlc.arg(state), failure_code = sqlc.arg(failure_code), failure_message = sqlc.arg(failure_message),
  generation = generation + 1, attempts_used = attempts_used + CAST(sqlc.arg(used) AS SIGNED), idle_offers = 0,
  revision = revision + 1, updated_at = CAST(sqlc.arg(now_at) AS DATETIME(6)), finished_at = CAST(sqlc.arg(now_at) AS DATETIME(6)), expires_at = sqlc.arg(expires_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) AND state = 'open';

-- name: EndTask :execrows
-- open or review → succeeded, failed or cancelled, without a live attempt. On review the caller holds the row; on open its working row.
-- Without a failure the last one stays.
UPDATE pulse_tasks SET
  state = sqlc.arg(state), failure_code = COALESCE(sqlc.narg(failure_code), failure_code), failure_message = COALESCE(sqlc.narg(failure_message), failure_message), result_evidence_id = sqlc.arg(result_evidence_id),
  revision = revision + 1, updated_at = CAST(sqlc.arg(now_at) AS DATETIME(6)), finished_at = CAST(sqlc.arg(now_at) AS DATETIME(6)), expires_at = sqlc.arg(expires_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND revision = sqlc.arg(revision) AND state IN ('open', 'review');

-- name: RequeueTask :execrows
-- open → open, at the end of a live attempt: back to a working row, its generation spent. Without a failure the last one stays.
UPDATE pulse_tasks SET
  run_at = sqlc.arg(run_at), rank_us = sqlc.arg(rank_us),
  failure_code = COALESCE(sqlc.narg(failure_code), failure_code), failure_message = COALESCE(sqlc.narg(failure_message), failure_message),
  generation = generation + 1, attempts_used = sqlc.arg(attempts_used), idle_offers = sqlc.arg(idle_offers),
  revision = revision + 1, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND revision = sqlc.arg(revision) AND state = 'open';

-- name: ParkTask :execrows
-- open → review, at the end of a live attempt whose outcome nobody knows.
UPDATE pulse_tasks SET
  state = 'review', failure_code = sqlc.arg(failure_code), failure_message = sqlc.arg(failure_message),
  generation = generation + 1, attempts_used = attempts_used + 1, idle_offers = 0,
  revision = revision + 1, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND revision = sqlc.arg(revision) AND state = 'open';

-- name: ReopenTask :execrows
-- failed or review → open, with a new budget.
UPDATE pulse_tasks SET
  state = 'open', run_at = sqlc.arg(run_at), rank_us = sqlc.arg(rank_us), deadline_at = sqlc.arg(deadline_at), max_attempts = sqlc.arg(max_attempts),
  attempts_used = 0, idle_offers = 0, finished_at = NULL, expires_at = NULL,
  revision = revision + 1, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND revision = sqlc.arg(revision) AND state IN ('failed', 'review');

-- name: ViewTask :one
-- A task with where it is, in one statement and so from one snapshot: its working row by full key, or its live attempt.
SELECT sqlc.embed(t),
  r.task_id AS ready_id, s.due_at AS scheduled_at, b.blocker_kind, b.blocker_id,
  a.id AS attempt_id, a.state AS attempt_state, a.version AS attempt_version, a.cancel_requested_at, a.offered_at, a.started_at,
  o.schedule_id AS origin_schedule_id, o.fire_at AS origin_fire_at
FROM pulse_tasks t FORCE INDEX (PRIMARY)
LEFT JOIN pulse_ready r FORCE INDEX (PRIMARY) ON r.namespace_id = t.namespace_id AND r.queue_id = t.queue_id AND r.priority = t.priority AND r.rank_us = t.rank_us AND r.task_id = t.id
LEFT JOIN pulse_scheduled s FORCE INDEX (PRIMARY) ON s.due_at = t.run_at AND s.namespace_id = t.namespace_id AND s.task_id = t.id
LEFT JOIN pulse_blocked b FORCE INDEX (uq_pulse_blocked_task) ON b.namespace_id = t.namespace_id AND b.task_id = t.id
LEFT JOIN pulse_attempts a FORCE INDEX (uq_pulse_attempts_generation) ON a.namespace_id = t.namespace_id AND a.task_id = t.id AND a.generation = t.generation + 1
LEFT JOIN pulse_schedule_occurrences o FORCE INDEX (PRIMARY) ON o.namespace_id = t.namespace_id AND o.id = t.origin_id
WHERE t.namespace_id = sqlc.arg(namespace_id) AND t.id = sqlc.arg(id);

-- name: ViewTasks :many
-- The same for ids chosen before, without payloads, newest first.
SELECT t.id, t.queue_id, t.type, t.payload_version, t.priority, t.rank_us, t.run_at, t.deadline_at, t.max_attempts, t.attempts_used, t.generation,
  t.origin_kind, t.origin_id, t.state, t.failure_code, t.failure_message, t.revision, t.created_at, t.updated_at, t.finished_at, t.expires_at,
  r.task_id AS ready_id, s.due_at AS scheduled_at, b.blocker_kind, b.blocker_id,
  a.id AS attempt_id, a.state AS attempt_state, a.version AS attempt_version, a.cancel_requested_at, a.offered_at, a.started_at,
  o.schedule_id AS origin_schedule_id, o.fire_at AS origin_fire_at
FROM pulse_tasks t FORCE INDEX (PRIMARY)
LEFT JOIN pulse_ready r FORCE INDEX (PRIMARY) ON r.namespace_id = t.namespace_id AND r.queue_id = t.queue_id AND r.priority = t.priority AND r.rank_us = t.rank_us AND r.task_id = t.id
LEFT JOIN pulse_scheduled s FORCE INDEX (PRIMARY) ON s.due_at = t.run_at AND s.namespace_id = t.namespace_id AND s.task_id = t.id
LEFT JOIN pulse_blocked b FORCE INDEX (uq_pulse_blocked_task) ON b.namespace_id = t.namespace_id AND b.task_id = t.id
LEFT JOIN pulse_attempts a FORCE INDEX (uq_pulse_attempts_generation) ON a.namespace_id = t.namespace_id AND a.task_id = t.id AND a.generation = t.generation + 1
LEFT JOIN pulse_schedule_occurrences o FORCE INDEX (PRIMARY) ON o.namespace_id = t.namespace_id AND o.id = t.origin_id
WHERE t.namespace_id = sqlc.arg(namespace_id) AND t.id IN (sqlc.slice(ids))
ORDER BY t.id DESC;

-- name: DueScheduled :many
-- Walks the primary key, which leads with the due time. Hinted as DueLeases is.
SELECT namespace_id, task_id, queue_id, due_at, priority, rank_us FROM pulse_scheduled FORCE INDEX (PRIMARY)
WHERE due_at <= sqlc.arg(now_at) ORDER BY due_at LIMIT ?;

-- name: LockScheduled :many
-- Walks the primary key over a span of due times; rows that are held elsewhere are skipped.
SELECT due_at, task_id, queue_id, priority, rank_us FROM pulse_scheduled FORCE INDEX (PRIMARY)
WHERE due_at >= sqlc.arg(from_at) AND due_at <= sqlc.arg(to_at) AND namespace_id = sqlc.arg(namespace_id) AND task_id IN (sqlc.slice(task_ids))
FOR UPDATE SKIP LOCKED;

-- name: DueDeadlines :many
-- Walks the primary key, which leads with the deadline.
SELECT namespace_id, task_id, deadline_at FROM pulse_deadlines
WHERE deadline_at <= sqlc.arg(now_at) ORDER BY deadline_at LIMIT ?;

-- name: DueBlockers :many
-- The blockers that hold something, after one; a loose walk of the primary key: few, whatever the number of tasks behind them.
SELECT DISTINCT namespace_id, blocker_kind, blocker_id FROM pulse_blocked
WHERE namespace_id >= sqlc.arg(namespace_id) AND (namespace_id > sqlc.arg(namespace_id) OR blocker_kind > sqlc.arg(blocker_kind)
  OR (blocker_kind = sqlc.arg(blocker_kind) AND blocker_id > sqlc.arg(blocker_id)))
ORDER BY namespace_id, blocker_kind, blocker_id LIMIT ?;

-- name: LockBlocked :many
-- Walks the primary key of one blocker.
SELECT priority, rank_us, task_id, queue_id FROM pulse_blocked
WHERE namespace_id = sqlc.arg(namespace_id) AND blocker_kind = sqlc.arg(blocker_kind) AND blocker_id = sqlc.arg(blocker_id)
ORDER BY priority, rank_us, task_id LIMIT ? FOR UPDATE SKIP LOCKED;

-- name: DeleteBlocked :execrows
-- By the unique task; hinted as TakeBlocked is.
DELETE /*+ INDEX(pulse_blocked uq_pulse_blocked_task) */ FROM pulse_blocked WHERE namespace_id = sqlc.arg(namespace_id) AND task_id IN (sqlc.slice(task_ids));

-- name: DueExpiredTasks :many
-- Walks ix_pulse_tasks_expiry.
SELECT namespace_id, id FROM pulse_tasks WHERE expires_at <= CAST(sqlc.arg(now_at) AS DATETIME(6)) ORDER BY expires_at LIMIT ?;

-- name: LockExpiredTasks :many
-- Held against a manual retry, which would reopen the task.
SELECT id FROM pulse_tasks
WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) AND expires_at <= CAST(sqlc.arg(now_at) AS DATETIME(6))
FOR UPDATE SKIP LOCKED;

-- name: DeleteTasks :execrows
DELETE FROM pulse_tasks WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) AND expires_at IS NOT NULL;
