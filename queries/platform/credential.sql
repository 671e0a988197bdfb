-- name: InsertCredential :exec
INSERT INTO orbit_credentials
  (namespace_id, id, actor_id, name, secret_digest, actions, queues, rate_per_second, state, expires_at, revision, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'active', ?, 1, ?, ?);

-- name: GetCredential :one
SELECT * FROM orbit_credentials WHERE namespace_id = ? AND id = ?;

-- name: AuthenticateCredential :one
-- The credential and the clock that judges it, in one reading.
SELECT sqlc.embed(c), CAST(NOW(6) AS DATETIME(6)) AS now_at
FROM orbit_credentials c WHERE c.namespace_id = ? AND c.id = ?;

-- name: HostCountCredentials :one
-- 1 once there is any credential on this installation, whatever its state.
SELECT COUNT(*) FROM (SELECT c.id FROM orbit_credentials c LIMIT 1) AS present;

-- name: ListCredentials :many
-- Walks the primary key, newest first; the cursor is the last id seen.
SELECT * FROM orbit_credentials
WHERE namespace_id = sqlc.arg(namespace_id) AND id < sqlc.arg(before_id)
ORDER BY id DESC LIMIT ?;

-- name: LockCredential :one
SELECT * FROM orbit_credentials WHERE namespace_id = ? AND id = ? FOR UPDATE;

-- name: RotateCredential :execrows
-- The present secret becomes the previous one and keeps opening until the overlap ends; one before it stops at once.
UPDATE orbit_credentials SET
  previous_digest = secret_digest, previous_expires_at = sqlc.arg(previous_expires_at), secret_digest = sqlc.arg(secret_digest),
  revision = revision + 1, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND revision = sqlc.arg(revision) AND state = 'active';

-- name: RevokeCredential :execrows
-- active → revoked.
UPDATE orbit_credentials SET state = 'revoked', revision = revision + 1, updated_at = sqlc.arg(now_at)
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND revision = sqlc.arg(revision) AND state = 'active';

-- name: TouchCredential :execrows
-- Coarse: at most once a minute, so that no request waits on the row.
UPDATE orbit_credentials SET last_used_at = CAST(sqlc.arg(now_at) AS DATETIME(6))
WHERE namespace_id = sqlc.arg(namespace_id) AND id = sqlc.arg(id) AND (last_used_at IS NULL OR last_used_at < sqlc.arg(stale_at));
