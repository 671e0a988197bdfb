-- name: InsertRootGate :exec
-- The root row exists from the namespace's creation: a share lock on an absent row would fence nothing.
INSERT INTO pulse_execution_gates (namespace_id, scope, scope_id, state, control_version, reason, updated_at)
VALUES (?, 'namespace', '', 'open', 1, '', ?);

-- name: ShareRootGate :one
-- Held by a start until its commit: a close waits for it, and a start waits for a close.
-- closed_gates, which changes only under the exclusive row, spares the look at the other gates while all are open.
SELECT state, closed_gates FROM pulse_execution_gates WHERE namespace_id = ? AND scope = 'namespace' AND scope_id = '' FOR SHARE;

-- name: CountClosedGates :execrows
-- Under the exclusive root row: how many gates of the namespace are closed, kept on it.
UPDATE pulse_execution_gates SET closed_gates = CAST(closed_gates + sqlc.arg(more) AS SIGNED)
WHERE namespace_id = sqlc.arg(namespace_id) AND scope = 'namespace' AND scope_id = '';

-- name: LockRootGate :one
SELECT state FROM pulse_execution_gates WHERE namespace_id = ? AND scope = 'namespace' AND scope_id = '' FOR UPDATE;

-- name: ListClosedGates :many
-- Walks ix_pulse_execution_gates_closed. Plain: under the shared root row it cannot change; elsewhere it is a hint.
SELECT scope, scope_id FROM pulse_execution_gates FORCE INDEX (ix_pulse_execution_gates_closed) WHERE namespace_id = ? AND state = 'closed';

-- name: GetGate :one
SELECT * FROM pulse_execution_gates WHERE namespace_id = ? AND scope = ? AND scope_id = ?;

-- name: InsertGate :exec
INSERT INTO pulse_execution_gates (namespace_id, scope, scope_id, state, control_version, reason, updated_at)
VALUES (?, ?, ?, ?, 1, ?, ?);

-- name: SetGate :execrows
-- Under the exclusive root row.
UPDATE pulse_execution_gates SET state = sqlc.arg(state), control_version = control_version + 1, reason = sqlc.arg(reason), updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND scope = sqlc.arg(scope) AND scope_id = sqlc.arg(scope_id) AND control_version = sqlc.arg(control_version);
