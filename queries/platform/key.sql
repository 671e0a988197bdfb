-- name: ListKeys :many
-- Walks the primary key. Plain: answers committed keys, and after ReserveKey also who owns the row.
SELECT * FROM orbit_idempotency_keys
WHERE namespace_id = sqlc.arg(namespace_id) AND scope = sqlc.arg(scope) AND idempotency_key IN (sqlc.slice(idempotency_keys));

-- name: ShareKeys :many
-- Keys as they are, for a batch or a look-up, without waiting: error 3572 means that some key of the set is held by a running try; absent keys lock nothing.
-- The hints here and below forbid the scan that a small table would get, which meets the keys of strangers.
SELECT /*+ INDEX(orbit_idempotency_keys PRIMARY) */ * FROM orbit_idempotency_keys
WHERE namespace_id = sqlc.arg(namespace_id) AND scope = sqlc.arg(scope) AND idempotency_key IN (sqlc.slice(idempotency_keys))
FOR SHARE NOWAIT;

-- name: InsertKey :exec
-- absent → done, visible with the commit. Error 1062 means that another try was first, and 1205 that one still runs.
INSERT INTO orbit_idempotency_keys
  (namespace_id, scope, idempotency_key, actor_id, operation, digest, state, resource_kind, resource_id, reply_id, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: ReserveKey :exec
-- absent → done, visible with the commit. A present row is locked and left as it is: reply_id, read back, tells whose it is.
-- Waits for a running try of the same key; rows are given in key order, so that two batches cannot deadlock.
INSERT INTO orbit_idempotency_keys
  (namespace_id, scope, idempotency_key, actor_id, operation, digest, state, resource_kind, resource_id, reply_id, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE idempotency_key = VALUES(idempotency_key);

-- name: ForgetKeys :execrows
-- Undoes the reservation of refused items in their own transaction: a refused try leaves nothing.
DELETE /*+ INDEX(orbit_idempotency_keys PRIMARY) */ FROM orbit_idempotency_keys
WHERE namespace_id = sqlc.arg(namespace_id) AND scope = sqlc.arg(scope) AND idempotency_key IN (sqlc.slice(idempotency_keys)) AND state = 'done';

-- name: InsertReply :exec
INSERT INTO orbit_replies (namespace_id, id, status, etag, body) VALUES (?, ?, ?, ?, ?);

-- name: ListReplies :many
SELECT * FROM orbit_replies
WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids));

-- name: DueKeys :many
-- Walks ix_orbit_idempotency_keys_expiry. done → expired is due at expires_at, the removal of tombstones and voids later.
SELECT namespace_id, scope, idempotency_key, reply_id FROM orbit_idempotency_keys
WHERE state = sqlc.arg(state) AND expires_at <= sqlc.arg(due_at)
ORDER BY expires_at LIMIT ?;

-- name: ExpireKeys :execrows
-- done → expired, once their time is past; the tombstones refuse the keys from then on.
UPDATE /*+ INDEX(orbit_idempotency_keys PRIMARY) */ orbit_idempotency_keys SET state = 'expired', reply_id = NULL
WHERE namespace_id = sqlc.arg(namespace_id) AND scope = sqlc.arg(scope) AND idempotency_key IN (sqlc.slice(idempotency_keys))
  AND state = 'done' AND expires_at <= sqlc.arg(due_at);

-- name: DeleteKeys :execrows
-- Removes tombstones and voids whose own time is past.
DELETE /*+ INDEX(orbit_idempotency_keys PRIMARY) */ FROM orbit_idempotency_keys
WHERE namespace_id = sqlc.arg(namespace_id) AND scope = sqlc.arg(scope) AND idempotency_key IN (sqlc.slice(idempotency_keys))
  AND state IN ('expired', 'void') AND expires_at <= sqlc.arg(due_at);

-- name: DeleteReplies :execrows
-- In the transaction that expires their keys.
DELETE /*+ INDEX(orbit_replies PRIMARY) */ FROM orbit_replies WHERE namespace_id = sqlc.arg(namespace_id) AND id IN (sqlc.slice(ids));
