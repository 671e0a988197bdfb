-- name: InsertAuditEvent :exec
INSERT INTO orbit_audit_events
  (namespace_id, id, actor_id, credential_id, action, target_kind, target_id, outcome, request_id, source, detail, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: ListAuditEvents :many
-- Walks the primary key, newest first; reads a bounded stretch, which the caller filters.
SELECT * FROM orbit_audit_events
WHERE namespace_id = sqlc.arg(namespace_id) AND id < sqlc.arg(before_id)
ORDER BY id DESC LIMIT ?;
