-- name: HostUpsertReplica :exec
-- Registers the replica, or renews it. A renewal later than the grace, or on another server, begins a new unbroken run.
INSERT INTO orbit_replicas (id, server_uuid, fresh_since, renewed_at, host, version, started_at, nudge_address, nudge_key)
VALUES (sqlc.arg(id), CAST(@@server_uuid AS CHAR), sqlc.arg(now_at), sqlc.arg(now_at), sqlc.arg(host), sqlc.arg(version), sqlc.arg(now_at),
  sqlc.arg(nudge_address), sqlc.arg(nudge_key))
ON DUPLICATE KEY UPDATE
  fresh_since = CASE WHEN server_uuid = VALUES(server_uuid) AND renewed_at >= sqlc.arg(gap_at) AND renewed_at <= VALUES(renewed_at)
    THEN fresh_since ELSE VALUES(renewed_at) END,
  server_uuid = VALUES(server_uuid), renewed_at = VALUES(renewed_at), nudge_address = VALUES(nudge_address), nudge_key = VALUES(nudge_key);

-- name: HostListPeers :many
-- Other replicas that were alive a moment ago and take nudges, the last heard of first; walks ix_orbit_replicas_renewed.
SELECT nudge_address, nudge_key FROM orbit_replicas FORCE INDEX (ix_orbit_replicas_renewed)
WHERE renewed_at >= sqlc.arg(since_at) AND id <> sqlc.arg(id) AND nudge_address <> '' ORDER BY renewed_at DESC LIMIT ?;

-- name: HostFreshReplica :one
-- No row if the server that answers is another than the one of the last renewal.
SELECT fresh_since, renewed_at FROM orbit_replicas WHERE id = ? AND server_uuid = CAST(@@server_uuid AS CHAR);

-- name: HostDeleteReplica :execrows
DELETE FROM orbit_replicas WHERE id = ?;

-- name: HostDeleteDeadReplicas :execrows
DELETE FROM orbit_replicas WHERE renewed_at < sqlc.arg(dead_at) LIMIT ?;
