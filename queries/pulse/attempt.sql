-- name: InsertAttempt :exec
-- The unique generation is the second guard of the licence: two offers of one generation cannot both commit.
INSERT INTO pulse_attempts
  (namespace_id, id, task_id, queue_id, generation, instance_id, session_id, epoch, claim_seq, token_digest, state, version, heartbeats,
   lease_ms, lease_until, live_instance_id, live_queue_id, offered_at, started_at, end_code, end_message)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 0, ?, ?, ?, ?, ?, ?, '', '');

-- name: GetAttempt :one
SELECT * FROM pulse_attempts WHERE namespace_id = ? AND id = ?;

-- name: ListAttemptsByID :many
-- Plain: answers repeats and tells losers why.
SELECT * FROM pulse_attempts WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids));

-- name: LockAttempts :many
-- By primary key, with their tasks and queues. A row that is held elsewhere is skipped, so that it stalls only itself; the caller settles it
-- alone. The task needs no lock: nobody writes it while its attempt is live, and it was last written before the attempt was. The hints here and
-- below are for tables that have just begun to fill: by their statistics any index looks as good, and another one walks, and locks, the namespace.
SELECT sqlc.embed(a), sqlc.embed(q),
  t.id, t.queue_id, t.type, t.priority, t.rank_us, t.run_at, t.deadline_at, t.max_attempts, t.attempts_used, t.generation, t.idle_offers, t.origin_kind, t.origin_id, t.state, t.revision
FROM pulse_attempts a FORCE INDEX (PRIMARY)
STRAIGHT_JOIN pulse_tasks t FORCE INDEX (PRIMARY) ON t.namespace_id = a.namespace_id AND t.id = a.task_id
STRAIGHT_JOIN pulse_queues q FORCE INDEX (PRIMARY) ON q.namespace_id = t.namespace_id AND q.id = t.queue_id
WHERE a.namespace_id = sqlc.arg(namespace_id) AND a.id IN (sqlc.slice(ids)) ORDER BY a.id FOR UPDATE OF a SKIP LOCKED;

-- name: AwaitAttempts :many
-- As LockAttempts, for the single lane, which has one: waits for the row.
SELECT sqlc.embed(a), sqlc.embed(q),
  t.id, t.queue_id, t.type, t.priority, t.rank_us, t.run_at, t.deadline_at, t.max_attempts, t.attempts_used, t.generation, t.idle_offers, t.origin_kind, t.origin_id, t.state, t.revision
FROM pulse_attempts a FORCE INDEX (PRIMARY)
STRAIGHT_JOIN pulse_tasks t FORCE INDEX (PRIMARY) ON t.namespace_id = a.namespace_id AND t.id = a.task_id
STRAIGHT_JOIN pulse_queues q FORCE INDEX (PRIMARY) ON q.namespace_id = t.namespace_id AND q.id = t.queue_id
WHERE a.namespace_id = sqlc.arg(namespace_id) AND a.id IN (sqlc.slice(ids)) ORDER BY a.id FOR UPDATE OF a;

-- name: LockAttempt :one
-- The licence of a cancel or a deadline: waits for the row.
SELECT * FROM pulse_attempts WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) FOR UPDATE;

-- name: FindLiveAttempt :one
-- Plain, by the unique generation: the candidate of a cancel or a deadline, which then locks it by primary key.
SELECT id FROM pulse_attempts
WHERE namespace_id = sqlc.arg(namespace_id) AND task_id = sqlc.arg(task_id) AND generation = sqlc.arg(generation) AND lease_until IS NOT NULL;

-- name: StartAttempts :execrows
-- offered → running; the rows are held, so that all must change.
UPDATE /*+ INDEX(pulse_attempts PRIMARY) */ pulse_attempts SET state = 'running', version = version + 1, started_at = CAST(sqlc.arg(now_at) AS DATETIME(6)), lease_ms = sqlc.arg(lease_ms), lease_until = sqlc.arg(lease_until)
WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) AND state = 'offered';

-- name: BeatAttempts :execrows
-- running → running with a new lease. Lease ends are not compared: only recovery's swap ends a lease.
UPDATE /*+ INDEX(pulse_attempts PRIMARY) */ pulse_attempts SET heartbeats = heartbeats + 1, lease_until = TIMESTAMPADD(MICROSECOND, CAST(lease_ms * 1000 AS SIGNED), CAST(sqlc.arg(now_at) AS DATETIME(6)))
WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) AND state = 'running';

-- name: SetProgress :execrows
UPDATE pulse_attempts SET heartbeats = heartbeats + 1, progress = sqlc.arg(progress)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND state = 'running';

