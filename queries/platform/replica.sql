-- name: HostServer :one
-- The server's identity and its clock in one reading.
SELECT CAST(@@server_uuid AS CHAR) AS server_uuid;

-- name: HostUpsertReplica :exec
-- Registers the replica, or renews it. A renewal later than the grace, or on another server, begins a new unbroken run.
INSERT INTO orbit_replicas (id, server_uuid, fresh_since, renewed_at, host, version, started_at)
VALUES (sqlc.arg(id), sqlc.arg(server_uuid), sqlc.arg(now_at), sqlc.arg(now_at), sqlc.arg(host), sqlc.arg(version), sqlc.arg(now_at))
ON DUPLICATE KEY UPDATE
  fresh_since = CASE WHEN server_uuid = VALUES(server_uuid) AND renewed_at >= sqlc.arg(gap_at) AND renewed_at <= VALUES(renewed_at)
    THEN fresh_since ELSE VALUES(renewed_at) END,
  server_uuid = VALUES(server_uuid), renewed_at = VALUES(renewed_at);

-- name: HostFreshReplica :one
-- No row if the server that answers is another than the one of the last renewal.
SELECT fresh_since, renewed_at FROM orbit_replicas WHERE id = ? AND server_uuid = CAST(@@server_uuid AS CHAR);

-- name: HostDeleteReplica :execrows
DELETE FROM orbit_replicas WHERE id = ?;

-- name: HostDeleteDeadReplicas :execrows
DELETE FROM orbit_replicas WHERE renewed_at < sqlc.arg(dead_at) LIMIT ?;
