-- name: LockSession :one
-- Exclusive: an opening, a close and an abandoned claim wait for every call of the incarnation, and the other way round.
SELECT * FROM pulse_worker_sessions WHERE namespace_id = ? AND worker_name = ? FOR UPDATE;

-- name: LockSessionByID :one
SELECT * FROM pulse_worker_sessions WHERE namespace_id = ? AND id = ? FOR UPDATE;

-- name: InsertSession :exec
INSERT INTO pulse_worker_sessions (namespace_id, id, worker_name, actor_id, epoch, instance_id, abandoned_claim, created_at, updated_at)
VALUES (?, ?, ?, ?, 1, ?, 0, ?, ?);

-- name: AdvanceSession :execrows
-- epoch → epoch + 1: everything of the older incarnation is fenced from the commit on.
UPDATE pulse_worker_sessions SET epoch = epoch + 1, instance_id = sqlc.arg(instance_id), abandoned_claim = 0, closed_at = NULL, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND epoch = sqlc.arg(epoch);

-- name: CloseSession :execrows
-- The current incarnation is fenced from the commit on; a repeat changes nothing.
UPDATE pulse_worker_sessions SET closed_at = CAST(sqlc.arg(now_at) AS DATETIME(6))
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND epoch = sqlc.arg(epoch) AND closed_at IS NULL;

-- name: AbandonClaims :execrows
-- Claims up to claim_seq are refused from the commit on, those still under way included: they share the row, and this waits for them or goes first.
UPDATE pulse_worker_sessions SET abandoned_claim = sqlc.arg(claim_seq)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND epoch = sqlc.arg(epoch) AND abandoned_claim < sqlc.arg(claim_seq);

-- name: InsertInstance :exec
INSERT INTO pulse_worker_instances
  (namespace_id, id, session_id, epoch, host, version, queues, types, slots, state, heartbeats, heartbeat_at, opened_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'live', 0, ?, ?);

-- name: GetInstance :one
SELECT * FROM pulse_worker_instances WHERE namespace_id = ? AND id = ?;

-- name: AwaitFences :many
-- The fence of a worker call that is judged by itself: shares the session head, so that no newer incarnation opens, none is closed and no claim
-- is abandoned before the commit. All that fences is in the head, which is read as it is; of the instance only what never changes is read,
-- and of the gates a hint whether any is closed.
SELECT i.id AS own_instance_id, s.id AS session_id, s.actor_id, s.epoch, s.instance_id, s.abandoned_claim, s.closed_at, g.closed_gates
FROM pulse_execution_gates g
STRAIGHT_JOIN pulse_worker_instances i ON i.namespace_id = g.namespace_id
STRAIGHT_JOIN pulse_worker_sessions s ON s.namespace_id = i.namespace_id AND s.id = i.session_id
WHERE g.namespace_id = sqlc.arg(namespace_id) AND g.scope = 'namespace' AND g.scope_id = '' AND i.namespace_id = sqlc.arg(namespace_id) AND i.id IN (sqlc.slice(instance_ids))
FOR SHARE OF s;

-- name: ShareFences :many
-- As AwaitFences, for the calls of a batch: a head that somebody holds is skipped, so that it stalls only its own worker's call.
SELECT i.id AS own_instance_id, s.id AS session_id, s.actor_id, s.epoch, s.instance_id, s.abandoned_claim, s.closed_at, g.closed_gates
FROM pulse_execution_gates g
STRAIGHT_JOIN pulse_worker_instances i ON i.namespace_id = g.namespace_id
STRAIGHT_JOIN pulse_worker_sessions s ON s.namespace_id = i.namespace_id AND s.id = i.session_id
WHERE g.namespace_id = sqlc.arg(namespace_id) AND g.scope = 'namespace' AND g.scope_id = '' AND i.namespace_id = sqlc.arg(namespace_id) AND i.id IN (sqlc.slice(instance_ids))
FOR SHARE OF s SKIP LOCKED;

-- name: SupersedeInstance :execrows
-- live or expired → superseded, and due for the sweep of its attempts.
UPDATE pulse_worker_instances SET state = 'superseded', ended_at = CAST(sqlc.arg(now_at) AS DATETIME(6)), sweep_due_at = CAST(sqlc.arg(now_at) AS DATETIME(6))
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND state IN ('live', 'expired');

-- name: CloseInstance :execrows
-- live or expired → closed, and due for the sweep of its attempts.
UPDATE pulse_worker_instances SET state = 'closed', ended_at = CAST(sqlc.arg(now_at) AS DATETIME(6)), sweep_due_at = CAST(sqlc.arg(now_at) AS DATETIME(6))
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND epoch = sqlc.arg(epoch) AND state IN ('live', 'expired');

-- name: BeatInstances :execrows
-- live or expired → live. The session heads are shared before: a superseded incarnation never gets here.
UPDATE pulse_worker_instances SET state = 'live', heartbeats = heartbeats + 1, heartbeat_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids)) AND state IN ('live', 'expired');

-- name: ListInstances :many
-- Walks the primary key in falling order: ids are the clients', and say nothing of time.
SELECT i.*, s.worker_name FROM pulse_worker_instances i
JOIN pulse_worker_sessions s ON s.namespace_id = i.namespace_id AND s.id = i.session_id
WHERE i.namespace_id = sqlc.arg(namespace_id) AND i.id < sqlc.arg(before_id)
ORDER BY i.id DESC LIMIT ?;

-- name: DueSilentInstances :many
-- Walks ix_pulse_worker_instances_silent.
SELECT namespace_id, id FROM pulse_worker_instances
WHERE state = 'live' AND heartbeat_at < sqlc.arg(silent_since) ORDER BY heartbeat_at LIMIT ?;

-- name: ExpireInstance :execrows
-- live → expired; a heartbeat brings it back while its epoch is current.
UPDATE pulse_worker_instances SET state = 'expired'
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND state = 'live' AND heartbeat_at < sqlc.arg(silent_since);

-- name: DueSweeps :many
-- Walks ix_pulse_worker_instances_sweep.
SELECT namespace_id, id FROM pulse_worker_instances
WHERE sweep_due_at <= CAST(sqlc.arg(now_at) AS DATETIME(6)) ORDER BY sweep_due_at LIMIT ?;

-- name: SweepDone :execrows
UPDATE pulse_worker_instances SET sweep_due_at = NULL
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND sweep_due_at IS NOT NULL;

-- name: DueEndedInstances :many
-- Walks ix_pulse_worker_instances_silent. Ended incarnations without attempts may be forgotten.
SELECT namespace_id, id FROM pulse_worker_instances
WHERE state = sqlc.arg(state) AND heartbeat_at < sqlc.arg(before_at) ORDER BY heartbeat_at LIMIT ?;

-- name: DeleteInstance :execrows
-- Never one that still owes a sweep.
DELETE FROM pulse_worker_instances
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND state IN ('superseded', 'closed') AND sweep_due_at IS NULL;