-- name: RequestCancel :execrows
-- running → running, cancellation asked for; the worker learns at its next heartbeat.
UPDATE pulse_attempts SET version = version + 1, cancel_requested_at = CAST(sqlc.arg(now_at) AS DATETIME(6))
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND version = sqlc.arg(version) AND state = 'running' AND cancel_requested_at IS NULL;

-- name: EndAttempts :execrows
-- offered or running → an ended state; the rows are held, so that all must change.
UPDATE /*+ INDEX(pulse_attempts PRIMARY) */ pulse_attempts SET state = sqlc.arg(state), version = version + 1, lease_until = NULL, live_instance_id = NULL, live_queue_id = NULL,
  ended_at = CAST(sqlc.arg(now_at) AS DATETIME(6)), end_code = sqlc.arg(end_code), end_message = sqlc.arg(end_message)
WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) AND lease_until IS NOT NULL;

-- name: ListClaimAttempts :many
-- Walks ix_pulse_attempts_instance.
SELECT id, state, offered_at, started_at, heartbeats FROM pulse_attempts
WHERE namespace_id = sqlc.arg(namespace_id) AND live_instance_id = sqlc.arg(instance_id) AND claim_seq = sqlc.arg(claim_seq);

-- name: ListInstanceAttempts :many
-- Walks ix_pulse_attempts_instance.
SELECT id FROM pulse_attempts
WHERE namespace_id = sqlc.arg(namespace_id) AND live_instance_id = sqlc.arg(instance_id) LIMIT ?;

-- name: DueLeases :many
-- Walks ix_pulse_attempts_lease, which leads with the end of the lease. Leases longer than the replica has been fresh are not its to judge.
-- The hint keeps a table that has just begun to fill from being scanned and sorted.
SELECT namespace_id, id FROM pulse_attempts FORCE INDEX (ix_pulse_attempts_lease)
WHERE lease_until <= CAST(sqlc.arg(now_at) AS DATETIME(6)) AND lease_ms <= CAST(sqlc.arg(fresh_ms) AS SIGNED) ORDER BY lease_until LIMIT ?;

-- name: GetTaskResult :one
-- The receipt of a generation.
SELECT c.outcome, c.result FROM pulse_attempts a
JOIN pulse_attempt_receipts c ON c.namespace_id = a.namespace_id AND c.attempt_id = a.id
WHERE a.namespace_id = sqlc.arg(namespace_id) AND a.task_id = sqlc.arg(task_id) AND a.generation = sqlc.arg(generation);

-- name: InsertReceipt :exec
INSERT INTO pulse_attempt_receipts (namespace_id, attempt_id, digest, outcome, result, error_code, error_message, reply, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: ListReceipts :many
SELECT attempt_id, digest, reply FROM pulse_attempt_receipts
WHERE namespace_id = sqlc.arg(namespace_id) AND attempt_id IN (sqlc.slice(attempt_ids));

-- name: InsertEvidence :exec
-- The same submission is kept once: the caller holds the attempt and has looked for it.
INSERT INTO pulse_attempt_evidence (namespace_id, id, attempt_id, digest, reason, outcome, result, error_code, error_message, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: FindEvidence :one
SELECT id FROM pulse_attempt_evidence WHERE namespace_id = ? AND attempt_id = ? AND digest = ?;

-- name: GetEvidence :one
SELECT * FROM pulse_attempt_evidence WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND attempt_id = sqlc.arg(attempt_id);

-- name: GetEvidenceByID :one
SELECT * FROM pulse_attempt_evidence WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id);

-- name: CountEvidence :one
SELECT COUNT(*) FROM pulse_attempt_evidence WHERE namespace_id = ? AND attempt_id = ?;

-- name: LockAttemptIDs :many
-- Walks uq_pulse_attempts_generation. Held, so that no late result is kept for what is being removed.
SELECT id FROM pulse_attempts FORCE INDEX (uq_pulse_attempts_generation)
WHERE namespace_id = sqlc.arg(namespace_id) AND task_id IN (sqlc.slice(task_ids)) FOR UPDATE;

-- name: DeleteEvidence :execrows
-- Without the hint a small table is scanned, and whatever is held in it waited for.
DELETE /*+ INDEX(pulse_attempt_evidence uq_pulse_attempt_evidence_digest) */ FROM pulse_attempt_evidence WHERE namespace_id = sqlc.arg(namespace_id) AND attempt_id IN (sqlc.slice(attempt_ids));

-- name: DeleteReceipts :execrows
DELETE FROM pulse_attempt_receipts WHERE namespace_id = sqlc.arg(namespace_id) AND attempt_id IN (sqlc.slice(attempt_ids));

-- name: DeleteAttempts :execrows
DELETE FROM pulse_attempts WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) AND lease_until IS NULL;
